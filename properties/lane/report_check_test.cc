// ReportCheck compares a rank's report with the collectives that the rank has started: it accepts
// right reports, and rejects each wrong one.
#include "properties/lane/report_check.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "reducer/comm/mirror_peer_group.h"
#include "reducer/comm/store.h"

namespace lockstep {
namespace {

struct Started {
  Started() : group(std::make_shared<MirrorPeerGroup>()) {
    check.begin_step();
    add(Op::kBroadcast, 4, kNone);
    add(Op::kAllReduceSum, 4, 0);
    add(Op::kAllReduceSum, 4, 1);
  }
  void add(Op op, std::int64_t pass, int bucket) {
    Collective collective;
    collective.op = op;
    collective.pass = pass;
    collective.bucket = bucket;
    collective.reducer_id = 1;
    check.starts(collective);
    check.started(*group, collective, works[count++]);
  }
  // Returns a right report about the last collective.
  static Failure right() {
    Failure failure;
    failure.code = Code::kPeerLost;
    failure.rank = failure.suspect = 1;
    failure.reported_by = 0;
    failure.pass = 4;
    failure.bucket = 1;
    failure.collective = "all_reduce";
    failure.sequence = 2;
    failure.parameters = {"p0"};
    failure.detail = "rank 1 is gone";
    return failure;
  }
  static std::string said_of(Failure failure) {
    Started started;
    return started.check.flaw(Status(std::move(failure)), 0);
  }

  std::shared_ptr<ProcessGroup> group;
  ReportCheck check{true, true};
  std::array<Work, 8> works;
  std::size_t count = 0;
};

// A new group may have the address of one that is gone, and numbers its collectives from 0.
TEST(ReportCheck, F2TheCollectivesOfAGroupThatIsGoneAreForgotten) {
  Started started;
  started.check.forget(*started.group);
  started.add(Op::kAllReduceSum, 5, 0);
  Failure first = Started::right();
  first.pass = 5;
  first.bucket = 0;
  first.sequence = 0;
  EXPECT_EQ(started.check.flaw(Status(std::move(first)), 0), "");
}

TEST(ReportCheck, F2AFailureOfTheGroupNamesACollectiveAsItWasStarted) {
  EXPECT_EQ(Started::said_of(Started::right()), "");
  const std::vector<void (*)(Failure&)> changes = {
      [](Failure& f) { f.sequence = 0; },   [](Failure& f) { f.collective = "broadcast"; },
      [](Failure& f) { f.pass = 5; },       [](Failure& f) { f.bucket = 0; },
      [](Failure& f) { f.bucket = kNone; },  // and its parameters
  };
  for (const auto change : changes) {
    Failure wrong = Started::right();
    change(wrong);
    EXPECT_NE(Started::said_of(wrong), "") << wrong.to_string();
  }
  Failure ahead = Started::right();  // A peer was ahead, and the group knows it.
  ahead.sequence = 7;
  ahead.pass = 5;
  ahead.bucket = 3;
  EXPECT_EQ(Started::said_of(ahead), "");
}

TEST(ReportCheck, F2WhereAPeerHasAbortedTheRankNamesItsOwnPlace) {
  Failure aborted = Started::right();
  aborted.code = Code::kAborted;
  aborted.detail = "rank 1 aborted the group: user failure, rank 1: a node threw";
  EXPECT_EQ(Started::said_of(aborted), "");
  aborted.pass = 5;
  EXPECT_NE(Started::said_of(aborted), "");
  aborted.pass = 4;
  aborted.suspect = 0;
  EXPECT_NE(Started::said_of(aborted), "");
}

TEST(ReportCheck, NothingSucceedsBehindACollectiveThatHasFailed) {
  for (const bool is_wrong : {false, true}) {
    Started started;
    for (std::size_t i = 0; i < started.count; ++i) {
      started.works[i].begin(static_cast<std::int64_t>(i));
      started.works[i].complete(i == 1 || (i == 2 && !is_wrong) ? Status(Started::right())
                                                                : Status());
    }
    started.check.reported(encode(Started::right()));
    const std::string flaw = started.check.flaw(Status(Started::right()), 0);
    EXPECT_EQ(
        flaw.find("has succeeded that was started after one that has failed") != std::string::npos,
        is_wrong)
        << flaw;
  }
}

}  // namespace
}  // namespace lockstep
