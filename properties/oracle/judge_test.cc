#include "properties/oracle/judge.h"

#include <gtest/gtest.h>

#include <utility>

#include "properties/oracle/test_judged.h"

namespace lockstep::properties {
namespace {

TEST_F(JudgeTest, ARightObservationIsLeftAlone) {
  EXPECT_TRUE(verdict().ok()) << verdict().message;
}

TEST_F(JudgeTest, OneWrongBitOnAllRanksIsSeen) {
  for (RankObservation& rank : observation_.ranks)
    rank.bits[rank.steps[0].gradients[0].offset + 1] ^= 1;
  expect(Failing::kWrongBits, "bits");
  EXPECT_NE(verdict().message.find("element 1 of 3"), std::string::npos);
  EXPECT_NE(verdict().message.find("rank 1 contributes"), std::string::npos);
}

TEST_F(JudgeTest, RanksThatDifferAreSeen) {
  observation_.ranks[1].bits[step(1).gradients[0].offset] ^= 1;
  expect(Failing::kWrongBits, "equal");
}

TEST_F(JudgeTest, AGradientThatIsMissingIsSeen) {
  for (std::size_t rank : {0u, 1u}) step(rank).gradients[0].defined = false;
  expect(Failing::kWrongBits, "definedness");
}

TEST_F(JudgeTest, AGradientThatMustStayInItsStorageIsSeen) {
  for (auto& rank : expectation_.steps[0].ranks) rank.gradients[0].untouched = true;
  expect(Failing::kWrongBits, "untouched");
  for (std::size_t rank : {0u, 1u}) step(rank).gradients[0].same_storage = true;
  EXPECT_TRUE(verdict().ok());
}

TEST_F(JudgeTest, CollectivesThatAreMissingTooManyOrDifferentAreSeen) {
  const std::vector<ObservedCollective> right = step(1).collectives;
  ASSERT_EQ(right.size(), 1u);
  step(1).collectives.clear();
  expect(Failing::kWrongBits, "trace");
  step(1).collectives = {right[0], right[0]};
  expect(Failing::kWrongBits, "trace");
  step(1).collectives = right;
  ++step(1).collectives[0].count;
  expect(Failing::kWrongBits, "trace");
  step(1).collectives = right;
  step(1).collectives[0].bucket = 1;
  expect(Failing::kWrongBits, "trace");
  step(1).collectives = right;
  step(1).collectives[0].dtype = DType::kFloat16;
  expect(Failing::kWrongBits, "trace");
}

TEST_F(JudgeTest, AViewThatLiesElsewhereIsSeen) {
  use({2, 5}, [](reference::Replicated& options) { options.views = true; });
  ObservedGradient& second = step(1).gradients[1];
  const ObservedGradient right = second;
  second.byte_in_storage += 4;
  expect(Failing::kWrongBits, "view");
  second = right;
  second.shares_with = 1;  // a storage of its own, though both lie in the only bucket
  expect(Failing::kWrongBits, "view");
}

TEST_F(JudgeTest, AViewOfTheWrongBucketIsSeen) {
  use({2, 5}, [](reference::Replicated& options) {
    options.views = true;
    options.first_bucket_bytes = options.bucket_bytes = 1;
  });
  ASSERT_EQ(expectation_.buckets.size(), 2u);
  step(1).gradients[1].shares_with = 0;
  expect(Failing::kWrongBits, "view");
}

TEST_F(JudgeTest, BucketsThatFollowNoOrderOfTheHooksAreSeen) {
  use({2, 5}, [](reference::Replicated& options) { options.rebuild = true; });
  const std::vector<std::uint32_t> right = step(0).rebuilt_order;
  ASSERT_EQ(right.size(), 2u);
  ASSERT_EQ(step(0, 0).hook_order, right);
  const std::vector<std::uint32_t> turned = {right[1], right[0]};
  step(1).rebuilt_order = turned;  // on one rank alone
  expect(Failing::kWrongBits, "layout");
  step(0).rebuilt_order = turned;  // on both, against what the first one saw
  expect(Failing::kWrongBits, "layout");
  step(0).rebuilt_order = step(1).rebuilt_order = {right[0], right[0]};
  expect(Failing::kWrongBits, "layout");
  step(0).rebuilt_order = step(1).rebuilt_order = right;
  EXPECT_TRUE(verdict().ok()) << verdict().message;
}

TEST_F(JudgeTest, B2TheParametersThatAStaticPassMarksComeInTheirOwnOrder) {
  use({2, 5, 3}, [](reference::Replicated& options) {
    options.rebuild = true;
    options.mode = reference::Mode::kStatic;
  });
  for (reference::Step& each : case_.program.steps) each.variants[0] = pass_of({1});
  observe();
  ASSERT_EQ(step(0).rebuilt_order, (std::vector<std::uint32_t>{0, 2, 1}));
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  step(0).rebuilt_order = step(1).rebuilt_order = {2, 0, 1};
  expect(Failing::kWrongBits, "layout");
  EXPECT_NE(verdict().message.find("p2 p0 had no hook"), std::string::npos);
}

TEST_F(JudgeTest, T2AUsageMapThatIsNotOfInt32IsSeen) {
  use({2, 5}, [](reference::Replicated& options) { options.mode = reference::Mode::kDynamic; });
  ObservedCollective& map = step(1).collectives.back();
  ASSERT_EQ(map.op, ObservedCollective::Op::kAllReduceUsage);
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  map.dtype = DType::kFloat32;
  expect(Failing::kWrongBits, "trace");
}

TEST_F(JudgeTest, T3TimesOfAPassThatNoGroupHasCompletedAreSeen) {
  case_.program.steps[0].kind = reference::PassKind::kNoSync;
  case_.environment.times = true;
  observe();
  ASSERT_EQ(step(1).pass_times.size(), 1u);
  ASSERT_EQ(step(1).pass_times[0].pass, kNone);
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  step(1).pass_times[0].pass = 3;
  expect(Failing::kWrongBits, "times");
}

TEST_F(JudgeTest, ABufferThatIsNotWhatItMustBeIsSeen) {
  case_.program.buffers.resize(2);
  observe();
  ASSERT_EQ(step(1).state.size(), 2u);
  step(1).state[1] ^= 1;
  expect(Failing::kWrongBits, "state");
  EXPECT_NE(verdict().message.find("buffer b1"), std::string::npos);
}

TEST_F(JudgeTest, AValueThatIsNotWhatItMustBeIsSeen) {
  case_.program.options.with_values = true;
  observe();
  step(0).state[0] ^= 1;
  expect(Failing::kWrongBits, "state");
  EXPECT_NE(verdict().message.find("the value of parameter 0"), std::string::npos);
  step(0).state.clear();
  expect(Failing::kWrongBits, "state");
}

// Rank 1 has no inputs (S2).
TEST_F(JudgeTest, WhatARankWithoutInputsEndsWithIsSeen) {
  case_.program.options.join = reference::Join::kByAll;
  case_.program.steps_per_rank = {1, 0};
  case_.program.buffers.resize(1);
  observe();
  RankObservation& out = observation_.ranks[1];
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  ASSERT_EQ(out.ending.size(), 1u);
  const ObservedStep right = out.ending[0];
  out.bits[right.gradients[0].offset] ^= 1;
  expect(Failing::kWrongBits, "bits");
  out.bits[right.gradients[0].offset] ^= 1;
  out.ending[0].gradients[0].defined = false;
  expect(Failing::kWrongBits, "definedness");
  out.ending[0] = right;
  out.ending[0].state[0] ^= 1;
  expect(Failing::kWrongBits, "state");
  out.ending[0] = right;
  Failure failure;
  failure.code = Code::kPeerLost;
  failure.pass = 0;
  out.joining = failure;
  expect(Failing::kWrongError, "error");
}

TEST_F(JudgeTest, AnnouncementsBelongToTheTrace) {
  case_.program.options.join = reference::Join::kByAll;
  observe();
  ASSERT_EQ(step(0).collectives.size(), 2u);
  step(0).collectives.erase(step(0).collectives.begin());
  expect(Failing::kWrongBits, "trace");
}

TEST_F(JudgeTest, AnErrorWithoutAReasonIsSeen) {
  fail(0, Code::kPeerLost);
  expect(Failing::kWrongError, "error");
}

TEST_F(JudgeTest, ATimeoutWithoutAReasonIsAHang) {
  fail(0, Code::kTimeout);
  step(0).end_us = step(0).begin_us + std::uint64_t{gloo_timeout_ms(case_)} * 1000;
  expect(Failing::kDeadlock, "progress");
  fail(1, Code::kInvalidArgument);  // for which rank 0 may have waited
  expect(Failing::kWrongError, "error");
}

// Whatever failed, nobody has waited for a timeout before one has passed.
TEST_F(JudgeTest, ATimeoutThatComesBeforeTheTimeIsUpIsWrong) {
  case_.faults.faults = {{faults::Kind::kOperationStall, 1, 0, 0, 0}};
  observation_.fired.counts[static_cast<std::size_t>(faults::Kind::kOperationStall)] = 1;
  case_.timeout_ms = 100;
  for (ObservedStep* const each : {&step(0), &step(1)}) {
    Failure failure;
    failure.code = Code::kTimeout;
    failure.rank = failure.suspect = 1;
    failure.reported_by = each == &step(0) ? 0 : 1;
    failure.pass = failure.bucket = 0;
    failure.sequence = 0;
    failure.collective = "all_reduce";
    failure.parameters = {"p0"};
    failure.detail = "nothing came from rank 1 in time";
    each->status = failure;
    each->poisoned = each->launched = true;
    each->end_us = each->begin_us + 99'000;
  }
  EXPECT_TRUE(judge_errors(case_, expectation_, observation_).ok());
  step(0).end_us -= 1'000;
  const Verdict verdict = judge_errors(case_, expectation_, observation_);
  EXPECT_EQ(verdict.failing, Failing::kWrongError);
  EXPECT_NE(verdict.message.find("a timeout 98 ms after the first step in this group began"),
            std::string::npos)
      << verdict.message;
}

TEST_F(JudgeTest, AnErrorThatAFaultExcusesMustTellWhatF2Says) {
  case_.faults.faults = {{faults::Kind::kLinkReset, 1, 0, 0, 0}};
  observation_.fired.counts[static_cast<std::size_t>(faults::Kind::kLinkReset)] = 1;
  fail(0, Code::kPeerLost);
  expect(Failing::kWrongError, "error");
  Failure& failure = step(0).status.failure();
  failure.rank = failure.suspect = 1;
  failure.bucket = 0;
  failure.parameters = {"p0"};
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  const Failure right = failure;
  const auto expect_wrong = [&](const std::function<void(Failure&)>& spoil) {
    step(0).status.failure() = right;
    spoil(step(0).status.failure());
    expect(Failing::kWrongError, "error");
  };
  expect_wrong([](Failure& f) { f.pass = kNone; });
  expect_wrong([](Failure& f) { f.pass = 1; });
  expect_wrong([](Failure& f) { f.bucket = 1; });
  expect_wrong([](Failure& f) { f.parameters = {"p1"}; });
  expect_wrong([](Failure& f) { f.parameters.clear(); });
  expect_wrong([](Failure& f) { f.collective = "all_reduce"; });  // and no sequence number
  step(0).status.failure() = right;
  step(0).status.failure().collective = "all_reduce";
  step(0).status.failure().sequence = 1;
  EXPECT_TRUE(verdict().ok()) << verdict().message;
}

// Rank 1 does not use the second parameter in the second pass, and each parameter has its own
// bucket (F2).
TEST_F(JudgeTest, F2WhatAnErrorOfTheProgramTellsIsLookedAtOnEveryRank) {
  use({2, 5}, [](reference::Replicated& options) {
    options.first_bucket_bytes = options.bucket_bytes = 1;
  });
  reference::RankPass partial = case_.program.steps[1].variants[0];
  partial.forwards[0].nodes.pop_back();
  case_.program.steps[1].variants.push_back(partial);
  observe();
  ASSERT_EQ(expectation_.buckets.size(), 2u);
  ASSERT_EQ(step(1).status.code(), Code::kIncomplete) << step(1).status.to_string();
  ASSERT_EQ(step(0).status.code(), Code::kIncomplete) << step(0).status.to_string();
  ASSERT_EQ(step(1).status.failure().parameters, std::vector<std::string>{"p1"});
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  const auto expect_wrong = [&](std::size_t rank, const std::function<void(Failure&)>& spoil) {
    const Failure right = step(rank).status.failure();
    spoil(step(rank).status.failure());
    expect(Failing::kWrongError, "error");
    step(rank).status.failure() = right;
  };
  for (const std::size_t rank : {0u, 1u}) {
    expect_wrong(rank, [](Failure& f) { f.pass = 0; });
    expect_wrong(rank, [](Failure& f) { f.pass = 2; });
    expect_wrong(rank, [](Failure& f) { f.bucket = 1 - f.bucket; });
    expect_wrong(rank, [](Failure& f) { f.bucket = 7; });
    expect_wrong(rank, [](Failure& f) { f.bucket = kNone; });
  }
  ASSERT_FALSE(step(0).status.failure().collective.empty());
  expect_wrong(0, [](Failure& f) { f.sequence = kNone; });
  expect_wrong(0, [](Failure& f) { f.later.clear(); });
  expect_wrong(0, [](Failure& f) { f.later = {"rank 1 saw: nothing"}; });
  observation_.attaches = false;
  Failure& told = step(0).status.failure();
  const std::vector<std::string> later = std::exchange(told.later, {});
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  observation_.attaches = true;
  told.later = later;
  EXPECT_TRUE(verdict().ok()) << verdict().message;
}

// Nodes of ranks 1 and 2 throw (F2).
TEST_F(JudgeTest, F2OfSeveralRanksAtFaultOneMustBeTheCause) {
  case_.program.world = 3;
  observe();
  const auto kind = faults::Kind::kNodeThrows;
  case_.faults.faults = {{kind, 1, 0, 0, 0}, {kind, 2, 0, 0, 0}};
  observation_.fired.counts[static_cast<std::size_t>(kind)] = 2;
  fail(0, Code::kUserFailure);
  step(0).launched = true;
  Failure& failure = step(0).status.failure();
  failure.definite = true;
  failure.later = {"rank 0 saw: that a peer left"};
  for (const int culprit : {1, 2}) {
    failure.rank = culprit;
    EXPECT_TRUE(verdict().ok()) << verdict().message;
  }
  failure.rank = 0;
  expect(Failing::kWrongError, "error");
  EXPECT_NE(verdict().message.find("must name the rank that is the cause: of rank 1 or rank 2"),
            std::string::npos)
      << verdict().message;
}

// One operation of rank 2 of four stalls, and nothing else fails (F2).
TEST_F(JudgeTest, F2OfOneStallAloneNobodyElseIsSuspected) {
  case_.program.world = 4;
  case_.timeout_ms = 2000;
  case_.faults.faults = {{faults::Kind::kOperationStall, 2, 0, 0, 0}};
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    case_.schedule.seed = seed;
    observe();
    EXPECT_TRUE(verdict().ok()) << verdict().message;
    for (const RankObservation& rank : observation_.ranks) {
      ASSERT_FALSE(rank.steps[0].status.ok());
      const Failure& failure = rank.steps[0].status.failure();
      EXPECT_EQ(failure.rank, 2) << failure.to_string();
      EXPECT_TRUE(failure.suspect == kNone || failure.suspect == 2) << failure.to_string();
    }
  }
  Failure& failure = step(0).status.failure();
  failure.detail = "rank 2 has left the group";
  expect(Failing::kWrongError, "error");
  EXPECT_NE(verdict().message.find("must say of no rank that it left"), std::string::npos);
  failure.detail = "nothing came from rank 1 in time";
  failure.suspect = 1;
  expect(Failing::kWrongError, "error");
  EXPECT_NE(verdict().message.find("must suspect nobody who is innocent"), std::string::npos);
  EXPECT_NE(verdict().message.find("rank 2 is at fault (operation_stall)"), std::string::npos);
  case_.faults.faults.push_back({faults::Kind::kOperationStall, 1, 0, 0, 0});
  expect(Failing::kWrongError, "text");
  EXPECT_NE(verdict().message.find("names rank 2, and suspects rank 1"), std::string::npos);
  failure.rank = 1;
  EXPECT_TRUE(verdict().ok()) << verdict().message;  // with two of them nobody is judged so
  EXPECT_GT(verdict().unspecified.of(Unspecified::kSeveralFaults), 0u);
}

// Of four ranks one is at fault, and nothing else fails (F2).
TEST_F(JudgeTest, F2OfOneFaultOfAnyKindNobodyElseIsSuspected) {
  using faults::Kind;
  case_.program.world = 4;
  case_.timeout_ms = 2000;
  const auto expect_wrong = [&](Failure& failure, const std::function<void(Failure&)>& spoil) {
    const Failure right = failure;
    spoil(failure);
    expect(Failing::kWrongError, "error");
    EXPECT_NE(verdict().message.find("rank 2 is at fault"), std::string::npos);
    failure = right;
  };
  for (const Kind kind : {Kind::kOperationStall, Kind::kRankExit, Kind::kNodeThrows,
                          Kind::kOperationError, Kind::kLinkReset}) {
    case_.faults.faults = {{kind, 2, 0, 0, 0}};
    observe();
    ASSERT_EQ(observation_.fired.counts[static_cast<std::size_t>(kind)], 1u);
    expectation_ = Expected(reference::run(case_.program, reference::Contract::lockstep(),
                                           observation_.recoveries, observation_.ready_orders()));
    EXPECT_TRUE(verdict().ok()) << verdict().message;
    ASSERT_FALSE(step(0, 0).status.ok());
    Failure& failure = step(0, 0).status.failure();
    if (kind != Kind::kLinkReset) expect_wrong(failure, [](Failure& f) { f.suspect = 1; });
    if (kind == Kind::kRankExit) continue;  // it has left
    expect_wrong(failure, [](Failure& f) { f.detail += "; rank 1 has left the group"; });
    expect_wrong(failure, [](Failure& f) { f.later.push_back("rank 1 has left the group"); });
  }
  case_.faults.faults = {{Kind::kMessageStall, 2, 0, 0, 0}};
  observe();
  expectation_ = Expected(reference::run(case_.program, reference::Contract::lockstep(),
                                         observation_.recoveries, observation_.ready_orders()));
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  EXPECT_EQ(verdict().unspecified.of(Unspecified::kCycle), verdict().unspecified.errors);
}

// The ranks are on GPUs, and a call of one of them fails.
TEST_F(JudgeTest, F2TheErrorOfACallThatFailedHasItsWords) {
  for (const auto transport : {reference::Transport::kNccl, reference::Transport::kStaged}) {
    case_.program.options.transport = transport;
    case_.faults.faults = {{faults::Kind::kCallError, 1, 0, 0, 0}};
    observe();
    ASSERT_EQ(observation_.fired.counts[static_cast<std::size_t>(faults::Kind::kCallError)], 1u);
    for (const std::size_t rank : {0u, 1u}) {
      ASSERT_FALSE(step(rank, 0).status.ok());
      Failure& failure = step(rank, 0).status.failure();
      ASSERT_EQ(failure.rank, 1) << failure.to_string();
      EXPECT_TRUE(verdict().ok()) << verdict().message;
      const std::string right = failure.detail;
      failure.detail = "something went wrong";
      expect(Failing::kWrongError, "text");
      EXPECT_NE(verdict().message.find("does not say which call failed, and how"),
                std::string::npos);
      failure.detail = right;
    }
  }
}

// A fault fired in the first step and nothing fails afterwards, so that no reset may fail (F4).
TEST_F(JudgeTest, F4AFailedResetIsExcusedOnlyByAPeerThatFailsInTheSameGroup) {
  case_.program.steps.push_back(case_.program.steps[0]);
  case_.faults.faults = {{faults::Kind::kOperationError, 1, 0, 0, 0}};
  observe();
  expectation_ = Expected(reference::run(case_.program, reference::Contract::lockstep(),
                                         observation_.recoveries, observation_.ready_orders()));
  ASSERT_FALSE(step(1, 0).status.ok());
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  ASSERT_EQ(step(1, 0).generation, 0u);
  observation_.ranks[0].failed_joins = {{1, 1, "timeout"}};  // the reset after that step
  expect(Failing::kWrongError, "reuse");
  EXPECT_NE(verdict().message.find("the one before raised: timeout"), std::string::npos);
  observation_.ranks[0].failed_joins = {{0, 0, "timeout"}};
  EXPECT_TRUE(verdict().ok()) << verdict().message;
}

// The user of a rank gives up at each place of the construction, one after the other.
TEST_F(JudgeTest, F2AnErrorOfTheAgreementNamesNoPass) {
  int seen = 0;
  for (std::uint32_t place = 0; place < 6; ++place) {
    case_.faults.faults = {{faults::Kind::kUserAbort, 1, 0, place, 0}};
    case_.faults.faults[0].in_reset = true;
    observe();
    std::vector<FailedCall>& failed = observation_.ranks[1].failed_joins;
    if (failed.empty() || failed[0].failure->collective != "all_gather") continue;
    EXPECT_EQ(failed[0].failure->pass, kNone);
    EXPECT_TRUE(verdict().ok()) << verdict().message;
    failed[0].failure->pass = 0;
    expect(Failing::kWrongError, "reuse");
    EXPECT_NE(verdict().message.find("names pass 0"), std::string::npos);
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

TEST_F(JudgeTest, P3ABucketThatIsLaunchedLateIsSeen) {
  use({2, 5}, [](reference::Replicated& options) {
    options.first_bucket_bytes = options.bucket_bytes = options.last_bucket_bytes = 1;
  });
  std::vector<ObservedHook>& hooks = step(1).hooks;
  ASSERT_EQ(hooks.size(), 2u);
  EXPECT_EQ(hooks[0].launched, 1u);
  EXPECT_EQ(hooks[1].launched, 2u);
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  hooks[1].launched = 1;
  expect(Failing::kWrongBits, "overlap");
  hooks[1].launched = 2;
  hooks[0].launched = 0;
  expect(Failing::kWrongBits, "overlap");
  EXPECT_NE(verdict().message.find("bucket 0 is ready with the hook of p1"), std::string::npos)
      << verdict().message;
  // A communication hook with a backward of its own runs hooks of a checkpoint, too.
  case_.program.options.hook = reference::Hook::kElsewhere;
  case_.program.options.hook_backward = reference::HookBackward::kOwn;
  expect(Failing::kWrongBits, "overlap");
  reference::Program nested = case_.program;
  for (reference::Step& each : nested.steps)
    for (reference::RankPass& pass : each.variants)
      pass.forwards[0].nodes[0].kind = reference::Node::Kind::kCheckpoint;
  std::swap(case_.program, nested);
  EXPECT_NE(verdict().oracle, "overlap");
  EXPECT_GT(verdict().unspecified.of(Unspecified::kConcurrentHooks), 0u);
  std::swap(case_.program, nested);
  case_.program.options.hook = reference::Hook::kNone;
  case_.program.options.hook_backward = reference::HookBackward::kNone;
  case_.program.options.launch = reference::Launch::kAfterBackward;  // P14
  EXPECT_NE(verdict().oracle, "overlap");
}

TEST_F(JudgeTest, B3PaddingThatIsNotZeroIsSeen) {
  observation_.ranks[1].wrong_padding = "bucket 0 is sent with a padding that is not zero";
  expect(Failing::kWrongBits, "padding");
}

TEST_F(JudgeTest, F2ANodeThrowsInThePassOfItsOwnStep) {
  use({3}, [](reference::Replicated&) {});
  const auto kind = faults::Kind::kNodeThrows;
  case_.faults.faults = {{kind, 1, 1, 0, 0}};
  observation_.fired.counts[static_cast<std::size_t>(kind)] = 1;
  fail(0, Code::kUserFailure);
  Failure& failure = step(0).status.failure();
  failure.definite = true;
  failure.rank = 1;
  failure.later = {"rank 0 saw: that a peer left"};
  failure.pass = 1;
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  failure.pass = 0;  // in which a peer could be, but not this one
  expect(Failing::kWrongError, "error");
}

// Two ranks whose hook reduces one bucket; that of rank 1 fails when it finishes.
TEST_F(JudgeTest, S4AHookThatFailsIsAFailureOfTheUserOnEveryRank) {
  use({2}, [](reference::Replicated& options) { options.hook = reference::Hook::kElsewhere; });
  case_.faults.faults = {{faults::Kind::kHookFails, 1, 1, 0, 0, 0, 2 + 3 * faults::kHookCalls}};
  observe();
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  Status& status = step(1, 1).status;
  ASSERT_EQ(status.code(), Code::kUserFailure) << status.to_string();
  const Failure right = status.failure();
  status.failure().code = Code::kTimeout;
  expect(Failing::kWrongError, "error");
  status.failure() = right;
  status.failure().detail = "something went wrong";
  expect(Failing::kWrongError, "error");
  status.failure() = right;
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  step(1, 1) = step(0, 0);  // A rank that ends well has swallowed it.
  step(1, 1).step = 1;
  EXPECT_FALSE(verdict().ok());
}

TEST_F(JudgeTest, S4RanksMayDifferWhereTheHookLeavesEachItsOwn) {
  use({2}, [](reference::Replicated& options) {
    options.hook = reference::Hook::kElsewhere;
    options.hook_result = reference::HookResult::kLocal;
  });
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  observation_.ranks[1].bits[step(1).gradients[0].offset] ^= 1;
  expect(Failing::kWrongBits, "bits");
}

TEST_F(JudgeTest, F7AMismatchIsExcusedWhereReducersShareAGroupAlone) {
  case_.program.parameters.push_back(case_.program.parameters[0]);
  case_.program.parameters[1].reducer = 1;
  auto& nodes = case_.program.steps[0].variants[0].forwards[0].nodes;
  nodes.push_back(nodes[0]);
  nodes[1].parameter = 1;
  nodes[1].inputs.resize(1);
  observe();
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  fail(0, Code::kMismatch);
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  const std::string text = std::exchange(step(0).status.failure().detail,
                                         "rank 0 entered one; rank 1 entered another, verified");
  expect(Failing::kWrongError, "text");
  EXPECT_NE(verdict().message.find("wrongly whether the collectives are verified"),
            std::string::npos);
  for (const char* wrong : {"all_reduce, rank-ordered", "broadcast, rank-ordered"}) {
    step(0).status.failure().detail =
        std::string("rank 0 entered ") + wrong + "; rank 1 entered another";
    expect(Failing::kWrongError, "text");
    EXPECT_NE(verdict().message.find("rank-ordered that is not"), std::string::npos);
  }
  // The sums are rank-ordered where the program asks for it; a broadcast is never.
  const auto order = std::exchange(case_.program.options.order, reference::Order::kRankOrder);
  expect(Failing::kWrongError, "text");
  step(0).status.failure().detail =
      "rank 0 entered all_reduce, rank-ordered; rank 1 entered another";
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  case_.program.options.order = order;
  step(0).status.failure().detail = text;
  case_.program.options.group_each = true;
  expect(Failing::kWrongError, "error");
  case_.program.options.group_each = false;
  case_.program.options.launch = reference::Launch::kAfterBackward;
  expect(Failing::kWrongError, "error");
}

TEST_F(JudgeTest, F7CollectivesOfOneReducerAreNotThoseOfTheOther) {
  case_.program.parameters.push_back(case_.program.parameters[0]);
  case_.program.parameters[1].reducer = 1;
  auto& nodes = case_.program.steps[0].variants[0].forwards[0].nodes;
  nodes.push_back(nodes[0]);
  nodes[1].parameter = 1;
  nodes[1].inputs.resize(1);
  observe();
  for (ObservedCollective& each : step(1).collectives) each.reducer = 0;
  expect(Failing::kWrongBits, "trace");
}

TEST_F(JudgeTest, F2AFaultOfTheOtherGroupIsNoExcuse) {
  case_.program.world = 4;
  case_.program.options.two_groups = true;
  observe();
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  case_.faults.faults = {{faults::Kind::kLinkReset, 1, 0, 0, 0}};
  observation_.fired.counts[static_cast<std::size_t>(faults::Kind::kLinkReset)] = 1;
  const auto peer_lost = [&](std::size_t rank) {
    fail(rank, Code::kPeerLost);
    Failure& failure = step(rank).status.failure();
    failure.reported_by = static_cast<int>(rank / 2);
    failure.rank = failure.suspect = static_cast<int>(1 - rank / 2);
    failure.bucket = 0;
    failure.parameters = {"p0"};
  };
  peer_lost(3);
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  step(3).status.failure().reported_by = 3;  // its rank in the job
  expect(Failing::kWrongError, "error");
  peer_lost(3);
  peer_lost(2);
  expect(Failing::kWrongError, "error");
}

TEST_F(JudgeTest, S2WhatEndJoinRaisesIsLookedAt) {
  case_.program.options.join = reference::Join::kByAll;
  case_.program.steps_per_rank = {0, 1};
  observe();
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  Failure failure;
  failure.code = Code::kPeerLost;
  failure.reported_by = 0;
  failure.pass = 0;
  observation_.ranks[0].joining = failure;
  expect(Failing::kWrongError, "error");  // without a reason
  case_.faults.faults = {{faults::Kind::kNodeThrows, 1, 0, 0, 0}};
  observation_.fired.counts[static_cast<std::size_t>(faults::Kind::kNodeThrows)] = 1;
  expect(Failing::kWrongError, "error");  // names no rank
  failure.rank = 1;
  failure.collective = "all_reduce";
  observation_.ranks[0].joining = failure;
  expect(Failing::kWrongError, "error");  // and no sequence number
  failure.sequence = 2;
  observation_.ranks[0].joining = failure;
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  failure.pass = 5;
  observation_.ranks[0].joining = failure;
  expect(Failing::kWrongError, "error");  // of which there are not so many
  failure.pass = 0;
  failure.rank = 0;
  observation_.ranks[0].joining = failure;
  expect(Failing::kWrongError, "error");  // another one than threw
}

// With a communication hook that leaves each rank its own bucket, the others complete the step
// without the rank that must raise an error, and leave.
TEST_F(JudgeTest, S2ARankWhoseBucketsNobodyNeedsMayBeLeftBeforeItsOwnError) {
  for (const bool is_local : {true, false}) {
    reference::Program& program = case_.program;
    program.options.join = reference::Join::kByAll;
    program.options.hook = reference::Hook::kElsewhere;
    program.options.hook_result =
        is_local ? reference::HookResult::kLocal : reference::HookResult::kMean;
    program.steps[0].variants.resize(2, program.steps[0].variants[0]);
    program.steps[0].variants[1].forwards[0].nodes[0].kind = reference::Node::Kind::kSum;
    observe();
    ASSERT_EQ(expectation_.steps[0].ranks[1].error, reference::Error::kIncomplete);
    Failure failure;
    failure.code = Code::kAborted;
    failure.rank = failure.suspect = 0;
    failure.reported_by = 1;
    failure.pass = 0;
    failure.collective = "all_reduce";
    failure.sequence = 1;
    failure.detail = "what the test makes up";
    step(1).status = failure;
    step(1).poisoned = true;
    step(1).launched = false;
    EXPECT_EQ(verdict().ok(), is_local) << verdict().message;
  }
}

TEST_F(JudgeTest, AnExpectedErrorThatDoesNotComeIsSeen) {
  auto& expected = expectation_.steps[0];
  expected.any_error = true;
  expected.ranks[0].outcome = reference::Outcome::kOwnError;
  expected.ranks[0].error = reference::Error::kIncomplete;
  expected.ranks[0].parameters = {0};
  expect(Failing::kWrongError, "error");
}

TEST_F(JudgeTest, AReducerThatIsNotPoisonedAfterALaunchIsSeen) {
  case_.faults.faults = {{faults::Kind::kLinkReset, 1, 0, 0, 0}};
  observation_.fired.counts[static_cast<std::size_t>(faults::Kind::kLinkReset)] = 1;
  fail(0, Code::kPeerLost);
  Failure& failure = step(0).status.failure();
  failure.rank = failure.suspect = 1;
  failure.bucket = 0;
  failure.parameters = {"p0"};
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  step(0).poisoned = false;
  expect(Failing::kWrongError, "poison");
  observation_.recovers = false;  // it is never reset, so its state means nothing
  EXPECT_TRUE(verdict().ok()) << verdict().message;
}

// What must not be there at all is not told as what it leaves.
TEST_F(JudgeTest, AnErrorThatNothingExcusesIsToldBeforeTheStateAfterIt) {
  fail(0, Code::kPeerLost);
  step(0).poisoned = false;
  expect(Failing::kWrongError, "error");
  EXPECT_NE(verdict().message.find("what the test makes up"), std::string::npos);
  EXPECT_TRUE(verdict().might_succeed);
}

// To the shrinker these are two failures.
TEST_F(JudgeTest, AWrongErrorIsNotTheSameFailureAsAnErrorWithoutAReason) {
  fail(0, Code::kPeerLost);
  const Verdict without_reason = verdict();
  auto& expected = expectation_.steps[0];
  expected.any_error = true;
  expected.ranks[0].outcome = reference::Outcome::kOwnError;
  expected.ranks[0].error = reference::Error::kIncomplete;
  expected.ranks[0].parameters = {0};
  const Verdict wrong = verdict();
  EXPECT_EQ(wrong.failing, without_reason.failing);
  EXPECT_EQ(wrong.oracle, without_reason.oracle);
  EXPECT_FALSE(wrong.same_failure(without_reason));
}

TEST_F(JudgeTest, EndsAndLeaksHaveTheirOwnVerdicts) {
  observation_.end = Observation::End::kDeadlock;
  expect(Failing::kDeadlock, "progress");
  observation_.end = Observation::End::kLivelock;
  expect(Failing::kLivelock, "progress");
  observation_.end = Observation::End::kCrashed;
  expect(Failing::kCrash, "crash");
  observation_.end = Observation::End::kFinished;
  observation_.leaked_bytes = 8;
  expect(Failing::kLeak, "leak");
  observation_.leaked_bytes = 0;
  observation_.leaked_communicators = 1;
  expect(Failing::kLeak, "leak");
}

// If the system refuses something to the lane, that is no failure of the reducer, whatever errors
// the ranks return.
TEST_F(JudgeTest, WhatTheMachineLacksIsInconclusive) {
  observation_.end = Observation::End::kNotRun;
  expect(Failing::kInconclusive, "environment");
  observation_.end = Observation::End::kFinished;
  fail(0, Code::kTransport);
  observation_.ranks[0].lacking = "no file can be written";
  expect(Failing::kInconclusive, "environment");
  observation_.ranks[0].lacking.clear();
  expect(Failing::kWrongError, "error");
}

TEST_F(JudgeTest, ARankThatLeavesEarlyIsSeen) {
  observation_.ranks[1].finished = false;
  expect(Failing::kWrongError, "progress");
}

// Rank 0 sends rank 1 other bytes than it has (F3).
class JudgePayload : public JudgeTest {
 protected:
  void SetUp() override {
    JudgeTest::SetUp();
    case_.program.options.order = reference::Order::kRankOrder;
    case_.program.options.verify = true;
    faults::Fault fault;
    fault.kind = faults::Kind::kPayloadFlip;
    fault.peer = 1;
    fault.at = 600;
    case_.faults.faults = {fault};
    CaseRunner runner(LaneKind::kSim, Subject{});
    const Verdict found = runner.run(case_);
    ASSERT_TRUE(found.ok()) << found.message;
    observation_ = runner.observation();
    for (RankObservation& rank : observation_.ranks) rank.records.clear();
    expectation_ = Expected(reference::run(case_.program, reference::Contract::lockstep(),
                                           observation_.recoveries, observation_.ready_orders()));
    ASSERT_EQ(observation_.fired.counts[static_cast<std::size_t>(fault.kind)], 1u);
    for (const RankObservation& rank : observation_.ranks)
      ASSERT_EQ(rank.steps[0].status.code(), Code::kCorrupted);
  }
  // Of the step in which it happened, which ranks repeat then.
  ObservedStep& first(std::size_t rank) { return step(rank, 0); }
};

TEST_F(JudgePayload, F3AnErrorThatNamesTheSenderIsRight) {
  EXPECT_TRUE(verdict().ok()) << verdict().message;
}

TEST_F(JudgePayload, F3AnErrorThatNamesAnotherIsSeen) {
  for (const std::size_t rank : {0u, 1u}) {
    first(rank).status.failure().suspect = 1;
    expect(Failing::kWrongError, "error");
    EXPECT_NE(verdict().message.find("must name the sender"), std::string::npos);
    first(rank).status.failure().suspect = 0;
  }
  EXPECT_TRUE(verdict().ok());
}

TEST_F(JudgePayload, F3AnErrorThatDoesNotTellOfItIsSeen) {
  first(0).status.failure().code = Code::kTransport;
  expect(Failing::kWrongError, "error");
  EXPECT_NE(verdict().message.find("must say that a payload was changed"), std::string::npos);
}

TEST_F(JudgePayload, F7InTheGroupOfAnotherReducerALostPeerMayBeAllThatIsHeardOfIt) {
  for (const std::size_t rank : {0u, 1u}) {
    first(rank).status.failure().code = Code::kPeerLost;
    first(rank).status.failure().suspect = 1;
  }
  expect(Failing::kWrongError, "error");
  case_.program.options.group_each = true;
  case_.program.parameters.back().reducer = 1;
  EXPECT_TRUE(observation_.closes_silently);
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  first(0).status.failure().code = Code::kTransport;
  expect(Failing::kWrongError, "error");
  first(0).status.failure().code = Code::kPeerLost;
  observation_.closes_silently = false;  // as a group over Gloo, which tells the first cause
  expect(Failing::kWrongError, "error");
}

TEST_F(JudgePayload, F3WhatIsNotNoticedIsSeen) {
  // As if nothing had happened: both ranks went on with the bits that they should have.
  const Observation faulty = observation_;
  case_.faults.faults.clear();
  observe();
  observation_.fired = faulty.fired;
  faults::Fault fault;
  fault.kind = faults::Kind::kPayloadFlip;
  fault.peer = 1;
  case_.faults.faults = {fault};
  expect(Failing::kWrongError, "error");
  EXPECT_NE(verdict().message.find("it did not notice"), std::string::npos);
  observation_.fired = {};  // it changed nothing
  EXPECT_TRUE(verdict().ok()) << verdict().message;
}

}  // namespace
}  // namespace lockstep::properties
