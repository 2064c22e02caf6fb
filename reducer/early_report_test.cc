// EarlyReport: what one thread reports while another takes the report (F2).
#include "reducer/early_report.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "reducer/comm/forwarding_group.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

Failure loss() {
  Failure failure;
  failure.code = Code::kPeerLost;
  failure.suspect = 1;
  failure.detail = "what a peer would read in the place of the cause of this rank";
  return failure;
}

class EndedGroup : public ForwardingGroup {
 public:
  EndedGroup(std::shared_ptr<ProcessGroup> inner, Status given)
      : ForwardingGroup(std::move(inner)), cause(std::move(given)) {}
  Status health() const override { return cause; }

  Status cause;
};

bool has_report(Store& store) { return store.contains("failure/0").value(); }

TEST(EarlyReport, F2OfTwoFailuresTheFirstIsReported) {
  const auto memberships = local_memberships(2);
  const auto& store = memberships[0].store;
  EarlyReport report;
  report.move_to(memberships[0]);
  EXPECT_FALSE(has_report(*store));
  report.failed(loss());
  EXPECT_TRUE(has_report(*store));
  Failure second = loss();
  second.code = Code::kTimeout;
  report.failed(second);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(report.take().has_value());
    EXPECT_EQ(report.take()->code, Code::kPeerLost);
  }
}

TEST(EarlyReport, F2WhatConcernsNoGroupAroseHere) {
  for (const auto& [code, rank] : {std::pair(Code::kOutOfMemory, 2), std::pair(Code::kAborted, 2),
                                   std::pair(Code::kPeerLost, 1)}) {
    EarlyReport report;
    report.move_to(local_memberships(3)[2]);
    Failure failure = loss();
    failure.code = code;
    if (code != Code::kPeerLost) failure.suspect = kNone;
    report.failed(failure);
    ASSERT_TRUE(report.take().has_value());
    EXPECT_EQ(report.take()->rank, rank) << name_of(code);
  }
}

// The user has aborted one of two groups, and a peer that followed has ended the other one.
TEST(EarlyReport, F2OfTwoGroupsTheOneThatThisRankEndedIsReported) {
  for (const bool is_own : {true, false}) {
    std::vector<Membership> memberships = local_memberships(2);
    Failure given;
    given.code = Code::kUserFailure;
    given.detail = "enough";
    Status cause = cause_of_abort(Status(given), is_own ? 0 : 1);
    ASSERT_TRUE(cause.failure().definite);
    memberships[0].backward_group = std::make_shared<EndedGroup>(memberships[0].group, cause);
    EarlyReport report;
    report.move_to(memberships[0]);
    report.failed(loss());
    ASSERT_TRUE(report.take().has_value());
    EXPECT_EQ(report.take()->code, is_own ? Code::kUserFailure : Code::kPeerLost);
    EXPECT_EQ(report.own_cause().has_value(), is_own);
  }
}

// A peer was lost, and the user gives up later: what was reported stays.
TEST(EarlyReport, F2AnAbortThatComesLaterDoesNotTakeThePlaceOfAReport) {
  std::vector<Membership> memberships = local_memberships(2);
  Status cause;
  const auto group = std::make_shared<EndedGroup>(memberships[0].group, cause);
  memberships[0].backward_group = group;
  EarlyReport report;
  report.move_to(memberships[0]);
  report.failed(loss());
  group->cause = cause_of_abort(Status(Code::kUserFailure, "enough"), 0);
  EXPECT_TRUE(report.own_cause().has_value());
  EXPECT_EQ(report.take()->code, Code::kPeerLost);
}

TEST(EarlyReport, F2NothingIsReportedOnceTheRankHasACauseOfItsOwn) {
  const auto memberships = local_memberships(2);
  const auto& store = memberships[0].store;
  EarlyReport report;
  report.move_to(memberships[0]);
  EXPECT_FALSE(report.take().has_value());
  report.failed(loss());
  EXPECT_FALSE(has_report(*store));
  EXPECT_FALSE(report.take().has_value());
  report.move_to(memberships[0]);  // of a new group
  report.failed(loss());
  EXPECT_TRUE(has_report(*store));
}

// Whichever thread is first, the peers read the cause that the rank goes by.
TEST(EarlyReport, F2TheRankAndItsPeersGoByOneCauseInEachOrder) {
  for (int round = 0; round < 3000; ++round) {
    const auto memberships = local_memberships(2);
    const auto& store = memberships[0].store;
    EarlyReport report;
    report.move_to(memberships[0]);
    const Failure failure = loss();
    std::atomic<int> here{0};
    const auto meet = [&here] {
      for (++here; here < 2;) std::this_thread::yield();
    };
    std::thread other([&] {
      meet();
      report.failed(failure);
    });
    meet();
    for (int i = 0; i < round % 64; ++i) here.load();  // begins at another moment in each round
    const bool is_taken = report.take().has_value();
    other.join();
    ASSERT_EQ(has_report(*store), is_taken) << "round " << round;
  }
}

}  // namespace
}  // namespace lockstep::testing
