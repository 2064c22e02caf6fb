#include "properties/oracle/fault_reach.h"

#include <gtest/gtest.h>

#include "reference/model.h"

namespace lockstep::properties {
namespace {

// Three ranks, one parameter, two synced steps, and a fault of rank 1 in the second one, after
// which the others repeat that step.
class FaultReach : public ::testing::Test {
 protected:
  void SetUp() override {
    case_.program.world = 3;
    case_.program.parameters.resize(1);
    reference::Forward forward;
    forward.nodes.resize(1);
    forward.outputs.resize(1);
    reference::Step step;
    step.variants.resize(1);
    step.variants[0].forwards = {forward};
    case_.program.steps = {step, step};
    reference::normalize(case_.program);
    fault_.rank = 1;
    fault_.step = 1;
    observation_.ranks.resize(3);
    expectation_ = reference::run(case_.program, reference::Contract::lockstep());
  }
  bool reaches_first_step(faults::Kind kind, const std::vector<std::uint32_t>& survivors) {
    fault_.kind = kind;
    reference::Recovery recovery;
    recovery.before_step = 1;
    recovery.survivors = survivors;
    observation_.recoveries = {recovery};
    return reaches(case_, expectation_, observation_, fault_, 2, 0);
  }

  Case case_;
  faults::Fault fault_;
  Observation observation_;
  reference::Expectation expectation_;
};

// Over sockets, what the rank sent last may be lost with it.
TEST_F(FaultReach, AnExitMayFailTheStepBeforeIt) {
  EXPECT_TRUE(reaches_first_step(faults::Kind::kRankExit, {0, 2}));
}

TEST_F(FaultReach, ARecoveryThatTheRankTookPartInSeparatesItsExitFromEarlierSteps) {
  EXPECT_FALSE(reaches_first_step(faults::Kind::kRankExit, {0, 1, 2}));
}

// Whoever takes its place comes with the recovery, as do those who leave a rank out.
TEST_F(FaultReach, AReplacedRankAndOneThatWasLeftOutAreGoneBeforeTheRecovery) {
  EXPECT_TRUE(reaches_first_step(faults::Kind::kRankReplaced, {0, 2, 1}));
  EXPECT_TRUE(reaches_first_step(faults::Kind::kRankReplaced, {0, 2}));
  EXPECT_TRUE(reaches_first_step(faults::Kind::kRankLeftOut, {0, 2}));
  EXPECT_TRUE(reaches_first_step(faults::Kind::kNodeMemory, {0, 2}));
  EXPECT_FALSE(reaches_first_step(faults::Kind::kNodeMemory, {0, 1, 2}));
  EXPECT_FALSE(reaches_first_step(faults::Kind::kNodeStop, {0, 1, 2}));
}

TEST_F(FaultReach, AnErrorThatTheRankSurvivesIsInTheStepsAfterTheRecovery) {
  EXPECT_FALSE(reaches_first_step(faults::Kind::kOperationError, {0, 1, 2}));
}

// A rank uses the groups and reducers that the fault ended until a recovery replaces them. A reset
// that the abort has ended is repeated, and gives the rank new ones.
TEST_F(FaultReach, AFaultOutlivesItsStepUntilItsRankResets) {
  fault_.step = 0;
  EXPECT_TRUE(outlives(observation_, fault_, 0));
  EXPECT_TRUE(outlives(observation_, fault_, 1));
  reference::Recovery recovery;
  recovery.before_step = 1;
  observation_.recoveries = {recovery};
  EXPECT_TRUE(outlives(observation_, fault_, 0));
  EXPECT_FALSE(outlives(observation_, fault_, 1));
  fault_.step = 1;
  EXPECT_FALSE(outlives(observation_, fault_, 0));
  fault_.in_reset = true;
  EXPECT_TRUE(outlives(observation_, fault_, 1));
  observation_.ranks[1].failed_joins.push_back({.step = 1, .error = "transport failure"});
  EXPECT_TRUE(outlives(observation_, fault_, 1));
  observation_.ranks[1].failed_joins.push_back({.step = 1, .error = kAbortText});
  EXPECT_FALSE(outlives(observation_, fault_, 1));
}

}  // namespace
}  // namespace lockstep::properties
