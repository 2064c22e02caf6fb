// Tests the oracle on errors of a subject that works hook by hook, under faults. Each test has a
// correct observation of three steps on two ranks, and corrupts one part of it.
#include <gtest/gtest.h>

#include "properties/oracle/oracles.h"
#include "properties/subject/torch/model/hook_model.h"

namespace lockstep::properties {
namespace {

using faults::Kind;

class ErrorCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    case_.program.parameters.resize(1);
    case_.program.steps.resize(3);
    case_.timeout_ms = 1000;
    normalize(case_);
    observation_.ranks.resize(case_.program.world);
    for (RankObservation& rank : observation_.ranks) {
      rank.finished = true;
      for (std::uint32_t s = 0; s < 3; ++s) rank.steps.emplace_back().step = s;
    }
  }

  // Rank 1 is faulty in step 1, and all ranks recover after it.
  void plan(Kind kind, bool fired = true) {
    faults::Fault fault;
    fault.kind = kind;
    fault.rank = 1;
    fault.step = 1;
    case_.faults.faults.push_back(fault);
    if (fired) ++observation_.fired.counts[static_cast<std::size_t>(kind)];
    observation_.recoveries = {{2, {0, 1}}};
    fail(0, 1);
    fail(1, 1);
  }

  ObservedStep& step(std::size_t rank, std::size_t index) {
    return observation_.ranks[rank].steps[index];
  }
  void fail(std::size_t rank, std::size_t index) {
    step(rank, index).status = Status(Code::kInternal, "Connection closed by peer");
    step(rank, index).failed_call = 0;
  }

  Verdict verdict(const torch_model::Policies& policies = {}) const {
    return judge_error_calls(case_, policies,
                             torch_model::run(case_.program, {}, policies, observation_.recoveries),
                             observation_);
  }
  void expect_wrong(const std::string& text, Failing failing = Failing::kWrongError) const {
    EXPECT_EQ(verdict().failing, failing);
    EXPECT_NE(verdict().message.find(text), std::string::npos) << verdict().message;
  }

  Case case_;
  Observation observation_;
};

TEST_F(ErrorCalls, ALostRankIsAReasonToFail) {
  plan(Kind::kOperationStall);
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  EXPECT_EQ(verdict().message, "");
}

TEST_F(ErrorCalls, AFaultThatDidNotFireIsNone) {
  plan(Kind::kOperationStall, false);
  expect_wrong("rank 0, step 1: failed without a reason");
}

TEST_F(ErrorCalls, ABenignFaultIsNoReason) {
  plan(Kind::kRankPause);
  expect_wrong("rank 0, step 1: failed without a reason");
}

TEST_F(ErrorCalls, WhoNeedsALostRankMustFail) {
  plan(Kind::kRankExit);
  step(0, 1).status = {};
  expect_wrong("rank 0, step 1: ended well, although it needs rank 1, which is lost (rank_exit)");
}

TEST_F(ErrorCalls, SoMustARankThatWasStopped) {
  plan(Kind::kOperationStall);
  step(1, 1).status = {};
  expect_wrong("rank 1, step 1: ended well, although it needs rank 1");
}

TEST_F(ErrorCalls, WhatTheLostRankHadStartedIsNoReasonToFail) {
  plan(Kind::kNodeThrows);
  step(0, 1).status = {};
  expect_wrong("rank 0, step 1: ended well, although it needs rank 1");
  step(1, 1).collectives.resize(3);  // two of the rebuild, one bucket
  EXPECT_TRUE(verdict().ok()) << verdict().message;
}

// A partition that heals may be over before a timeout, and so may one of which a rank hears
// nothing.
TEST_F(ErrorCalls, OnlyAPartitionFromAllThatLastsIsSureToBeNoticed) {
  plan(Kind::kNetPartition);
  faults::Fault& fault = case_.faults.faults[0];
  fault.peer = fault.rank;
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  step(0, 1).status = {};
  expect_wrong("rank 0, step 1: ended well, although it needs rank 1, which is lost");
  fault.duration_us = 300'000;
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  fault.duration_us = 0;
  fault.peer = 0;
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  fault.kind = Kind::kNetLoss;
  ++observation_.fired.counts[static_cast<std::size_t>(fault.kind)];
  EXPECT_TRUE(verdict().ok()) << verdict().message;
}

// Such a subject connects once, and gives up if that fails.
TEST_F(ErrorCalls, AReducerCannotBeHadWhereAFaultDisturbedTheConnecting) {
  plan(Kind::kNetReset);
  for (Status RankObservation::*const what :
       {&RankObservation::construction, &RankObservation::recovery}) {
    case_.faults.faults[0].in_reset = true;
    observation_.ranks[0].*what = Status(Code::kInternal, "Connection reset by peer");
    observation_.ranks[0].finished = false;
    EXPECT_TRUE(verdict().ok()) << verdict().message;
    EXPECT_EQ(verdict().unspecified.of(Unspecified::kOutcomeByTime), 1u);
    case_.faults.faults[0].in_reset = false;
    expect_wrong("Connection reset by peer");
    observation_.ranks[0].*what = {};
  }
}

TEST_F(ErrorCalls, ANodeThatThrowsIsNotSwallowed) {
  plan(Kind::kNodeThrows);
  step(1, 1).status = {};
  expect_wrong("rank 1, step 1: ended well, although one of its nodes threw");
}

TEST_F(ErrorCalls, AFaultReachesOneStepBackAndNoFurther) {
  plan(Kind::kRankExit);
  fail(0, 0);
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  case_.program.steps.resize(4);
  normalize(case_);
  case_.faults.faults[0].step = 2;
  observation_.recoveries[0].before_step = 3;
  expect_wrong("rank 0, step 0: failed without a reason");
}

TEST_F(ErrorCalls, AfterTheRecoveryThereIsNoReason) {
  plan(Kind::kRankExit);
  fail(0, 2);
  expect_wrong("rank 0, step 2: failed without a reason");
}

TEST_F(ErrorCalls, AnErrorLongAfterTheTimeoutIsSeen) {
  plan(Kind::kRankExit);
  step(0, 1).end_us = 12'000'000;
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  step(0, 1).end_us = 12'002'000;
  expect_wrong("rank 0: step 1 failed after 12002 ms, and the timeout is 1000 ms",
               Failing::kDeadlock);
}

TEST_F(ErrorCalls, OfSeveralFaultsItSaysWhatWasNotJudged) {
  plan(Kind::kRankExit);
  plan(Kind::kNodeThrows);
  step(0, 1).status = {};
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  EXPECT_NE(verdict().message.find("not judged: which ranks had to fail, as 2 faults"),
            std::string::npos);
  EXPECT_EQ(verdict().unspecified.of(Unspecified::kSeveralFaults), 4u);  // steps 0 and 1
}

TEST_F(ErrorCalls, ByTheContractItNamesTheLostRank) {
  plan(Kind::kRankExit);
  torch_model::Policies policies;
  policies.names_no_lost_rank = false;
  EXPECT_NE(verdict(policies).message.find("must name the rank that is the cause: of rank 1"),
            std::string::npos);
  Failure failure = step(0, 1).status.failure();
  failure.rank = 0;
  step(0, 1).status = failure;
  EXPECT_FALSE(verdict(policies).ok());
  failure.rank = 1;
  step(0, 1).status = failure;
  EXPECT_TRUE(verdict(policies).ok()) << verdict(policies).message;
}

}  // namespace
}  // namespace lockstep::properties
