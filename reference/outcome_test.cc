// Tests which errors a rank may report of those that a program ends in by itself.
#include "reference/outcome.h"

#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using Naming = ReportableError::Naming;
using Op = ExpectedCollective::Op;
using testing::Case;
using testing::uses;

const std::vector<Recovery> kNoRecoveries;

std::vector<ReportableError> errors_of(const Case& c, std::size_t rank, std::uint32_t step,
                                       const std::vector<Recovery>& recoveries = kNoRecoveries) {
  return reportable_errors({c.program, c.expectation, recoveries}, rank, step);
}

// Rank 1 of two does not use p1 in the last of these steps.
Case incomplete_after(std::uint32_t steps, PassKind kind = PassKind::kSynced) {
  Case c(2, Mode::kPlain, 2);
  for (std::uint32_t s = 0; s < steps; ++s) c.step({uses({0, 1})}, kind);
  c.step({uses({0, 1}), uses({0})});
  c.run();
  return c;
}

TEST(Outcome, F2AProgramThatEndsWellHasNoErrors) {
  Case c(2, Mode::kPlain, 2);
  c.step({uses({0, 1})}).run();
  for (const std::size_t rank : {0u, 1u}) EXPECT_TRUE(errors_of(c, rank, 0).empty());
}

TEST(Outcome, F2BothRanksReportWhatOneLacks) {
  const Case c = incomplete_after(1);
  for (const std::size_t rank : {0u, 1u}) {
    const std::vector<ReportableError> errors = errors_of(c, rank, 1);
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].error, Error::kIncomplete);
    EXPECT_EQ(errors[0].culprit, 1);
    EXPECT_EQ(errors[0].pass, 1);
    EXPECT_EQ(errors[0].naming, Naming::kAll);
    EXPECT_EQ(*errors[0].parameters, testing::Indices{1});
    EXPECT_EQ(errors[0].call.has_value(), rank == 1);
  }
}

// In a step without collectives a rank may hear of a peer that is ahead; it is not ahead itself.
TEST(Outcome, F2APeerMayBeAheadWhereNothingHoldsItBack) {
  const Case free = incomplete_after(1, PassKind::kNoSync);
  EXPECT_EQ(errors_of(free, 0, 0).size(), 1u);
  EXPECT_TRUE(errors_of(free, 1, 0).empty());
  const Case held = incomplete_after(2);
  EXPECT_TRUE(errors_of(held, 0, 0).empty());
  const ModelledRun run{held.program, held.expectation, kNoRecoveries};
  EXPECT_EQ(first_reached(run, 0, 2), 1u);
  EXPECT_EQ(last_reached(run, 0, 0), 1u);
}

TEST(Outcome, F2AnErrorOfTheFirstGradientMayComeBeforeTheSecondHook) {
  Case c(2, Mode::kPlain, 2);
  c.step({uses({0, 1}), uses({0, 1})}).run();
  ExpectedRankStep& own = c.expectation.steps[0].ranks[1];
  own.outcome = Outcome::kOwnError;
  own.error = Error::kReadyTwice;
  own.parameters = {0, 1};
  own.requiring = {1};
  const std::vector<ReportableError> errors = errors_of(c, 0, 0);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].error, Error::kReadyTwice);
  EXPECT_EQ(errors[0].parameters->size(), 2u);
  EXPECT_EQ(errors[1].error, Error::kRequiresGrad);
  EXPECT_EQ(*errors[1].parameters, testing::Indices{1});
  EXPECT_EQ(errors[1].naming, Naming::kOne);
}

TEST(Outcome, F4PassesAndRanksCountFromTheLastRecovery) {
  Case c(3, Mode::kPlain, 1);
  for (int s = 0; s < 4; ++s) c.step({uses({0})});
  const std::vector<Recovery> recoveries = {{2, {0, 2}}};
  c.run(recoveries);
  const ModelledRun run{c.program, c.expectation, recoveries};
  EXPECT_EQ(begin_of_group(run, 1), 0u);
  EXPECT_EQ(begin_of_group(run, 3), 2u);
  EXPECT_EQ(pass_number(c.expectation, 3, 2), 1);
  EXPECT_EQ(rank_in_group(c.program, recoveries, 1, 2), 2);
  EXPECT_EQ(rank_in_group(c.program, recoveries, 2, 2), 1);
  EXPECT_EQ(rank_in_group(c.program, recoveries, 2, 1), -1);
}

TEST(Outcome, F4RanksThatJoinComeAfterThoseThatStay) {
  Case c(3, Mode::kPlain, 1);
  for (int s = 0; s < 3; ++s) c.step({uses({0})});
  const std::vector<Recovery> recoveries = {{1, {1, 2}}, {2, {1, 2, 0}}};
  c.run(recoveries);
  EXPECT_EQ(rank_in_group(c.program, recoveries, 1, 0), -1);
  EXPECT_EQ(rank_in_group(c.program, recoveries, 2, 0), 2);
  EXPECT_EQ(rank_in_group(c.program, recoveries, 2, 1), 0);
}

TEST(Outcome, F4AfterAnErrorOfTheProgramAGroupBegins) {
  Case c = incomplete_after(0);
  c.program.steps.push_back(c.program.steps[0]);
  c.run();
  const ModelledRun run{c.program, c.expectation, kNoRecoveries};
  EXPECT_EQ(begin_of_group(run, 1), 1u);
  EXPECT_EQ(errors_of(c, 1, 1)[0].pass, 0);
  EXPECT_EQ(reportable_errors_of_join(run, 1).size(), 2u);
}

TEST(Outcome, F7OnlyRanksOfOneGroupArePeers) {
  Program program;
  program.world = 4;
  EXPECT_TRUE(are_peers(program, 0, 1));
  program.options.two_groups = true;
  EXPECT_FALSE(are_peers(program, 0, 1));
  EXPECT_TRUE(are_peers(program, 1, 3));
  EXPECT_EQ(rank_in_group(program, {}, 0, 3), 1);
}

TEST(Outcome, ABroadcastOrAnEmptyCollectiveHoldsNobody) {
  ExpectedStep step;
  const auto add = [&](Op op, std::uint64_t count) {
    step.collectives.emplace_back().op = op;
    step.collectives.back().count = count;
  };
  add(Op::kBroadcastBuffers, 4);
  add(Op::kAllReduceBucket, 0);
  EXPECT_FALSE(holds_together(step));
  add(Op::kAllReduceBucket, 4);
  EXPECT_TRUE(holds_together(step));
  EXPECT_TRUE(holds_together(step, 2));
  EXPECT_FALSE(holds_together(step, 3));
}

// Three ranks, of which rank 1 is out of inputs after a step (S2).
TEST(Outcome, S2AnEarlyTerminationNamesTheFirstRankWithoutInputs) {
  Case c(3, Mode::kPlain, 1);
  c.program.options.join = Join::kByAll;
  c.program.options.early_termination = true;
  c.program.steps_per_rank = {3, 1, 3};
  for (int s = 0; s < 3; ++s) c.step({uses({0})});
  c.run();
  for (const std::size_t rank : {0u, 2u}) {
    const std::vector<ReportableError> errors = errors_of(c, rank, 1);
    ASSERT_FALSE(errors.empty());
    for (const ReportableError& each : errors) {
      EXPECT_EQ(each.error, Error::kUnevenInputs);
      EXPECT_EQ(each.culprit, 1);
    }
  }
}

}  // namespace
}  // namespace lockstep::reference
