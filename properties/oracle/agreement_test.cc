// Tests the agreement of two subjects on observations of the simulator. Each test corrupts one part
// of one observation.
#include "properties/oracle/agreement.h"

#include <gtest/gtest.h>

#include "properties/run/case_runner.h"
#include "reference/test_programs.h"

namespace lockstep::properties {
namespace {

using reference::Contract;
namespace programs = reference::testing;

// Two ranks, two parameters: a step under no_sync that uses p0, a synced one that uses p0 and p1.
class Agreement : public ::testing::Test {
 protected:
  void SetUp() override {
    case_.program = programs::local_then_synced();
    case_.program.options.mode = reference::Mode::kDynamic;
    reference::normalize(case_.program);
    CaseRunner runner(LaneKind::kSim, Subject{});
    ASSERT_TRUE(runner.run(case_).ok());
    one_ = other_ = runner.observation();
    expectation_ = Expected(reference::run(case_.program, Contract::lockstep()));
  }

  Verdict verdict(std::uint32_t steps = 2) const {
    return judge_agreement(case_, steps, {"left", expectation_, one_},
                           {"right", expectation_, other_});
  }
  void expect_difference(const std::string& text) const {
    EXPECT_EQ(verdict().failing, Failing::kSubjectsDiffer) << verdict().message;
    EXPECT_EQ(verdict().oracle, "agreement");
    EXPECT_NE(verdict().message.find(text), std::string::npos) << verdict().message;
  }
  Comparable compared_with_torch() const {
    return comparable_steps(case_.program, expectation_, expectation_of(case_, Profile::torch()));
  }

  void use_one_parameter() {
    case_.program.steps[1].variants = {programs::uses({1})};
    reference::normalize(case_.program);
    expectation_ = Expected(reference::run(case_.program, Contract::lockstep()));
  }

  Case case_;
  Expected expectation_;
  Observation one_;
  Observation other_;
};

TEST_F(Agreement, OfTheSameIsSeen) { EXPECT_TRUE(verdict().ok()) << verdict().message; }

TEST_F(Agreement, EndsAtOneBit) {
  const std::uint64_t at = other_.ranks[1].steps[1].gradients[1].offset + 2;
  other_.ranks[1].bits[at] ^= 1;
  expect_difference("rank 1, step 1, parameter p1, element 2 of 3:\n  left   0x");
  EXPECT_NE(verdict().message.find("both contracts have 0x"), std::string::npos);
}

TEST_F(Agreement, IsNotAskedForBehindTheStepsThatAreCompared) {
  other_.ranks[1].bits[other_.ranks[1].steps[1].gradients[1].offset] ^= 1;
  EXPECT_TRUE(verdict(1).ok());
}

TEST_F(Agreement, EndsWhereOneHasNoGradient) {
  one_.ranks[0].steps[0].gradients[0].defined = false;
  expect_difference("rank 0, step 0, parameter p0:\n  left   undefined\n  right  defined");
}

TEST_F(Agreement, EndsWhereOneFails) {
  one_.ranks[1].steps[0].status = Status(Code::kTransport, "the cable");
  expect_difference("rank 1, step 0:\n  left   fails: ");
}

TEST_F(Agreement, EndsWhereOneStops) {
  other_.ranks[0].steps.pop_back();
  expect_difference("rank 0, step 1:\n  left   succeeds\n  right  did not come to it");
}

TEST_F(Agreement, IsAskedForWhereContractsAgree) {
  const Comparable found = compared_with_torch();
  EXPECT_EQ(found.steps, 2u) << found.why;
  EXPECT_TRUE(found.has_synced_pass);
  EXPECT_TRUE(found.why.empty());
}

// Under the profile `torch` a use in only the no_sync step is forgotten (P9).
TEST_F(Agreement, IsNotAskedForWhereContractsDiffer) {
  use_one_parameter();
  const Comparable found = compared_with_torch();
  EXPECT_EQ(found.steps, 1u);
  EXPECT_FALSE(found.has_synced_pass);
  EXPECT_NE(found.why.find("step 1: rank 0, parameter p0"), std::string::npos) << found.why;
}

TEST_F(Agreement, IsNotAskedForWhereAnErrorIsExpected) {
  case_.program.options.mode = reference::Mode::kPlain;
  use_one_parameter();
  const Comparable found = compared_with_torch();
  EXPECT_EQ(found.steps, 1u);
  EXPECT_EQ(found.why, "step 1: an error is expected");
}

// Tests the whole run of a case in the simulator.
TEST_F(Agreement, OfAPlantedBugAndTheReducerEnds) {
  Result<Subject> planted = parse_subject("seeded:N08");
  ASSERT_TRUE(planted);
  planted->against = std::make_shared<const Subject>();
  CaseRunner runner(LaneKind::kSim, *planted);
  const Verdict seen = runner.run(case_);
  EXPECT_EQ(seen.failing, Failing::kSubjectsDiffer) << seen.message;
  EXPECT_EQ(runner.compared_steps(), 2u);
}

TEST_F(Agreement, OfTheReducerAndItselfHolds) {
  Subject subject;
  subject.against = std::make_shared<const Subject>();
  CaseRunner runner(LaneKind::kSim, subject);
  EXPECT_TRUE(runner.run_twice(case_).ok());
  EXPECT_EQ(runner.compared_steps(), 2u);
}

TEST_F(Agreement, IsNotAskedForWithFaults) {
  Subject subject;
  subject.against = std::make_shared<const Subject>();
  CaseRunner runner(LaneKind::kSim, subject);
  case_.faults.faults.resize(1);
  const Verdict seen = runner.run(case_);
  EXPECT_EQ(seen.failing, Failing::kInconclusive);
  EXPECT_EQ(seen.oracle, "comparable");
  EXPECT_EQ(runner.compared_steps(), 0u);
}

}  // namespace
}  // namespace lockstep::properties
