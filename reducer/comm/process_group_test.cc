// Work, and run(), with a process group that the test controls.
#include "reducer/comm/process_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

using platform::Deadline;
using std::chrono::milliseconds;

// Never ends a collective by itself; abort() ends it with its cause.
class StalledGroup : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool can_reduce(DType) const override { return true; }
  platform::Duration timeout() const override { return milliseconds(10); }
  Status start(const Collective& collective, Work& work) override {
    if (collective.count == 0) return Status(Code::kPoisoned, "refused");
    work.begin(0);
    work_ = &work;
    if (collective.count == 1) finish(Status());
    if (collective.count == 2) finish(Status(Code::kPeerLost, "rank 1"));
    return Status();
  }
  void abort(const Status& cause) override {
    ++aborts;
    if (work_ != nullptr) finish(cause);
  }
  int aborts = 0;

 private:
  void finish(Status status) { std::exchange(work_, nullptr)->complete(std::move(status)); }
  Work* work_ = nullptr;
};

Collective of(std::uint64_t count) {
  Collective collective;
  collective.count = count;
  return collective;
}

TEST(Work, GoesRoundAndRoundWithoutBeingMadeAnew) {
  Work work;
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.sequence(), kNone);
  for (int i = 0; i < 3; ++i) {
    const platform::Duration began = platform::now();
    work.begin(i);
    EXPECT_FALSE(work.done());
    EXPECT_EQ(work.sequence(), i);
    work.complete(i == 1 ? Status(Code::kTimeout, "late") : Status());
    EXPECT_TRUE(work.done());
    EXPECT_EQ(work.wait(Deadline::never()).ok(), i != 1);  // The earlier error is gone.
    EXPECT_GE(work.completed_at(), began);
  }
}

TEST(Work, WaitThatTimesOutLeavesItRunning) {
  Work work;
  work.begin(5);
  const Status status = work.wait(Deadline::in(milliseconds(1)));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.failure().sequence, 5);
  EXPECT_FALSE(work.done());
  work.complete(Status());
  EXPECT_TRUE(work.wait(Deadline::in(milliseconds(0))).ok());
}

TEST(Work, IsWaitedForByAnotherThread) {
  Work work;
  work.begin(0);
  platform::Thread waiter("waiter", [&] { EXPECT_TRUE(work.wait(Deadline::never()).ok()); });
  work.complete(Status());
  waiter.join();
}

TEST(Run, GivesTheOutcomeOfTheCollective) {
  StalledGroup group;
  EXPECT_EQ(run(group, of(0)).code(), Code::kPoisoned);
  EXPECT_TRUE(run(group, of(1)).ok());
  EXPECT_EQ(run(group, of(2)).code(), Code::kPeerLost);
  EXPECT_EQ(group.aborts, 0);
}

TEST(Run, AbortsAGroupThatDoesNotKeepItsTimeout) {
  StalledGroup group;
  EXPECT_EQ(run(group, of(3)).code(), Code::kTimeout);
  EXPECT_EQ(group.aborts, 1);
}

// The collective may be queued behind others that make progress (F1).
TEST(Run, WaitsOnWhileTheGroupMakesProgress) {
  class SteppingGroup final : public StalledGroup {
   public:
    std::uint64_t progress() const override {
      return static_cast<std::uint64_t>(std::min(++looks, 3));
    }
    mutable int looks = 0;
  };
  SteppingGroup group;
  EXPECT_EQ(run(group, of(3)).code(), Code::kTimeout);
  EXPECT_EQ(group.aborts, 1);
  // At the start, and after each of three waits: progress, progress, none.
  EXPECT_EQ(group.looks, 4);
}

TEST(Run, WaitsForEverBehindATimeoutThatIsTooLongToCount) {
  using platform::Duration;
  EXPECT_TRUE(deadline_behind(Duration::max()).is_never());
  EXPECT_TRUE(deadline_behind(Duration::max() / 2).is_never());
  EXPECT_FALSE(deadline_behind(Duration::max() / 5).is_never());
  EXPECT_FALSE(deadline_behind(Duration::max() / 5).passed());
}

TEST(Op, HasANameForPeople) {
  EXPECT_STREQ(name_of(Op::kAllReduceSum), "all_reduce");
  EXPECT_STREQ(name_of(Op::kBroadcast), "broadcast");
  EXPECT_STREQ(name_of(Op::kAllGather), "all_gather");
}

TEST(CauseOfAbort, F5OfAUserIsThatOfThisRankForCertainAndAnyOtherStaysAsItIs) {
  const Status of_user = cause_of_abort(Status(Code::kTimeout, "given up"), 2);
  EXPECT_EQ(of_user.code(), Code::kTimeout);
  EXPECT_EQ(of_user.failure().rank, 2);
  EXPECT_EQ(of_user.failure().reported_by, 2);
  EXPECT_TRUE(of_user.failure().definite);
  Failure lost;
  lost.code = Code::kPeerLost;
  lost.suspect = 1;
  EXPECT_EQ(cause_of_abort(Status(lost), 2).failure().to_string(), lost.to_string());
  EXPECT_FALSE(cause_of_abort(Status(lost), 2).failure().definite);
  Failure late;  // of a wait that ended before the collective
  late.code = Code::kTimeout;
  late.sequence = 7;
  EXPECT_EQ(cause_of_abort(Status(late), 2).failure().rank, kNone);
  EXPECT_FALSE(cause_of_abort(Status(late), 2).failure().definite);
}

}  // namespace
}  // namespace lockstep
