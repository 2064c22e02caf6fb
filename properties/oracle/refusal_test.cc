// Tests the oracle on refused constructions and resets, on observations of the simulator: every
// kind of disagreement is refused as the contract says, and each part of an observation that a test
// corrupts is noticed.
#include <gtest/gtest.h>

#include <set>

#include "properties/case/fields.h"
#include "properties/oracle/oracles.h"
#include "properties/run/case_runner.h"
#include "properties/shrink/shrink.h"
#include "reference/test_programs.h"

namespace lockstep::properties {
namespace {

using reference::disagreement_named;
using reference::DisagreementKind;
using reference::DisagreementRow;
namespace programs = reference::testing;

// Three ranks, two parameters of two dimensions, two synced steps; in the first one rank 1's graph
// fails, so that all ranks reset.
Case case_of(DisagreementKind kind, std::uint32_t rank, bool at_reset, bool verify = false) {
  Case c;
  c.program.world = 3;
  reference::Parameter parameter;
  parameter.sizes = {3, 2};
  c.program.parameters = {parameter, parameter};
  c.program.options.order = verify ? reference::Order::kRankOrder : reference::Order::kRing;
  c.program.options.verify = verify;
  reference::Step step;
  step.variants = {programs::uses({0, 1})};
  c.program.steps = {step, step};
  if (at_reset) {
    faults::Fault fault;
    fault.kind = faults::Kind::kNodeThrows;
    fault.rank = 1;
    c.faults.faults = {fault};
  }
  c.program.disagreement = {kind, rank, at_reset, 0};
  return c;
}

TEST(Refusal, B4EveryDisagreementIsRefusedByEveryRankAndTheGroupGoesOn) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  std::set<DisagreementKind> refused;
  for (std::size_t k = 1; k < reference::kDisagreements.size(); ++k) {
    for (const std::uint32_t rank : {0u, 1u, 2u}) {
      for (const bool at_reset : {false, true}) {
        const auto kind = static_cast<DisagreementKind>(k);
        const bool verify = (reference::row_of(kind).needs & DisagreementRow::kVerified) != 0;
        Case c = case_of(kind, rank, at_reset, verify);
        normalize(c);
        const std::string name = std::string(fields::name_of(kind)) + " of rank " +
                                 std::to_string(rank) + (at_reset ? " at a reset" : "");
        ASSERT_EQ(c.program.disagreement.kind, kind) << name;
        const Verdict verdict = runner.run(c);
        ASSERT_TRUE(verdict.ok()) << name << ": " << verdict.message;
        for (const RankObservation& seen : runner.observation().ranks) {
          ASSERT_EQ(seen.refusals.size(), 1u) << name;
          EXPECT_FALSE(seen.refusals[0].status.ok()) << name;
        }
        refused.insert(kind);
      }
    }
  }
  EXPECT_EQ(refused.size(), reference::kDisagreements.size() - 1);
}

// Each test corrupts one part of a correct observation.
class RefusalOracle : public ::testing::Test {
 protected:
  void observe(DisagreementKind kind, std::uint32_t rank) {
    case_ = case_of(kind, rank, false);
    normalize(case_);
    CaseRunner runner(LaneKind::kSim, Subject{});
    ASSERT_TRUE(runner.run(case_).ok());
    observation_ = runner.observation();
    ASSERT_TRUE(judge_refusals(case_, observation_).ok());
  }
  ObservedRefusal& of(std::size_t rank) { return observation_.ranks[rank].refusals[0]; }
  Failure& failure(std::size_t rank) { return of(rank).status.failure(); }
  void expect_wrong(const std::string& text) {
    const Verdict verdict = judge_refusals(case_, observation_);
    EXPECT_EQ(verdict.failing, Failing::kWrongError);
    EXPECT_EQ(verdict.oracle, "refusal");
    EXPECT_NE(verdict.message.find(text), std::string::npos) << verdict.message;
  }

  Case case_;
  Observation observation_;
};

TEST_F(RefusalOracle, WantsAnErrorOfEveryRank) {
  observe(disagreement_named("views"), 2);
  of(0).status = Status();
  expect_wrong("rank 0, at the construction: no error");
}

TEST_F(RefusalOracle, WantsEveryRankToTakePart) {
  observe(disagreement_named("views"), 2);
  observation_.ranks[1].refusals.clear();
  expect_wrong("rank 1, at the construction: took no part");
}

TEST_F(RefusalOracle, WantsTheCodeOfADifference) {
  observe(disagreement_named("views"), 2);
  failure(1).code = Code::kTimeout;
  expect_wrong("the error must say that ranks differ");
}

TEST_F(RefusalOracle, WantsTheRankThatDiffers) {
  observe(disagreement_named("views"), 2);
  failure(1).rank = failure(1).suspect = 1;
  expect_wrong("the error must name rank 2");
}

TEST_F(RefusalOracle, WantsTheCollectiveThatShowedADifference) {
  observe(disagreement_named("views"), 2);
  failure(1).collective.clear();
  expect_wrong("the error must name the collective that showed it");
}

TEST_F(RefusalOracle, WantsBothSidesOfADifference) {
  observe(disagreement_named("limits"), 2);
  failure(0).detail = "ranks differ";
  expect_wrong("the error must say what ranks 0 and 2 have");
  failure(0).detail = "rank 0 has 'one line', rank 2 has 'one line'";
  expect_wrong("the error must say where the ranks differ");
}

TEST_F(RefusalOracle, WantsTheReasonOfTheRankThatRefuses) {
  observe(disagreement_named("unknown_name"), 1);
  failure(2).detail = "rank 2 refused: something";
  expect_wrong("the error must say \"rank 1 refused: there is no parameter or buffer nowhere");
}

TEST_F(RefusalOracle, WantsTheNumberOfTheRankThatRefuses) {
  observe(disagreement_named("no_trace"), 1);
  failure(2).rank = 0;
  expect_wrong("the error must name rank 1");
}

TEST_F(RefusalOracle, WantsEachRanksOwnErrorForALayoutThatAllHave) {
  observe(disagreement_named("layout"), 1);
  failure(2).rank = 1;
  expect_wrong("the error must name rank 2");
}

TEST_F(RefusalOracle, WantsNoSuspectFromTheRankThatRefuses) {
  observe(disagreement_named("no_trace"), 1);
  failure(1).suspect = 0;
  expect_wrong("the rank that refuses suspects one of its group");
}

TEST_F(RefusalOracle, WantsTheReporterToBeTheRankItself) {
  observe(disagreement_named("hook"), 1);
  failure(2).reported_by = 0;
  expect_wrong("names rank 0 as the one that reports it");
}

TEST_F(RefusalOracle, WantsAGroupThatCanStillBeUsed) {
  observe(disagreement_named("hook"), 1);
  of(2).next_collective = Status(Code::kAborted, "gone");
  expect_wrong("the group cannot be used any more");
}

TEST_F(RefusalOracle, WantsNoCollectiveOfOneRankAlone) {
  observe(disagreement_named("hook"), 1);
  ++of(2).next_sequence;
  expect_wrong("the next collective is #");
}

TEST_F(RefusalOracle, WantsNothingToBeBroadcast) {
  observe(disagreement_named("hook"), 1);
  of(1).keeps_state = false;
  expect_wrong("something was broadcast");
}

// A failure that has nothing to do with the disagreement loses it; one that needs it keeps it.
TEST(Refusal, ShrinkingTakesTheDisagreementAwayWhereItDoesNotMatter) {
  Case c = case_of(disagreement_named("swapped"), 2, false);
  c.program.key = 7;
  normalize(c);
  const auto has_steps = [](const Case& each) { return !each.program.steps.empty(); };
  EXPECT_EQ(shrink(c, has_steps).value.program.disagreement.kind, DisagreementKind::kNone);
  const auto disagrees = [](const Case& each) {
    return each.program.disagreement.kind == disagreement_named("swapped");
  };
  const Case kept = shrink(c, disagrees).value;
  EXPECT_EQ(kept.program.disagreement.kind, disagreement_named("swapped"));
  EXPECT_EQ(kept.program.disagreement.rank, 0u);
}

}  // namespace
}  // namespace lockstep::properties
