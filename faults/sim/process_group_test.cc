#include "faults/sim/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "faults/sim/job_for_test.h"

namespace lockstep::simulated {
namespace {

using faults::Kind;
using simulation::End;
using simulation::Policy;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

std::uint64_t fired_in(const Job& job, Kind kind) {
  return job.injector.fired().counts[static_cast<std::size_t>(kind)];
}

TEST(SimProcessGroup, CollectivesInFlightTogetherEndInOrder) {
  Job job(3);
  constexpr int kMany = 40;  // more than the queue begins with
  EXPECT_EQ(job.run([&](std::uint32_t rank, SimProcessGroup& group) {
                 std::vector<Work> works(kMany);
                 std::vector<std::vector<float>> data(kMany, std::vector<float>(5));
                 for (std::size_t i = 0; i < kMany; ++i) {
                   for (float& value : data[i])
                     value = static_cast<float>(static_cast<std::size_t>(rank) * 100 + i);
                   Collective collective;
                   collective.count = 5;
                   collective.data = reinterpret_cast<std::byte*>(data[i].data());
                   ASSERT_TRUE(group.start(collective, works[i]).ok());
                   ASSERT_EQ(works[i].sequence(), static_cast<std::int64_t>(i));
                 }
                 ASSERT_TRUE(works.back().wait(platform::Deadline::never()).ok());
                 for (std::size_t i = 0; i < kMany; ++i) {
                   ASSERT_TRUE(works[i].done());
                   ASSERT_EQ(data[i][4], static_cast<float>(300 + 3 * i));
                 }
               })
                .end,
            End::kFinished);
}

// F7: hooks of two reducers on one group run on two workers.
TEST(SimProcessGroup, StartsOfTwoFibersAreTakenOneAfterTheOther) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Job job(2);
    job.schedule.seed = seed;
    bool failed = false;
    const auto outcome = job.run([&](std::uint32_t rank, SimProcessGroup& group) {
      constexpr std::size_t kEach = 6;
      std::vector<Work> works(2 * kEach);
      std::vector<float> data(2 * kEach, 1);
      const auto start_half = [&](std::size_t half) {
        for (std::size_t i = half * kEach; i < (half + 1) * kEach; ++i) {
          Collective collective;
          collective.count = 1;
          collective.data = reinterpret_cast<std::byte*>(&data[i]);
          failed = !group.start(collective, works[i]).ok() || failed;
        }
      };
      const auto other = job.scheduler.spawn("other", rank, [&] { start_half(1); });
      start_half(0);
      job.scheduler.join(other);
      for (Work& work : works) failed = !work.wait(platform::Deadline::never()).ok() || failed;
      for (const float value : data) failed = failed || value != 2;
    });
    ASSERT_EQ(outcome.end, End::kFinished) << "seed " << seed << "\n" << outcome.wait_graph;
    ASSERT_FALSE(failed) << "seed " << seed;
  }
}

TEST(SimProcessGroup, AGroupOfOneRankCompletesWithoutMessages) {
  Job job(1);
  EXPECT_EQ(job.run_all_reduces(3).end, End::kFinished);
  EXPECT_EQ(job.statuses[0].size(), 3U);
  EXPECT_TRUE(job.last(0).ok());
  EXPECT_TRUE(job.result_is_right(0));
}

TEST(SimProcessGroup, SubgroupsCountTheirOwnRanks) {
  Job job(4);
  const std::uint32_t members[] = {3, 1};
  std::vector<float> data(4, 0);
  EXPECT_EQ(job.run([&](std::uint32_t rank, SimProcessGroup&) {
                 if (rank % 2 == 0) return;
                 const auto group = SimProcessGroup::join(job.network, 1, members, rank, {});
                 EXPECT_EQ(group->rank(), rank == 3 ? 0 : 1);
                 EXPECT_EQ(group->size(), 2);
                 data[rank] = static_cast<float>(rank);
                 Collective collective;
                 collective.count = 1;
                 collective.data = reinterpret_cast<std::byte*>(&data[rank]);
                 EXPECT_TRUE(run(*group, collective).ok());
               })
                .end,
            End::kFinished);
  EXPECT_EQ(data[1], 4.0F);
  EXPECT_EQ(data[3], 4.0F);
}

TEST(SimProcessGroup, WrongArgumentsStartNothing) {
  Job job(2);
  EXPECT_EQ(job.run([&](std::uint32_t, SimProcessGroup& group) {
                 Work work;
                 float value = 0;
                 Collective bytes;
                 bytes.dtype = DType::kByte;
                 EXPECT_EQ(group.start(bytes, work).code(), Code::kInvalidArgument);
                 Collective from_nobody;
                 from_nobody.op = Op::kBroadcast;
                 from_nobody.root = 2;
                 EXPECT_EQ(group.start(from_nobody, work).code(), Code::kInvalidArgument);
                 Collective no_memory;
                 no_memory.count = 1;
                 EXPECT_EQ(group.start(no_memory, work).code(), Code::kInvalidArgument);
                 EXPECT_TRUE(work.done());
                 Collective good;
                 good.count = 1;
                 good.data = reinterpret_cast<std::byte*>(&value);
                 EXPECT_TRUE(run(group, good).ok());
               })
                .end,
            End::kFinished);
}

// --- Mismatches (F6)

struct Difference {
  const char* what;
  void (*make)(Collective&);
  const char* text;
};
constexpr Difference kDifferences[] = {
    {"op", [](Collective& c) { c.op = Op::kBroadcast; }, "broadcast of 8 float32 from rank 0"},
    {"dtype", [](Collective& c) { c.dtype = DType::kInt32; }, "all_reduce of 8 int32"},
    {"count", [](Collective& c) { c.count = 7; }, "all_reduce of 7 float32"},
    {"pass", [](Collective& c) { c.pass = 5; }, "all_reduce of 8 float32, pass 5"},
    {"bucket", [](Collective& c) { c.bucket = 9; }, "pass 4, bucket 9"},
};

TEST(SimProcessGroup, AMismatchIsReportedWithBothSidesAndNobodySucceeds) {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kBcube})
    for (const Difference& difference : kDifferences)
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        Job job(4);
        job.options.algorithm = algorithm;
        job.schedule.seed = seed;
        std::vector<Status> statuses(4);
        const simulation::Outcome outcome =
            job.run([&](std::uint32_t rank, SimProcessGroup& group) {
              std::vector<std::byte> data(32);
              Collective collective;
              collective.count = 8;
              collective.data = data.data();
              collective.pass = 4;
              collective.bucket = 2;
              if (rank == 2) difference.make(collective);
              statuses[rank] = run(group, collective);
            });
        ASSERT_EQ(outcome.end, End::kFinished) << outcome.wait_graph;
        for (std::uint32_t rank = 0; rank < 4; ++rank)
          ASSERT_THAT(statuses[rank].code(), AnyOf(Code::kMismatch, Code::kPeerLost))
              << difference.what << ", rank " << rank;
        // Data goes from rank r to rank r - 1: rank 1 receives the header of rank 2, or it lost
        // rank 2 because rank 2 received that of rank 3.
        int mismatches = 0;
        for (const std::uint32_t rank : {1U, 2U}) {
          if (statuses[rank].code() != Code::kMismatch) continue;
          ++mismatches;
          const Failure& failure = statuses[rank].failure();
          EXPECT_TRUE(failure.definite);
          EXPECT_EQ(failure.rank, static_cast<int>(rank));
          EXPECT_EQ(failure.suspect, static_cast<int>(rank + 1));
          EXPECT_EQ(failure.bucket, rank == 2 && difference.what == std::string("bucket") ? 9 : 2);
          EXPECT_THAT(failure.detail, AllOf(HasSubstr("all_reduce of 8 float32, pass 4, bucket 2"),
                                            HasSubstr(difference.text)));
        }
        ASSERT_GE(mismatches, 1);
      }
}

TEST(SimProcessGroup, ACollectiveTooManyIsAMismatchOfSequence) {
  Job job(2);
  std::vector<Status> statuses(2);
  const simulation::Outcome outcome = job.run([&](std::uint32_t rank, SimProcessGroup& group) {
    float value = 1;
    Collective collective;
    collective.count = 1;
    collective.data = reinterpret_cast<std::byte*>(&value);
    for (std::uint32_t i = 0; i < 2 + rank && statuses[rank].ok(); ++i)
      statuses[rank] = run(group, collective);
  });
  ASSERT_EQ(outcome.end, End::kFinished);
  EXPECT_TRUE(statuses[0].ok());  // it has gone home
  EXPECT_EQ(statuses[1].code(), Code::kPeerLost);
  EXPECT_EQ(statuses[1].failure().sequence, 2);
}

// --- The end of a group

TEST(SimProcessGroup, AbortEndsWhatIsInFlightAndPeersNotice) {
  Job job(3);
  std::vector<Status> statuses(3);
  const simulation::Outcome outcome = job.run([&](std::uint32_t rank, SimProcessGroup& group) {
    float value = 1;
    Collective collective;
    collective.count = 1;
    collective.data = reinterpret_cast<std::byte*>(&value);
    Work work;
    if (rank == 0) {
      job.scheduler.sleep_until(5us);
      EXPECT_TRUE(group.health().ok());
      group.abort(Status(Code::kUserFailure, "enough"));
      group.abort(Status(Code::kInternal, "too late: the first cause stays"));
      EXPECT_EQ(group.health().failure().detail, "enough");
      EXPECT_EQ(group.health().failure().rank, 0);
      statuses[rank] = group.start(collective, work);
      return;
    }
    ASSERT_TRUE(group.start(collective, work).ok());
    statuses[rank] = work.wait(platform::Deadline::never());
    Work next;
    EXPECT_EQ(group.start(collective, next).code(), statuses[rank].code());  // dead for good
    EXPECT_TRUE(next.done());
  });
  ASSERT_EQ(outcome.end, End::kFinished) << outcome.wait_graph;
  EXPECT_EQ(statuses[0].failure().detail, "enough");
  EXPECT_EQ(statuses[1].code(), Code::kPeerLost);
  EXPECT_EQ(statuses[2].code(), Code::kPeerLost);
  EXPECT_EQ(statuses[2].failure().suspect, 0);  // rank 2 takes from rank 0
}

TEST(SimProcessGroup, AbortWakesItsOwnWaiters) {
  Job job(2);
  Status status;
  const simulation::Outcome outcome = job.run([&](std::uint32_t rank, SimProcessGroup& group) {
    if (rank == 1) {
      job.scheduler.sleep_until(10us);
      return;
    }
    float value = 1;
    Collective collective;
    collective.count = 1;
    collective.data = reinterpret_cast<std::byte*>(&value);
    Work first;
    Work second;
    ASSERT_TRUE(group.start(collective, first).ok());
    ASSERT_TRUE(group.start(collective, second).ok());
    const simulation::FiberId aborter = job.scheduler.spawn("aborts", 0, [&] {
      job.scheduler.sleep_until(1us);
      group.abort(Status(Code::kUserFailure, "enough"));
    });
    status = first.wait(platform::Deadline::never());
    EXPECT_EQ(second.wait(platform::Deadline::never()).failure().detail, "enough");
    EXPECT_EQ(job.scheduler.now(), 1us);
    job.scheduler.join(aborter);
  });
  ASSERT_EQ(outcome.end, End::kFinished);
  EXPECT_EQ(status.failure().detail, "enough");
}

TEST(SimProcessGroup, DestructionEndsWhatIsInFlight) {
  Job job(2);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    job.schedule.seed = seed;
    float value = 1;
    Work work;
    Status left_behind;
    const simulation::Outcome outcome = job.run([&](std::uint32_t rank, SimProcessGroup&) {
      const auto group = SimProcessGroup::join(job.network, 1, job.members, rank, {});
      Collective collective;
      collective.count = 1;
      collective.data = reinterpret_cast<std::byte*>(&value);
      if (rank == 0)
        ASSERT_TRUE(group->start(collective, work).ok());  // and goes
      else
        job.scheduler.sleep_until(5us);
    });
    ASSERT_EQ(outcome.end, End::kFinished) << outcome.wait_graph;
    ASSERT_TRUE(work.done());
  }
}

TEST(SimProcessGroup, LeavingAfterOnesLastCollectiveTakesNothingFromTheOthers) {
  Job job(4);
  job.latency = {1us, 30us};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    job.schedule.seed = seed;
    ASSERT_EQ(job.run_all_reduces(1).end, End::kFinished);
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(job.last(rank).ok()) << job.last(rank).to_string();
      ASSERT_TRUE(job.result_is_right(rank));
    }
  }
}

// --- Time

TEST(SimProcessGroup, WithoutATimeoutAMissingRankIsAVisibleDeadlock) {
  Job job(3);
  const simulation::Outcome outcome = job.run([&](std::uint32_t rank, SimProcessGroup& group) {
    float value = 1;
    Collective collective;
    collective.count = 1;
    collective.data = reinterpret_cast<std::byte*>(&value);
    if (rank == 1) job.scheduler.sleep_until(simulation::kNever);
    run(group, collective).ignore();
  });
  ASSERT_EQ(outcome.end, End::kDeadlock);
  EXPECT_THAT(outcome.wait_graph,
              AllOf(HasSubstr("\"rank 0 group 0\" (group 0) waits for a message on link 1 -> 0"),
                    HasSubstr("which could come from"), HasSubstr("\"rank 1 group 0\""),
                    HasSubstr("\"rank 1 group 0\" (group 1) waits for a collective to be started"),
                    HasSubstr("waits for condition \"work.completed\" with mutex \"work\"")));
}

TEST(SimProcessGroup, ATimeoutNamesThePeerThatIsMissing) {
  Job job(4);
  job.options.timeout = 100us;
  std::vector<Status> statuses(4);
  const simulation::Outcome outcome = job.run([&](std::uint32_t rank, SimProcessGroup& group) {
    EXPECT_EQ(group.timeout(), 100us);
    float value = 1;
    Collective collective;
    collective.count = 1;
    collective.data = reinterpret_cast<std::byte*>(&value);
    collective.pass = 8;
    collective.bucket = 3;
    if (rank == 2) {
      job.scheduler.sleep_until(300us);
      statuses[rank] = run(group, collective);
      return;
    }
    statuses[rank] = run(group, collective);
    EXPECT_EQ(job.scheduler.now(), 100us);
  });
  ASSERT_EQ(outcome.end, End::kFinished) << outcome.wait_graph;
  ASSERT_EQ(statuses[1].code(), Code::kTimeout);
  const Failure& failure = statuses[1].failure();
  EXPECT_EQ(failure.suspect, 2);
  EXPECT_EQ(failure.reported_by, 1);
  EXPECT_EQ(failure.rank, kNone);
  EXPECT_EQ(failure.sequence, 0);
  EXPECT_EQ(failure.pass, 8);
  EXPECT_EQ(failure.bucket, 3);
  EXPECT_EQ(failure.collective, "all_reduce");
  EXPECT_FALSE(failure.definite);
  EXPECT_EQ(statuses[2].code(), Code::kPeerLost);  // comes too late: the others have gone
}

// --- Faults. Each test shows that the fault fired and what it did; the control is the same job
// without it.

TEST(SimFaults, WithoutFaultsAllIsWell) {
  Job job(4);
  EXPECT_EQ(job.run_all_reduces(3).end, End::kFinished);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(job.statuses[rank].size(), 3U);
    EXPECT_TRUE(job.last(rank).ok());
    EXPECT_TRUE(job.result_is_right(rank));
    EXPECT_EQ(job.ended_at[rank], 0us);
  }
}

TEST(SimFaults, ADelayedMessageDelaysTheCollectiveAndChangesNothing) {
  for (std::uint32_t site = 0; site < 12; ++site) {
    Job job(4);
    job.plan.faults = {{Kind::kMessageDelay, 2, 0, site, 500}};
    EXPECT_EQ(job.run_all_reduces(1).end, End::kFinished);
    EXPECT_EQ(fired_in(job, Kind::kMessageDelay), 1U);
    Duration last(0);
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(job.last(rank).ok());
      EXPECT_TRUE(job.result_is_right(rank));
      last = std::max(last, job.ended_at[rank]);
    }
    EXPECT_EQ(last, 500us);
  }
}

TEST(SimFaults, AStalledMessageEndsInTimeoutsThatBeginWithItsReceiver) {
  for (std::uint32_t site = 0; site < 12; ++site) {
    Job job(4);
    job.options.timeout = 1ms;
    job.plan.faults = {{Kind::kMessageStall, 2, 0, site, 0}};
    EXPECT_EQ(job.run_all_reduces(2).end, End::kFinished);
    EXPECT_EQ(fired_in(job, Kind::kMessageStall), 1U);
    EXPECT_TRUE(job.injector.silenced(2));
    // Time stood still, so all deadlines are one moment, and whoever comes second may find the link
    // closed instead.
    int timeouts = 0;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      EXPECT_THAT(job.last(rank).code(), AnyOf(Code::kTimeout, Code::kPeerLost));
      EXPECT_EQ(job.ended_at[rank], 1ms);
      timeouts += job.last(rank).code() == Code::kTimeout;
    }
    EXPECT_GE(timeouts, 1);
    EXPECT_EQ(job.last(1).failure().suspect, 2);
  }
}

TEST(SimFaults, ADelayedOperationIsLateAndRight) {
  Job job(4);
  job.plan.faults = {{Kind::kOperationDelay, 1, 0, 1, 700}};
  EXPECT_EQ(job.run_all_reduces(3).end, End::kFinished);
  EXPECT_EQ(fired_in(job, Kind::kOperationDelay), 1U);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(job.statuses[rank].size(), 3U);
    EXPECT_TRUE(job.result_is_right(rank));
    EXPECT_EQ(job.ended_at[rank], 700us);
  }
}

TEST(SimFaults, AnOperationDelayedBeyondTheTimeoutFailsEverywhere) {
  Job job(3);
  job.options.timeout = 300us;
  job.plan.faults = {{Kind::kOperationDelay, 1, 0, 0, 700}};
  EXPECT_EQ(job.run_all_reduces(1).end, End::kFinished);
  EXPECT_EQ(job.last(1).code(), Code::kTimeout);
  EXPECT_EQ(job.last(1).failure().rank, 1);
  EXPECT_EQ(job.last(1).failure().suspect, kNone);
  EXPECT_EQ(job.last(0).failure().suspect, 1);
  EXPECT_FALSE(job.last(2).ok());
}

// F1: a deadline is one of progress, and what is queued has none.
TEST(SimFaults, WhatMakesProgressOutlivesTheTimeout) {
  Job job(3);
  job.options.timeout = 500us;
  job.latency = {200us, 0us};  // an all-reduce of three has eight messages one after the other
  constexpr std::size_t kMany = 5;
  EXPECT_EQ(job.run([&](std::uint32_t, SimProcessGroup& group) {
                 std::vector<Work> works(kMany);
                 std::vector<std::vector<float>> data(kMany, std::vector<float>(24, 1));
                 for (std::size_t i = 0; i < kMany; ++i) {
                   Collective collective;
                   collective.count = 24;
                   collective.data = reinterpret_cast<std::byte*>(data[i].data());
                   ASSERT_TRUE(group.start(collective, works[i]).ok());
                 }
                 for (std::size_t i = 0; i < kMany; ++i) {
                   const Status status = wait_behind(works[i], {&group});
                   ASSERT_TRUE(status.ok()) << status.to_string();
                   ASSERT_EQ(data[i][23], 3.0F);
                 }
                 EXPECT_GT(job.scheduler.now(), Duration(2ms));
               })
                .end,
            End::kFinished);
}

TEST(SimFaults, AStalledOperationEndsInTimeoutsOnAllRanks) {
  Job job(4);
  job.options.timeout = 1ms;
  job.plan.faults = {{Kind::kOperationStall, 3, 0, 1, 0}};
  EXPECT_EQ(job.run_all_reduces(3).end, End::kFinished);
  EXPECT_EQ(fired_in(job, Kind::kOperationStall), 1U);
  EXPECT_TRUE(job.injector.silenced(3));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(job.statuses[rank].size(), 2U);
    EXPECT_TRUE(job.statuses[rank][0].ok());
    EXPECT_THAT(job.last(rank).code(), AnyOf(Code::kTimeout, Code::kPeerLost));
  }
  EXPECT_EQ(job.last(2).failure().suspect, 3);
}

TEST(SimFaults, AStalledOperationWithoutTimeoutIsADeadlockThatSaysSo) {
  Job job(2);
  job.plan.faults = {{Kind::kOperationStall, 1, 0, 0, 0}};
  const simulation::Outcome outcome = job.run_all_reduces(1);
  ASSERT_EQ(outcome.end, End::kDeadlock);
  EXPECT_THAT(outcome.wait_graph, HasSubstr("waits for the end of a stall, which never comes"));
}

TEST(SimFaults, AnOperationErrorIsDefiniteOnItsRankAndLosesItForTheOthers) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Job job(4);
    job.schedule.seed = seed;
    job.plan.faults = {{Kind::kOperationError, 2, 0, 1, 0}};
    EXPECT_EQ(job.run_all_reduces(3).end, End::kFinished);
    EXPECT_EQ(fired_in(job, Kind::kOperationError), 1U);
    EXPECT_EQ(job.last(2).code(), Code::kTransport);
    EXPECT_TRUE(job.last(2).failure().definite);
    EXPECT_EQ(job.last(2).failure().rank, 2);
    EXPECT_EQ(job.last(2).failure().bucket, 1);
    EXPECT_EQ(job.last(1).code(), Code::kPeerLost);
    EXPECT_EQ(job.last(1).failure().suspect, 2);
    EXPECT_EQ(job.last(0).code(), Code::kPeerLost);
    EXPECT_EQ(job.last(3).code(), Code::kPeerLost);
  }
}

TEST(SimFaults, AResetLinkIsAnErrorAtBothEnds) {
  for (std::uint32_t site = 0; site < 12; ++site) {
    Job job(4);
    job.schedule.seed = site;
    job.plan.faults = {{Kind::kLinkReset, 2, 0, site, 0}};
    EXPECT_EQ(job.run_all_reduces(2).end, End::kFinished);
    EXPECT_EQ(fired_in(job, Kind::kLinkReset), 1U);
    EXPECT_EQ(job.last(2).code(), Code::kTransport);
    EXPECT_EQ(job.last(2).failure().suspect, 1);
    EXPECT_THAT(job.last(1).code(), AnyOf(Code::kTransport, Code::kPeerLost));
    for (std::uint32_t rank = 0; rank < 4; ++rank) EXPECT_FALSE(job.last(rank).ok());
  }
}

TEST(SimFaults, AnExitedRankFailsAtOnceAndItsPeersLoseIt) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Job job(4);
    job.schedule.seed = seed;
    job.plan.faults = {{Kind::kRankExit, 1, 0, 1, 0}};
    EXPECT_EQ(job.run_all_reduces(3).end, End::kFinished);
    EXPECT_EQ(fired_in(job, Kind::kRankExit), 1U);
    EXPECT_TRUE(job.injector.exited(1));
    EXPECT_EQ(job.last(1).code(), Code::kAborted);
    EXPECT_EQ(job.last(1).failure().detail, "the process exited");
    // Who touches rank 1 loses it, and is then lost to others.
    int suspects = 0;
    for (const std::uint32_t rank : {0U, 2U, 3U}) {
      EXPECT_EQ(job.last(rank).code(), Code::kPeerLost);
      EXPECT_FALSE(job.last(rank).failure().definite);
      suspects += job.last(rank).failure().suspect == 1;
    }
    EXPECT_GE(suspects, 1);
  }
}

TEST(SimFaults, AnExitEndsWhatTheRankHasInFlightInEveryGroup) {
  Job job(2);
  job.plan.faults = {{Kind::kRankExit, 0, 0, 1, 0}};
  std::vector<Status> statuses(2);
  const simulation::Outcome outcome = job.run([&](std::uint32_t rank, SimProcessGroup& group) {
    const auto second = SimProcessGroup::join(job.network, 1, job.members, rank, {});
    float value = 1;
    Collective collective;
    collective.count = 1;
    collective.data = reinterpret_cast<std::byte*>(&value);
    if (rank == 1) {
      statuses[rank] = run(*second, collective);
      return;
    }
    Work work;
    Work never_started;
    ASSERT_TRUE(group.start(collective, work).ok());
    EXPECT_EQ(second->start(collective, never_started).code(), Code::kAborted);
    statuses[rank] = work.wait(platform::Deadline::never());
    const auto later = SimProcessGroup::join(job.network, 2, job.members, rank, {});
    EXPECT_EQ(later->start(collective, never_started).code(), Code::kAborted);
  });
  ASSERT_EQ(outcome.end, End::kFinished) << outcome.wait_graph;
  EXPECT_EQ(statuses[0].code(), Code::kAborted);
  EXPECT_EQ(statuses[1].code(), Code::kPeerLost);
}

TEST(SimFaults, SurvivorsGoOnInANewGroup) {
  Job job(3);
  job.plan.faults = {{Kind::kRankExit, 1, 0, 0, 0}};
  std::vector<float> data(3, 1);
  const simulation::Outcome outcome = job.run([&](std::uint32_t rank, SimProcessGroup& group) {
    Collective collective;
    collective.count = 1;
    collective.data = reinterpret_cast<std::byte*>(&data[rank]);
    EXPECT_FALSE(run(group, collective).ok());
    if (job.injector.exited(rank)) return;
    data[rank] = static_cast<float>(rank + 1);
    const std::uint32_t survivors[] = {0, 2};
    const auto next = SimProcessGroup::join(job.network, 1, survivors, rank, {});
    EXPECT_TRUE(run(*next, collective).ok());
  });
  ASSERT_EQ(outcome.end, End::kFinished) << outcome.wait_graph;
  EXPECT_EQ(data[0], 4.0F);
  EXPECT_EQ(data[2], 4.0F);
}

TEST(SimFaults, APausedRankIsLateAndRight) {
  Job job(4);
  job.plan.faults = {{Kind::kRankPause, 2, 0, 1, 900}};
  EXPECT_EQ(job.run_all_reduces(3).end, End::kFinished);
  EXPECT_EQ(fired_in(job, Kind::kRankPause), 1U);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(job.statuses[rank].size(), 3U);
    EXPECT_TRUE(job.result_is_right(rank));
    EXPECT_EQ(job.ended_at[rank], 900us);
  }
}

// --- Determinism and cost

TEST(SimProcessGroup, TheSameSeedGivesTheSameTraceWithFaultsAndLatency) {
  Job job(4);
  job.options.timeout = 2ms;
  job.latency = {0ns, 10us};
  std::uint64_t last = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    job.schedule = {seed % 2 == 0 ? Policy::kRandomWalk : Policy::kStayBiased, seed, {}};
    job.plan.faults = {{static_cast<Kind>(seed % 8), static_cast<std::uint32_t>(seed), 0,
                        static_cast<std::uint32_t>(seed / 8 % 10), 50}};
    ASSERT_EQ(job.run_all_reduces(2).end, End::kFinished);
    const std::uint64_t first = job.scheduler.trace_hash();
    const auto deviations = job.scheduler.deviations();
    ASSERT_EQ(job.run_all_reduces(2).end, End::kFinished);
    ASSERT_EQ(job.scheduler.trace_hash(), first) << seed;
    ASSERT_NE(first, last);
    last = first;
    // Latency comes from the network's own seed, so the schedule alone is replaced.
    job.schedule = {Policy::kDefault, seed, deviations};
    ASSERT_EQ(job.run_all_reduces(2).end, End::kFinished);
    ASSERT_EQ(job.scheduler.trace_hash(), first) << seed;
  }
}

}  // namespace
}  // namespace lockstep::simulated
