// What an error says, what it leaves behind, and what is known afterwards: clauses P12, F1, F2, F4,
// F5, T1 and T2. comm/gloo/gloo_reducer_test.cc tests the same with sockets between the ranks.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <utility>

#include "reducer/failure_board.h"
#include "reducer/test_ranks.h"
#include "reducer/training_position.h"

namespace lockstep::testing {
namespace {

using ReducerFailure = ReducerTest;
using Names = std::vector<std::string>;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What a process group knows about the loss of rank 1.
Status loss() {
  Failure failure;
  failure.code = Code::kPeerLost;
  failure.suspect = 1;
  failure.sequence = 41;
  failure.collective = "all_reduce";
  failure.detail = "rank 1 closed its connection";
  return failure;
}

TEST_F(ReducerFailure, P12AnErrorBeforeAnyCollectiveLeavesTheReducerClean) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    rank_.undefine_grads();
    const Status status =
        rank_.backward(rank_.forward({{rank_.thrower({{p_, 0}, {q_, 0}}), 0}}), 1);
    ASSERT_EQ(status.code(), Code::kUserFailure);
    EXPECT_NE(status.to_string().find("the user's node threw"), std::string::npos);
    EXPECT_EQ(status.failure().rank, 0);
    EXPECT_EQ(status.failure().pass, 0);
    EXPECT_EQ(group_->sums(), 0);
    EXPECT_FALSE(group_->aborted);
    EXPECT_TRUE(parallel().poisoned().ok());
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 2).ok());
    EXPECT_EQ(first(p_), 2);
  }
}

// Makes a graph in which q, whose bucket is the first, is reached before a node throws.
std::vector<Edge> throws_late(TestRank& rank, const Ref<Parameter>& p, const Ref<Parameter>& q) {
  const auto thrower = rank.thrower({{p, 0}});
  return rank.forward({{rank.fan({{q, 0}, {thrower, 0}}), 0}});
}

TEST_F(ReducerFailure, P12AnErrorAfterACollectivePoisonsUntilResetAndTheFirstCauseStays) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    rank_.undefine_grads();
    const auto broken = group_;
    ASSERT_EQ(rank_.backward(throws_late(rank_, p_, q_), 1).code(), Code::kUserFailure);
    EXPECT_EQ(group_->sums(), 1);
    EXPECT_TRUE(broken->aborted);
    parallel().abort(Status(Code::kInvalidArgument, "a later cause"));
    EXPECT_EQ(parallel().poisoned().code(), Code::kUserFailure);
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_TRUE(rank_.forward_of({p_, q_}).empty());
      ASSERT_EQ(rank_.forward_status.code(), Code::kPoisoned);
      EXPECT_NE(rank_.forward_status.to_string().find("the user's node threw"), std::string::npos);
      EXPECT_EQ(rank_.forward_status.failure().rank, 0);
      EXPECT_EQ(rank_.forward_status.failure().pass, 0);
    }
    EXPECT_EQ(broken->sums(), 1);
    ASSERT_TRUE(parallel().reset(membership()).ok());
    rank_.undefine_grads();
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 5).ok());
    EXPECT_EQ(first(p_), 5);
  }
}

TEST_F(ReducerFailure, P12OutputsArmedBeforeALocalBackwardAbortedRefuseTheirBackward) {
  create(false);
  const auto armed = rank_.forward_of({p_, q_});
  parallel().abort(Status(Code::kUserFailure, "the data loader ended"));
  EXPECT_EQ(rank_.backward(armed, 1).code(), Code::kUserFailure);
  EXPECT_FALSE(p_->grad().defined());
  EXPECT_TRUE(parallel().poisoned().failure().definite);
}

TEST_F(ReducerFailure, F5_10WhoGivesUpForAnotherRanksCauseIsTheCauseAndSuspectsThatOne) {
  create(false);
  Status cause(Code::kTransport, "the transport of this rank failed");
  cause.failure().rank = 1;
  parallel().abort(cause);
  const Failure& failure = parallel().poisoned().failure();
  EXPECT_EQ(failure.rank, 0);
  EXPECT_EQ(failure.suspect, 1);
}

// Over NCCL. Rank 1 had lost a peer, did not know which one, and gave up another group because of
// that.
TEST_F(ReducerFailure, F2WhoGaveUpForALostPeerWithoutANameIsNotSuspected) {
  create(false);
  Failure cause;
  cause.code = Code::kPeerLost;
  cause.rank = 1;
  cause.definite = true;
  parallel().abort(Status(cause));
  EXPECT_EQ(parallel().poisoned().failure().rank, 0);
  EXPECT_EQ(parallel().poisoned().failure().suspect, kNone);
}

TEST_F(ReducerFailure, P12ALocalBackwardThatFailsIsNoBusinessOfTheReducer) {
  create(false);
  {
    const DataParallel::NoSync no_sync(parallel());
    const auto outputs = rank_.forward({{rank_.thrower({{p_, 0}, {q_, 0}}), 0}});
    ASSERT_EQ(rank_.backward(outputs, 1).code(), Code::kUserFailure);
  }
  EXPECT_TRUE(parallel().poisoned().ok());
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 2).ok());
  EXPECT_EQ(first(p_), 2);
}

TEST_F(ReducerFailure, P12AGroupThatRefusesToStartPoisonsEvenIfNothingWasLaunched) {
  create(false);
  group_->failure = loss();
  EXPECT_EQ(rank_.backward(rank_.forward_of({p_, q_}), 1).code(), Code::kPeerLost);
  EXPECT_FALSE(parallel().poisoned().ok());
  EXPECT_TRUE(group_->aborted);
}

// As a group does that goes through host memory, and gets none.
TEST_F(ReducerFailure, P12MemoryThatAGroupRefusesForACollectiveThatItNamesLeavesTheReducerUsable) {
  create(false);
  Failure refused;
  refused.code = Code::kOutOfMemory;
  refused.collective = "all_reduce";
  refused.sequence = 0;
  group_->failure = refused;
  EXPECT_EQ(rank_.backward(rank_.forward_of({p_, q_}), 1).code(), Code::kOutOfMemory);
  EXPECT_TRUE(parallel().poisoned().ok());
  EXPECT_FALSE(group_->aborted);
}

TEST_F(ReducerFailure, F2_1AFailureOfACollectiveHasEveryField) {
  for (const bool at_start : {false, true}) {
    create(false, {1u << 20});  // p and q are in one bucket.
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
    (at_start ? group_->failure : group_->late_failure) = loss();
    group_->sums_before_failure = 1;
    const Status status = rank_.backward(rank_.forward_of({p_, q_}), 1);
    ASSERT_EQ(status.code(), Code::kPeerLost) << status.to_string();
    const Failure& failure = status.failure();
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.reported_by, 0);
    EXPECT_EQ(failure.pass, 1);
    EXPECT_EQ(failure.bucket, 0);
    EXPECT_EQ(failure.parameters, (Names{"p", "q"}));
    EXPECT_EQ(failure.collective, "all_reduce");
    EXPECT_EQ(failure.sequence, 41);
    EXPECT_EQ(failure.suspect, 1);
    EXPECT_NE(failure.detail.find("closed its connection"), std::string::npos);
    for (const char* part : {"rank 1", "pass 1", "bucket 0", "all_reduce", "sequence 41",
                             "suspected peer 1", "parameters p q"})
      EXPECT_NE(status.to_string().find(part), std::string::npos) << status.to_string();
  }
}

// The group is dead before this rank gets to a collective, and knows no rank to blame.
TEST_F(ReducerFailure, F2ACollectiveThatCannotBeStartedIsNamed) {
  for (const int started : {0, 2}) {  // The first bucket, and the usage map.
    create(true);
    rank_.undefine_grads();
    Failure lost;
    lost.code = Code::kPeerLost;
    lost.suspect = 1;
    group_->failure = lost;
    group_->sums_before_failure = started;
    const Status status = rank_.backward(rank_.forward_of({p_, q_}), 1);
    ASSERT_EQ(status.code(), Code::kPeerLost) << status.to_string();
    EXPECT_EQ(status.failure().collective, "all_reduce");
    EXPECT_EQ(status.failure().pass, 0);
    EXPECT_EQ(status.failure().bucket, started == 0 ? 0 : kNone);
  }
}

TEST_F(ReducerFailure, F2_2AFailureOfTheUsageMapNamesThePassAndNoBucket) {
  create(true);
  group_->late_failure = loss();
  group_->sums_before_failure = 2;  // Both buckets succeed.
  const Status status = rank_.backward(rank_.forward_of({p_, q_}), 1);
  ASSERT_EQ(status.code(), Code::kPeerLost) << status.to_string();
  EXPECT_EQ(status.failure().pass, 0);
  EXPECT_EQ(status.failure().bucket, kNone);
  EXPECT_FALSE(parallel().poisoned().ok());
}

TEST_F(ReducerFailure, F1AGroupThatNeverAnswersIsGivenUpAtTheDeadline) {
  create(false);
  group_->limit = milliseconds(20);
  group_->stalls = true;
  const auto deadline = platform::Deadline::in(seconds(20));
  const Status status = rank_.backward(rank_.forward_of({p_, q_}), 1);
  EXPECT_FALSE(deadline.passed());
  ASSERT_EQ(status.code(), Code::kTimeout) << status.to_string();
  EXPECT_EQ(status.failure().rank, 1);  // It is the only rank that wrote no report of its own.
  EXPECT_EQ(status.failure().suspect, 1);
  EXPECT_EQ(status.failure().bucket, 0);
  EXPECT_EQ(status.failure().pass, 0);
  EXPECT_EQ(group_->in_flight(), 0u);
}

TEST_F(ReducerFailure, F1_1ConstructionAndResetEndAtTheDeadlineToo) {
  create(false);
  for (const bool reset : {true, false}) {
    Membership silent = membership();
    group_->limit = milliseconds(20);
    group_->stalls_gathering = true;
    const auto deadline = platform::Deadline::in(seconds(20));
    const Status status =
        reset ? parallel().reset(silent) : rank_.create(silent, quick_options(false));
    EXPECT_FALSE(deadline.passed());
    EXPECT_EQ(status.code(), Code::kTimeout) << status.to_string();
    EXPECT_EQ(group_->in_flight(), 0u);
  }
}

// A collective failed in the group's own thread, which closed the connections at once, and the
// backward takes long: peers that wait for a report must not take this rank for a silent one.
TEST_F(ReducerFailure, F2_5PeersHearOfAFailedCollectiveWhileTheBackwardGoesOn) {
  const auto store = std::make_shared<HashStore>();
  group_ = std::make_shared<ScriptedGroup>(size_);
  ASSERT_TRUE(rank_.create({group_, store}, quick_options(false)).ok());
  rank_.undefine_grads();
  Status found = loss();
  found.failure().code = Code::kCorrupted;
  found.failure().rank = 0;
  found.failure().definite = true;
  group_->late_failure = found;
  Failure heard;
  const auto peer = rank_.node({{p_, 0}}, [&](auto in, auto out, const auto&) {
    Failure own;
    own.code = Code::kPeerLost;
    own.suspect = 0;
    heard = FailureBoard(store, 1, 2).settle(own, {});
    out[0] = in[0];
    return Status();
  });
  const Status status = rank_.backward(rank_.forward({{rank_.fan({{q_, 0}, {peer, 0}}), 0}}), 1);
  EXPECT_EQ(heard.code, Code::kCorrupted) << heard.to_string();
  EXPECT_EQ(heard.suspect, 1);
  EXPECT_EQ(status.code(), Code::kCorrupted) << status.to_string();
  EXPECT_EQ(status.failure().parameters, Names{"q"});
}

TEST_F(ReducerFailure, F2ACollectiveThatFailedBeforeANodeThrowsIsTheFirstCause) {
  create(false);
  rank_.undefine_grads();
  group_->late_failure = loss();
  const Status status = rank_.backward(throws_late(rank_, p_, q_), 1);
  ASSERT_EQ(status.code(), Code::kPeerLost) << status.to_string();
  EXPECT_EQ(status.failure().suspect, 1);
  ASSERT_EQ(status.failure().later.size(), 1u);
  EXPECT_NE(status.failure().later[0].find("the user's node threw"), std::string::npos);
}

// A collective that fails while the rank reports an error of its own does not take its place.
TEST_F(ReducerFailure, F2WhatFailsWhileARankReportsItsOwnErrorIsNoCauseForItsPeers) {
  class InterruptedStore final : public PrefixStore {
   public:
    InterruptedStore(std::shared_ptr<Store> inner, std::function<void()> interrupt)
        : PrefixStore("", std::move(inner)), interrupt_(std::move(interrupt)) {}
    Result<bool> set(std::string_view key, std::string_view value) override {
      if (auto interrupt = std::exchange(interrupt_, {})) interrupt();
      return PrefixStore::set(key, value);
    }

   private:
    std::function<void()> interrupt_;
  };
  const auto store = std::make_shared<HashStore>();
  group_ = std::make_shared<ScriptedGroup>(size_);
  const auto group = group_;
  const auto interrupted =
      std::make_shared<InterruptedStore>(store, [group] { group->abort(loss()); });
  ASSERT_TRUE(rank_.create({group_, interrupted}, quick_options(false)).ok());
  rank_.undefine_grads();
  group_->stalls = true;
  const Status status = rank_.backward(throws_late(rank_, p_, q_), 1);
  ASSERT_EQ(status.code(), Code::kUserFailure) << status.to_string();
  Failure own;
  own.code = Code::kPeerLost;
  own.suspect = 0;
  const Failure heard = FailureBoard(interrupted, 1, 2).settle(own, {});
  EXPECT_EQ(heard.code, Code::kUserFailure) << heard.to_string();
}

// What the group of a peer reports has no names of parameters.
TEST_F(ReducerFailure, F2TheBucketThatAPeerNamesHasItsParametersHere) {
  const auto store = std::make_shared<HashStore>();
  group_ = std::make_shared<ScriptedGroup>(size_);
  ASSERT_TRUE(rank_.create({group_, store}, quick_options(false)).ok());
  rank_.undefine_grads();
  Failure report = loss().failure();
  report.code = Code::kCorrupted;
  report.definite = true;
  report.rank = 1;
  report.pass = 0;
  report.bucket = 1;
  FailureBoard(store, 1, size_).publish(report);
  group_->late_failure = loss();
  const Status status = rank_.backward(rank_.forward_of({p_, q_}), 1);
  ASSERT_EQ(status.code(), Code::kCorrupted) << status.to_string();
  EXPECT_EQ(status.failure().bucket, 1);
  EXPECT_EQ(status.failure().parameters, Names{"p"});
}

TEST(ReducerSurvivors, F2_4EveryRankNamesTheSameFirstCauseAndAttachesWhatItSaw) {
  const auto memberships = local_memberships(3);
  std::vector<Status> statuses(3);
  on_ranks(3, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank;
    const auto p = rank.add("p");
    const auto q = rank.add("q");
    ReducerOptions options = quick_options(false);
    options.failure_grace = seconds(10);
    ASSERT_TRUE(rank.create(memberships[i], options).ok());
    ASSERT_TRUE(rank.backward(rank.forward_of({p, q}), 1).ok());
    const auto outputs = r == 2 ? throws_late(rank, p, q) : rank.forward_of({p, q});
    statuses[i] = rank.backward(outputs, 1);
    EXPECT_EQ(rank.parallel->poisoned().code(), statuses[i].code());
  });
  for (int r = 0; r < 3; ++r) {
    const Status& status = statuses[static_cast<std::size_t>(r)];
    ASSERT_EQ(status.code(), Code::kUserFailure) << status.to_string();
    const Failure& failure = status.failure();
    EXPECT_EQ(failure.rank, 2);
    EXPECT_EQ(failure.reported_by, r);
    EXPECT_EQ(failure.pass, 1);
    EXPECT_TRUE(failure.definite);
    EXPECT_NE(failure.detail.find("the user's node threw"), std::string::npos);
    if (r == 2) continue;
    EXPECT_EQ(failure.collective, "all_reduce");
    EXPECT_GE(failure.sequence, 0);
    EXPECT_NE(failure.bucket, kNone);
    EXPECT_FALSE(failure.parameters.empty());
    ASSERT_EQ(failure.later.size(), 1u);
    EXPECT_NE(failure.later[0].find("rank 2 left the group"), std::string::npos);
  }
}

// A cause that concerns one parameter, and no bucket. The collective in which this rank noticed it
// belongs to another bucket.
TEST(ReducerSurvivors, F2ThePeersBucketIsNotNamedWithTheParametersOfTheCause) {
  const auto settled_of = [](const Names& parameters) {
    Failure cause;
    cause.code = Code::kUserFailure;
    cause.rank = 1;
    cause.definite = true;
    cause.parameters = parameters;
    auto store = std::make_shared<HashStore>();
    FailureBoard(store, 1, 2).publish(cause);
    Failure own = loss().failure();
    own.bucket = 3;
    own.parameters = {"p", "q"};
    Failure settled = FailureBoard(store, 0, 2).settle(own, seconds(10));
    // Reducer::fail() names them, too, before it reports.
    Layout layout;
    layout.buckets.resize(4);
    layout.buckets[3].members = {{0}, {1}};
    const std::vector<ParameterInfo> infos = {{"p"}, {"q"}};
    name_parameters({.rank = 0, .size = 2, .layout = layout, .parameters = infos}, settled);
    return settled;
  };
  const Failure of_one = settled_of({"x"});
  EXPECT_EQ(of_one.parameters, Names{"x"});
  EXPECT_EQ(of_one.bucket, kNone);
  const Failure of_none = settled_of({});
  EXPECT_EQ(of_none.parameters, (Names{"p", "q"}));
  EXPECT_EQ(of_none.bucket, 3);
  EXPECT_EQ(of_none.collective, "all_reduce");
  EXPECT_EQ(of_none.sequence, 41);
}

TEST(ReducerSurvivors, F2ACauseWithThousandsOfParametersReachesThePeers) {
  constexpr int kMany = 5000;
  Failure cause;
  cause.code = Code::kIncomplete;
  cause.rank = 1;
  cause.definite = true;
  for (int i = 0; i < kMany; ++i) cause.parameters.push_back("p" + std::to_string(i));
  auto store = std::make_shared<HashStore>();
  FailureBoard(store, 1, 2).publish(cause);
  Failure own;
  own.code = Code::kPeerLost;
  const Failure settled = FailureBoard(store, 0, 2).settle(own, seconds(10));
  EXPECT_EQ(settled.code, Code::kIncomplete) << settled.to_string();
  ASSERT_FALSE(settled.parameters.empty());
  EXPECT_EQ(settled.parameters[0], "p0");
}

// What each rank takes for the first cause, by rank, where each reports what report_of() returns.
std::vector<Failure> settled_by_all(int size, const std::function<Failure(int rank)>& report_of) {
  auto store = std::make_shared<HashStore>();
  for (int rank = 0; rank < size; ++rank) FailureBoard(store, rank, size).publish(report_of(rank));
  std::vector<Failure> settled;
  for (int rank = 0; rank < size; ++rank)
    settled.push_back(FailureBoard(store, rank, size).settle(report_of(rank), seconds(10)));
  return settled;
}

// The report of a rank whose first all-reduce failed.
Failure report_with(Code code, int rank, int suspect) {
  Failure report;
  report.code = code;
  report.rank = rank;
  report.suspect = suspect;
  report.pass = report.sequence = 0;
  report.collective = "all_reduce";
  return report;
}

// The link between ranks 2 and 3 broke, and ranks 0 and 1 wait for those behind them.
TEST(ReducerSurvivors, F2OfABrokenLinkOneOfItsEndsIsSuspected) {
  // Rank 3 may also notice first that rank 0 closed its connections.
  for (const std::array<int, 4> suspects : {std::array{1, 2, 3, 2}, std::array{1, 2, 3, 0}}) {
    const auto report_of = [&](int rank) {
      const bool is_end = rank == 2 || (rank == 3 && suspects[3] == 2);
      const int suspect = suspects[static_cast<std::size_t>(rank)];
      return report_with(is_end ? Code::kTransport : Code::kPeerLost, suspect, suspect);
    };
    for (const Failure& settled : settled_by_all(4, report_of)) {
      EXPECT_EQ(settled.code, Code::kTransport) << settled.to_string();
      EXPECT_EQ(settled.rank, 3) << settled.to_string();
      EXPECT_EQ(settled.suspect, 3) << settled.to_string();
    }
  }
}

// The link from rank 2 to rank 0 broke. Rank 2 alone saw it; it closed its connections, and so did
// rank 1 because of that, and the suspicions run in a circle of three.
TEST(ReducerSurvivors, F2InACircleTheRankWhoseLinkBrokeIsBelieved) {
  const auto report_of = [](int rank) {
    const int next = (rank + 1) % 3;
    return report_with(rank < 2 ? Code::kPeerLost : Code::kTransport, next, next);
  };
  for (const Failure& settled : settled_by_all(3, report_of)) {
    EXPECT_EQ(settled.code, Code::kTransport) << settled.to_string();
    EXPECT_EQ(settled.suspect, 0) << settled.to_string();
  }
}

// The wait of rank 1 ended before its group could say whom it waited for.
TEST(ReducerSurvivors, F2_6ARankThatSuspectsNobodyAndHoldsUpOthersIsNamed) {
  const auto report_of = [](int rank) {
    return rank == 1 ? report_with(Code::kTimeout, kNone, kNone)
                     : report_with(Code::kTimeout, rank, 1);
  };
  for (const Failure& settled : settled_by_all(3, report_of)) {
    EXPECT_EQ(settled.rank, 1) << settled.to_string();
    EXPECT_EQ(settled.suspect, 1) << settled.to_string();
  }
}

// No packet of rank 1 arrives anywhere, but the store is elsewhere: all others suspect rank 1,
// which suspects its neighbour, and has made as much progress as anybody.
TEST(ReducerSurvivors, F2ARankThatNobodyCanReachIsNotBelieved) {
  const auto report_of = [](int rank) {
    return report_with(Code::kTimeout, rank, rank == 1 ? 2 : 1);
  };
  for (const int size : {3, 4, 10})
    for (const Failure& settled : settled_by_all(size, report_of)) {
      EXPECT_EQ(settled.suspect, 1) << settled.to_string();
      EXPECT_EQ(settled.rank, 1) << settled.to_string();
    }
}

// A report in the store may be damaged, or come from anybody.
TEST(ReducerSurvivors, F2_11AReportThatCannotBeIsNoCauseAndIsTold) {
  Failure forged;
  forged.code = Code::kTimeout;
  forged.rank = 1 << 30;
  forged.suspect = -77;
  forged.pass = -5;
  forged.bucket = 1 << 29;
  forged.definite = true;
  forged.reported_by = 1;
  Failure of_another = forged;  // Its numbers are valid, but it lies under the key of another rank.
  of_another.rank = of_another.reported_by = of_another.suspect = 0;
  of_another.pass = of_another.bucket = 0;
  const std::string damaged = encode(of_another).substr(0, 50);
  for (const std::string& bytes :
       {encode(forged), encode(of_another), damaged, std::string(100000, '\x7f'), std::string()}) {
    auto store = std::make_shared<HashStore>();
    ASSERT_TRUE(store->set("failure/1", bytes).has_value());
    Failure own = loss().failure();
    own.rank = 1;
    const Failure settled = FailureBoard(store, 0, 2).settle(own, seconds(10));
    EXPECT_EQ(settled.code, Code::kPeerLost);
    EXPECT_EQ(settled.rank, 1);
    EXPECT_EQ(settled.reported_by, 0);
    ASSERT_EQ(settled.later.size(), 1u);
    EXPECT_NE(settled.later[0].find("rank 1 left a report of a failure that cannot be read"),
              std::string::npos);
  }
}

// Rank 1 saw rank 2 leave, whose report is damaged, and rank 0 is late with its own.
TEST(ReducerSurvivors, F2WhoLeftADamagedReportIsSuspectedAndNotALateRank) {
  auto store = std::make_shared<HashStore>();
  ASSERT_TRUE(store->set("failure/2", std::string()));
  Failure own;
  own.code = Code::kPeerLost;
  own.rank = own.suspect = 2;
  own.collective = "all_reduce";
  const Failure settled = FailureBoard(store, 1, 3).settle(own, milliseconds(10));
  EXPECT_EQ(settled.rank, 2) << settled.to_string();
  EXPECT_EQ(settled.suspect, 2) << settled.to_string();
}

// Rank 0 saw rank 1 leave, which had seen rank 2 leave. What rank 2 had to say is damaged.
TEST(ReducerSurvivors, F2ARankWhoseReportIsDamagedIsSuspectedLikeASilentOne) {
  auto store = std::make_shared<HashStore>();
  ASSERT_TRUE(store->set("failure/2", "torn").has_value());
  std::vector<Failure> reports;
  for (int rank = 0; rank < 2; ++rank) {
    Failure report = loss().failure();
    report.reported_by = rank;
    report.rank = report.suspect = rank + 1;
    FailureBoard(store, rank, 3).publish(report);
    reports.push_back(report);
  }
  for (int rank = 0; rank < 2; ++rank) {
    const Failure settled =
        FailureBoard(store, rank, 3).settle(reports[static_cast<std::size_t>(rank)], seconds(10));
    EXPECT_EQ(settled.rank, 2) << settled.to_string();
    EXPECT_EQ(settled.suspect, 2) << settled.to_string();
  }
}

TEST_F(ReducerFailure, F2_10ARankThatTheGroupDoesNotHaveIsNotNamed) {
  create(false);
  Failure cause;
  cause.code = Code::kUserFailure;
  cause.rank = 1 << 30;
  cause.suspect = 99;
  cause.pass = -5;
  parallel().abort(Status(cause));
  EXPECT_EQ(parallel().poisoned().failure().rank, 0);
  EXPECT_EQ(parallel().poisoned().failure().suspect, kNone);
  EXPECT_EQ(parallel().poisoned().failure().pass, 0);
}

// NCCL says that a peer is lost, and not which one; a rank that was done before writes nothing
// either.
TEST(ReducerSurvivors, F2OfSeveralThatAreSilentNoneIsBlamedForALostPeerWithoutASuspicion) {
  const auto settled_of = [](int suspected_by_0, bool has_1_written, Code code = Code::kPeerLost) {
    auto store = std::make_shared<HashStore>();
    Failure own;
    own.code = code;
    own.rank = code == Code::kTimeout ? 0 : kNone;  // The group of NCCL reports it so.
    own.reported_by = 0;
    own.suspect = suspected_by_0;
    Failure other = own;
    other.reported_by = 1;
    other.suspect = kNone;
    if (has_1_written) FailureBoard(store, 1, 3).publish(other);
    return FailureBoard(store, 0, 3).settle(own, milliseconds(5));
  };
  EXPECT_EQ(settled_of(kNone, false).rank, kNone);
  EXPECT_EQ(settled_of(kNone, false).suspect, kNone);
  EXPECT_EQ(settled_of(2, false).rank, 2);
  EXPECT_EQ(settled_of(kNone, true).rank, 2);
  EXPECT_EQ(settled_of(kNone, true).suspect, 2);
  // A rank that times out waited for ranks that never appeared, so one of these is the cause (P8).
  EXPECT_EQ(settled_of(kNone, false, Code::kTimeout).rank, 1);
  EXPECT_EQ(settled_of(kNone, true, Code::kTimeout).rank, 2);
}

// Rank 0 waited, and NCCL does not say for whom. Rank 1, which is alive, learned from rank 0 that
// the group ended. Rank 2 is silent.
TEST(ReducerSurvivors, F2OfAWaitWithoutANameTheSilentRankIsTheCauseAndNotWhoWaited) {
  const auto settled_by = [](int rank, Code code_of_1, int sequence_of_0 = 0) {
    auto store = std::make_shared<HashStore>();
    std::array<Failure, 2> reports;
    for (int r = 0; r < 2; ++r) {
      Failure& report = reports.at(static_cast<std::size_t>(r));
      report.code = r == 0 ? Code::kTimeout : code_of_1;
      report.rank = 0;
      report.suspect = r == 0 ? kNone : 0;
      report.sequence = r == 0 ? sequence_of_0 : 0;
      report.reported_by = r;
      report.collective = "all_reduce";
      FailureBoard(store, r, 3).publish(report);
    }
    return FailureBoard(store, rank, 3)
        .settle(reports.at(static_cast<std::size_t>(rank)), milliseconds(5));
  };
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(settled_by(rank, Code::kAborted).rank, 2);
    EXPECT_EQ(settled_by(rank, Code::kAborted).suspect, 2);
    EXPECT_EQ(settled_by(rank, Code::kTimeout).rank, 0) << "rank 1 waited for rank 0";
    EXPECT_EQ(settled_by(rank, Code::kAborted, 1).rank, 2) << "rank 1 waited in an earlier one";
  }
}

// Rank 1 hears nobody, and its peers wait for each other: of such a circle, what the rank that is
// cut off says of itself comes first, although rank 0 is suspected as often.
TEST(ReducerSurvivors, F2ARankThatNobodyAnswersIsTheCauseOfACircle) {
  const auto report_of = [](int rank) {
    Failure report;
    report.code = Code::kTimeout;
    report.rank = report.reported_by = rank;
    report.suspect = rank == 1 ? 1 : rank == 0 ? 2 : 0;
    report.collective = "all_reduce";
    return report;
  };
  for (const Failure& settled : settled_by_all(3, report_of)) {
    EXPECT_EQ(settled.rank, 1) << settled.to_string();
    EXPECT_EQ(settled.suspect, 1) << settled.to_string();
  }
  // If the others only heard from rank 1, they may all have hung, so nobody is suspected.
  const auto heard_from_1 = [&](int rank) {
    Failure report = report_of(1);
    report.reported_by = rank;
    return report;
  };
  for (const Failure& settled : settled_by_all(3, heard_from_1))
    EXPECT_EQ(settled.suspect, kNone) << settled.to_string();
}

// Runs one step on every rank of new groups, and checks it against the mean of the ranks'
// gradients.
void expect_exact_step(TestRank& rank, int r, int ranks) {
  rank.undefine_grads();
  const auto outputs = rank.forward_of(rank.parameters);
  ASSERT_TRUE(rank.forward_status.ok()) << rank.forward_status.to_string();
  const Status status = rank.backward(outputs, {3.0 * (r + 1), -1});
  ASSERT_TRUE(status.ok()) << status.to_string();
  double sum = 0;
  double ones = 0;
  for (int i = 0; i < ranks; ++i) {
    sum =
        rounded(DType::kFloat32,
                sum + rounded(DType::kFloat32, 3.0 * (i + 1) * factor_of(DType::kFloat32, ranks)));
    ones = rounded(DType::kFloat32, ones - factor_of(DType::kFloat32, ranks));
  }
  for (const auto& p : rank.parameters) EXPECT_EQ(values_of(p->grad()), (Values{sum, ones}));
}

TEST(ReducerSurvivors, F4AfterAFailureAResetWithTheSameOrFewerRanksGivesExactSteps) {
  for (const bool dynamic : {false, true}) {
    for (const int survivors : {3, 2}) {
      const auto memberships = local_memberships(3);
      const auto later = local_memberships(survivors);
      on_ranks(3, [&](int r) {
        const auto i = static_cast<std::size_t>(r);
        TestRank rank;
        const auto p = rank.add("p");
        const auto q = rank.add("q");
        ASSERT_TRUE(rank.create(memberships[i], quick_options(dynamic)).ok());
        expect_exact_step(rank, r, 3);
        const auto throwing = [&] { return throws_late(rank, p, q); };
        ASSERT_FALSE(rank.backward(r == 0 ? throwing() : rank.forward_of({p, q}), 1).ok());
        const int new_rank = r - (3 - survivors);  // Of two survivors, rank 1 becomes rank 0.
        if (new_rank < 0) return;
        const Status reset = rank.parallel->reset(later[static_cast<std::size_t>(new_rank)]);
        ASSERT_TRUE(reset.ok()) << reset.to_string();
        EXPECT_TRUE(rank.parallel->poisoned().ok());
        for (int step = 0; step < 2; ++step) expect_exact_step(rank, new_rank, survivors);
        const auto twice = rank.forward_of({p, q});
        ASSERT_TRUE(rank.backward(twice, 1, true).ok());
        EXPECT_EQ(rank.backward(twice, 1).failure().rank, new_rank);
        // Passes count from 0 again.
        EXPECT_EQ(rank.parallel->reducer().trace().entries()[0].pass, 0);
      });
    }
  }
}

TEST_F(ReducerFailure, F4AResetInTheMiddleOfAPassEndsWhatIsInFlightAndTheNextStepIsExact) {
  create(false);
  const auto before = group_;
  group_->stalls = true;
  const auto outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(rank_.backward({outputs[1]}, 1).ok());
  ASSERT_EQ(group_->in_flight(), 1u);
  ASSERT_TRUE(parallel().reset(membership()).ok());
  EXPECT_EQ(before->in_flight(), 0u);
  EXPECT_EQ(rank_.backward({outputs[0]}, 1).code(), Code::kSecondBackward);
  rank_.undefine_grads();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 4).ok());
  EXPECT_EQ(first(p_), 4);
}

TEST_F(ReducerFailure, F4AResetInTheMiddleOfAPassNeedsANewGroup) {
  create(false);
  const Membership same{group_, std::make_shared<HashStore>()};
  group_->stalls = true;
  const auto outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(rank_.backward({outputs[1]}, 1).ok());
  (void)parallel().reset(same);  // A real group refuses collectives after its end.
  EXPECT_TRUE(group_->aborted);
  EXPECT_EQ(group_->in_flight(), 0u);
}

TEST_F(ReducerFailure, P17AResetToAGroupThatCannotReduceADtypeIsRefused) {
  create(false);
  Membership other = membership();
  group_->refused_dtype = DType::kFloat32;
  const Status status = parallel().reset(other);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.to_string().find("cannot reduce float32"), std::string::npos);
  EXPECT_EQ(group_->started.size(), 2u);  // The refusal, and its reason.
}

TEST_F(ReducerFailure, F4AResetThatFailsCanBeTriedAgain) {
  create(false);
  const Membership refused = membership();
  group_->failure = group_->refusal = loss();
  EXPECT_EQ(parallel().reset(refused).code(), Code::kPeerLost);
  (void)rank_.forward_of({p_, q_});
  EXPECT_EQ(rank_.forward_status.code(), Code::kPoisoned);
  ASSERT_TRUE(parallel().reset(membership()).ok());
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 4).ok());
  EXPECT_EQ(first(p_), 4);
}

// Brings a pass to some point, where the reducer is destroyed. The outputs live on.
struct Point {
  const char* name;
  std::function<std::vector<Edge>(TestRank&, ScriptedGroup&)> reach;
  double p = 0;  // The gradient of p afterwards; 0 means none.
};

const Point kPoints[] = {
    {"before any forward", [](TestRank&, ScriptedGroup&) { return std::vector<Edge>(); }},
    {"armed", [](TestRank& rank, ScriptedGroup&) { return rank.forward_of(rank.parameters); }},
    {"a bucket in flight",
     [](TestRank& rank, ScriptedGroup& group) {
       group.stalls = true;
       auto outputs = rank.forward_of(rank.parameters);
       EXPECT_TRUE(rank.backward({outputs[1]}, 1).ok());
       EXPECT_EQ(group.in_flight(), 1u);
       return outputs;
     }},
    {"open, nothing launched",
     [](TestRank& rank, ScriptedGroup&) {
       auto outputs = rank.forward_of(rank.parameters);
       EXPECT_TRUE(rank.backward({outputs[0]}, 1).ok());
       return outputs;
     },
     1},
    {"complete",
     [](TestRank& rank, ScriptedGroup&) {
       auto outputs = rank.forward_of(rank.parameters);
       EXPECT_TRUE(rank.backward(outputs, 2, true).ok());
       return outputs;
     },
     2},
    {"poisoned",
     [](TestRank& rank, ScriptedGroup& group) {
       group.failure = loss();
       auto outputs = rank.forward_of(rank.parameters);
       EXPECT_FALSE(rank.backward(outputs, 2, true).ok());
       rank.parameters[0]->undefine_grad();
       return outputs;
     }},
};

TEST(ReducerDestruction, F5_1AtAnyPointLeavesNoHookNoWorkAndNoMemory) {
  for (const Point& point : kPoints) {
    SCOPED_TRACE(point.name);
    TestRank rank;
    const auto p = rank.add("p");
    const auto q = rank.add("q");
    const auto references = p->use_count();
    auto group = std::make_shared<ScriptedGroup>();
    auto store = std::make_shared<HashStore>();
    ASSERT_TRUE(rank.create({group, store}, quick_options(false)).ok());
    const auto outputs = point.reach(rank, *group);
    const auto deadline = platform::Deadline::in(seconds(20));
    rank.parallel.reset();
    EXPECT_FALSE(deadline.passed());
    EXPECT_EQ(group->in_flight(), 0u);
    EXPECT_EQ(group.use_count(), 1);
    EXPECT_EQ(store.use_count(), 1);
    EXPECT_EQ(p->grad().defined() ? values_of(p->grad())[0] : 0, point.p);  // Results stay.
    const int sums = group->sums();
    // A hook that was left here would be called.
    EXPECT_TRUE(rank.backward({{p, 0}, {q, 0}}, 1).ok());
    EXPECT_EQ(group->sums(), sums);
    for (const Edge& output : outputs) EXPECT_FALSE(rank.backward({output}, 1, true).ok());
    rank.undefine_grads();
    EXPECT_EQ(rank.devices[0].allocated_bytes(), 0u);
    // An output that is alive holds it, and nobody else does.
    EXPECT_LE(p->use_count(), references + 1);
  }
}

TEST_F(ReducerFailure, T1TheTraceSaysWhatEachCollectiveWas) {
  ParameterSpec half;
  half.dtype = DType::kFloat16;
  const auto h = rank_.add("h", half);
  create(true, {1u << 20});
  const auto step = [&] {
    const auto roots = rank_.forward_of({p_, q_, h});
    const Tensor ones = rank_.tensor({1, 1});
    const std::vector<Tensor> gradients = {ones, ones, rank_.tensor({1, 1}, DType::kFloat16)};
    return rank_.engine.backward(roots, gradients, false);
  };
  ASSERT_TRUE(step().ok());
  group_->late_failure = loss();
  group_->sums_before_failure = group_->sums() + 1;
  ASSERT_FALSE(step().ok());
  const Reducer& reducer = parallel().reducer();
  EXPECT_EQ(reducer.trace().to_string(reducer.layout(), reducer.parameter_infos()),
            "#1 pass 0 all_reduce bucket 0 (h) 2 x float16, completed\n"
            "#2 pass 0 all_reduce bucket 1 (p q) 18 x float32, completed\n"
            "#3 pass 0 all_reduce usage map 3 x int32, completed\n"
            "#4 pass 1 all_reduce bucket 0 (h) 2 x float16, completed\n"
            "#5 pass 1 all_reduce bucket 1 (p q) 18 x float32, failed\n"
            "#6 pass 1 all_reduce usage map 3 x int32, in flight\n");
  const TraceEntry entry = reducer.trace().entries()[1];
  EXPECT_EQ(entry.bytes(), 72u);
  EXPECT_GT(entry.launched.count(), 0);
  EXPECT_GE(entry.completed, entry.launched);
}

TEST_F(ReducerFailure, T1OnlyTheLastCollectivesAreKept) {
  ReducerOptions options = quick_options(false);
  options.trace_capacity = 3;
  ASSERT_TRUE(rank_.create(membership(), options).ok());
  for (int pass = 0; pass < 3; ++pass)
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
  std::vector<std::int64_t> kept;
  for (const TraceEntry& entry : parallel().reducer().trace().entries())
    kept.push_back(entry.sequence);
  EXPECT_EQ(kept, (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_EQ(parallel().reducer().trace().entries(5).size(), 1u);
}

TEST(ReducerTrace, T1T2TracesOfAllRanksAreEqualAndInOrder) {
  constexpr int kRanks = 3;
  const auto memberships = local_memberships(kRanks);
  std::vector<std::string> traces(kRanks);
  on_ranks(kRanks, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank(0, static_cast<std::uint64_t>(r) + 1);
    std::vector<Edge> edges;
    for (int k = 0; k < 4; ++k) edges.push_back({rank.add("p" + std::to_string(k)), 0});
    ASSERT_TRUE(rank.create(memberships[i], quick_options(true)).ok());
    for (int pass = 0; pass < 2; ++pass) {
      const std::vector<Edge> used(edges.begin() + r, edges.end());  // They differ on every rank.
      ASSERT_TRUE(rank.backward(rank.forward({{rank.fan(used), 0}}), 1).ok());
    }
    const Reducer& reducer = rank.parallel->reducer();
    traces[i] = reducer.trace().to_string(reducer.layout(), reducer.parameter_infos());
    // Construction sends one message of fixed size. After that, each pass sends buckets and the
    // usage map.
    const auto& started = static_cast<LocalGroup&>(*memberships[i].group).started;
    ASSERT_EQ(started.size(), 1u + 2 * 5);
    EXPECT_EQ(started[0].collective.op, Op::kAllGather);
    for (std::size_t s = 1; s < started.size(); ++s) {
      const Collective& c = started[s].collective;
      const int at = static_cast<int>((s - 1) % 5);
      EXPECT_EQ(c.bucket, at < 4 ? at : kNone);
      EXPECT_EQ(c.dtype, at < 4 ? DType::kFloat32 : DType::kInt32);
      EXPECT_EQ(c.count, at < 4 ? 2u : 4u);
      EXPECT_EQ(c.pass, static_cast<std::int64_t>((s - 1) / 5));
    }
  });
  EXPECT_EQ(traces[0], traces[1]);
  EXPECT_EQ(traces[0], traces[2]);
  EXPECT_FALSE(traces[0].empty());
}

TEST(ReducerTrace, T2ThereIsNoUsageMapWithoutAParameterThatLiesInABucket) {
  TestRank rank;
  ParameterSpec frozen;
  frozen.requires_grad = false;
  rank.add("ice", frozen);
  auto group = std::make_shared<ScriptedGroup>();
  ASSERT_TRUE(rank.create({group, std::make_shared<HashStore>()}, quick_options(true)).ok());
  ASSERT_TRUE(rank.backward(rank.forward({{rank.stop(), 0}}), 1).ok());
  EXPECT_EQ(group->sums(), 0);
}

}  // namespace
}  // namespace lockstep::testing
