// Tests the oracle that compares two runs of one case, of which the second has an option switched.
//
// Claims: the options that the table of fields lets it switch change nothing that the model expects
// (here alone the model judges, and it judges the table); each difference between the two runs is a
// failure that names the option and the place; and what time decides is counted, not judged.
#include "properties/oracle/metamorphic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "properties/case/switched.h"
#include "properties/generate/generate.h"
#include "properties/oracle/two_runs.h"
#include "properties/run/case_runner.h"
#include "properties/subject/torch_subject.h"
#include "reference/test_programs.h"

namespace lockstep::properties {
namespace {

using reference::Contract;
using reference::Expectation;
using reference::ExpectedRankStep;
namespace programs = reference::testing;

// Returns how two expectations of a rank in a step differ, or nothing.
std::string difference(const reference::Program& program, const Expectation& one,
                       const ExpectedRankStep& a, const Expectation& other,
                       const ExpectedRankStep& b) {
  if (a.outcome != b.outcome || a.error != b.error) return "the outcome";
  if (a.outcome != reference::Outcome::kSuccess) return {};
  if (a.state != b.state) return "the state";
  for (std::size_t p = 0; p < program.parameters.size(); ++p) {
    const reference::ExpectedGradient& x = a.gradients[p];
    const reference::ExpectedGradient& y = b.gradients[p];
    if (x.known != y.known || x.defined != y.defined) return "a gradient's being defined";
    std::uint64_t element = 0;
    if (x.known && x.defined &&
        !same_words(program.parameters[p], one.bits.data() + x.offset, other.bits.data() + y.offset,
                    element))
      return "the bits of a gradient";
  }
  return {};
}

// Returns how the model's expectations of both runs differ where the oracle compares them.
std::string difference(const Case& c, const Profile& profile) {
  const Case other = *switched(c);
  const Expectation one = expectation_of(c, profile);
  const Expectation two = expectation_of(other, profile);
  const std::uint32_t end = std::min(modelled_steps(c, profile), modelled_steps(other, profile));
  for (std::size_t step = 0; step < end; ++step) {
    const bool is_error = one.steps[step].any_error || two.steps[step].any_error;
    if (is_error && !keeps_errors(c.switched.option)) return {};
    for (std::size_t rank = 0; rank < c.program.world; ++rank) {
      const std::string what =
          difference(c.program, one, one.steps[step].ranks[rank], two, two.steps[step].ranks[rank]);
      if (!what.empty())
        return what + " of rank " + std::to_string(rank) + " in step " + std::to_string(step);
    }
  }
  return {};
}

TEST(TableOfSwitches, TheModelExpectsTheSameOfBothRuns) {
  GenerateOptions options;
  options.faults = GenerateOptions::Faults::kNone;
  options.capabilities = Capabilities::all();
  options.switched = switchable_options();
  std::map<std::string, int> compared;
  for (std::uint64_t i = 0; i < 6000; ++i) {
    const Case c = generate(0x5317c4, i, options);
    if (not_comparable(c)) continue;
    ++compared[name_of(c.switched.option)];
    ASSERT_EQ(difference(c, Profile::lockstep()), "")
        << "case " << i << ", " << name_of_second_run(c);
  }
  for (const SwitchedOption option : switchable_options())
    EXPECT_GT(compared[name_of(option)], 10) << name_of(option);
}

// Passes that a user of PyTorch ends right after the backward give what those give that end by
// themselves. No other way to end passes is one that may be switched.
TEST(TableOfSwitches, TheModelOfPyTorchExpectsTheSameOfPassesThatTheUserEnds) {
  constexpr torch_model::Version kVersion{2, 15, 0};
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  options.faults = GenerateOptions::Faults::kNone;
  options.capabilities = torch_capabilities(kVersion);
  options.switched = {*switchable_option("finalization")};
  int compared = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Case c = generate(0x5317c5, i, options);
    if (not_comparable(c)) continue;
    ++compared;
    ASSERT_EQ(difference(c, Profile::torch(kVersion)), "") << "case " << i;
  }
  EXPECT_GT(compared, 200);
  Case c;
  c.program = programs::local_then_synced();
  c.torch.finalization = TorchOptions::Finalization::kNever;
  for (std::uint32_t to = 0; to < 5; ++to) {
    c.switched = {options.switched.front(), to};
    EXPECT_FALSE(switched(c)) << to;
  }
  // Where a forward was dropped, a local backward after it is averaged, and nobody ends that.
  c.torch.finalization = TorchOptions::Finalization::kAutomatic;
  c.switched = {options.switched.front(), 0};
  EXPECT_TRUE(switched(c));
  reference::RankPass& pass = c.program.steps.back().variants.front();
  pass.forwards.front().discard = true;
  EXPECT_FALSE(switched(c));
  // A second backward of the first static pass may be lost when the user ends the pass.
  pass.forwards.front().discard = false;
  c.program.options.mode = reference::Mode::kStatic;
  EXPECT_TRUE(switched(c));
  pass.backwards.resize(2);
  EXPECT_FALSE(switched(c));
}

// Two ranks and two parameters; a step under no_sync that uses p0, two synced ones that use both,
// and one that makes every rank fail, as it uses p0 alone in plain mode.
class TwoRunsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    case_.program = programs::local_then_synced();
    const reference::Step synced = case_.program.steps.back();
    case_.program.steps.push_back(synced);
    reference::Step failing;
    failing.variants = {programs::uses({0})};
    case_.program.steps.push_back(failing);
    case_.program.options.with_values = true;
    switch_option("views");
  }

  void switch_option(const char* option) {
    case_.switched = {*switchable_option(option), 0};
    reference::normalize(case_.program);
    CaseRunner runner(LaneKind::kSim, Subject{});
    const Verdict found = runner.run(case_);
    ASSERT_TRUE(found.ok()) << found.message;
    EXPECT_EQ(runner.compared_steps(), option == std::string("views") ? 4u : 3u);
    first_ = second_ = runner.observation();
    expectation_ = reference::run(case_.program, Contract::lockstep(), first_.recoveries);
    second_expectation_ = reference::run(switched(case_)->program, Contract::lockstep());
  }

  SwitchVerdict judge() const {
    return judge_switch({case_, expectation_, second_expectation_, first_, second_});
  }
  void expect_failure(Failing failing, const std::string& text) const {
    const Verdict verdict = judge().verdict;
    EXPECT_EQ(verdict.failing, failing) << verdict.message;
    EXPECT_EQ(verdict.oracle, "same with " + name_of(case_.switched.option));
    EXPECT_NE(verdict.message.find(text), std::string::npos) << verdict.message;
  }

  Case case_;
  Expectation expectation_;
  Expectation second_expectation_;
  Observation first_;
  Observation second_;
};

TEST_F(TwoRunsTest, AreTheSame) {
  EXPECT_TRUE(judge().verdict.ok()) << judge().verdict.message;
  EXPECT_EQ(judge().compared_steps, 4u);
}

TEST_F(TwoRunsTest, DifferInOneBit) {
  second_.ranks[1].bits[second_.ranks[1].steps[1].gradients[1].offset + 2] ^= 1;
  expect_failure(Failing::kWrongBits,
                 "rank 1, step 1, parameter p1, element 2 of 3:\n  as the case is     0x");
  expect_failure(Failing::kWrongBits, "\n  with views = true  0x");
}

TEST_F(TwoRunsTest, DifferWhereOneHasNoGradient) {
  second_.ranks[0].steps[0].gradients[0].defined = false;
  expect_failure(Failing::kWrongBits,
                 "rank 0, step 0, parameter p0:\n  as the case is     defined\n"
                 "  with views = true  undefined");
}

TEST_F(TwoRunsTest, DifferInTheState) {
  second_.ranks[0].steps[1].state[1] ^= 1;
  expect_failure(Failing::kWrongBits, "rank 0, step 1: tensor 1 of the values");
}

TEST_F(TwoRunsTest, DifferInAnError) {
  second_.ranks[1].steps[1].status = Status(Code::kTimeout, "late");
  second_.ranks[1].steps[1].gradients.clear();
  expect_failure(Failing::kWrongError, "rank 1, step 1:\n  as the case is     succeeds\n");
}

TEST_F(TwoRunsTest, DifferInTheCodeOfAnErrorOfTheProgram) {
  case_.program.world = 1;  // so that no other rank's error may come first
  switch_option("views");
  ASSERT_EQ(second_.ranks[0].steps[3].status.code(), Code::kIncomplete);
  second_.ranks[0].steps[3].status.failure().code = Code::kReadyTwice;
  expect_failure(Failing::kWrongError, "rank 0, step 3:\n  as the case is     fails: ");
}

TEST_F(TwoRunsTest, DifferInTheConstruction) {
  second_.ranks[0].construction = Status(Code::kInvalidArgument, "no");
  expect_failure(Failing::kWrongError, "rank 0, construction:\n  as the case is     ok");
}

TEST_F(TwoRunsTest, MayBothFailWhereTheProgramLeadsToNoError) {
  for (Observation* run : {&first_, &second_}) {
    run->ranks[1].steps[1].status = Status(Code::kInternal, "always");
    run->ranks[1].steps[1].gradients.clear();
  }
  EXPECT_TRUE(judge().verdict.ok()) << judge().verdict.message;
  EXPECT_EQ(judge().compared_steps, 1u);
  EXPECT_GT(judge().verdict.unspecified.of(Unspecified::kSwitch), 0u);
}

TEST_F(TwoRunsTest, AreComparedUpToAnErrorThatTheOptionMayChange) {
  switch_option("rebuild");
  EXPECT_EQ(judge().compared_steps, 3u);
  EXPECT_GT(judge().verdict.unspecified.of(Unspecified::kSwitch), 0u);
  second_.ranks[1].steps[3].status = Status();
  EXPECT_TRUE(judge().verdict.ok());
  second_.ranks[1].steps[1].status = Status(Code::kTimeout, "late");
  EXPECT_FALSE(judge().verdict.ok());
}

TEST_F(TwoRunsTest, AreNotComparedWithAFaultThatMayFailAStep) {
  faults::Fault fault;
  fault.kind = faults::Kind::kMessageDelay;
  case_.faults.faults = {fault};
  EXPECT_FALSE(not_comparable(case_));
  case_.faults.faults[0].kind = faults::Kind::kRankExit;
  EXPECT_EQ(not_comparable(case_), NotComparable::kHarmfulFault);
  case_.faults = {};
  case_.switched = {};
  EXPECT_EQ(not_comparable(case_), NotComparable::kNoOption);
  case_.switched.option = *switchable_option("views");
  case_.program.parameters[1].reducer = 1;
  EXPECT_EQ(not_comparable(case_), NotComparable::kSharedReducer);
}

// The bits of a sum of three depend on where an element lies.
TEST_F(TwoRunsTest, AreNotComparedWhereTimeMayDecideTheLayout) {
  case_.program.world = 3;
  case_.program.options.rebuild = true;
  EXPECT_EQ(not_comparable(case_), NotComparable::kLayoutByTime);
  case_.program.options.order = reference::Order::kRankOrder;
  EXPECT_FALSE(not_comparable(case_));
  case_.program.options.order = reference::Order::kRing;
  case_.program.world = 2;
  EXPECT_FALSE(not_comparable(case_));
}

// A planted bug is found by this oracle alone: no gradient is compared with the model's.
TEST(Metamorphic, FindsAPlantedBugOfViews) {
  Result<Subject> subject = parse_subject("seeded:D02");
  ASSERT_TRUE(subject.has_value());
  GenerateOptions options;
  options.faults = GenerateOptions::Faults::kNone;
  options.switched = {*switchable_option("views")};
  CaseRunner runner(LaneKind::kSim, *subject);
  Verdict verdict;
  for (std::uint64_t i = 0; i < 3000 && verdict.ok(); ++i) {
    const Case c = generate(1, i, options);
    if (!not_comparable(c)) verdict = runner.run(c);
  }
  EXPECT_EQ(verdict.failing, Failing::kWrongBits) << verdict.message;
  EXPECT_EQ(verdict.oracle, "same with views");
}

}  // namespace
}  // namespace lockstep::properties
