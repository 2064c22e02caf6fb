#include "faults/sim/scheduler/wait_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "faults/sim/scheduler/sync.h"
#include "faults/sim/scheduler/test_running.h"

namespace lockstep::simulation {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

// The classic: a then b, b then a, and a switch in between.
Outcome run_inverted_locks(Policy policy, std::uint64_t seed) {
  Scheduler scheduler;
  scheduler.reset({policy, seed, {}});
  static MutexCore* mutexes[2];
  MutexCore a("first");
  MutexCore b("second");
  mutexes[0] = &a;
  mutexes[1] = &b;
  for (std::uint32_t i = 0; i < 2; ++i)
    scheduler.spawn(i == 0 ? "left" : "right", i, [i] {
      mutexes[i]->lock();
      mutexes[1 - i]->lock();
      mutexes[1 - i]->unlock();
      mutexes[i]->unlock();
    });
  return scheduler.run();
}

TEST(WaitGraph, ADeadlockOfMutexesNamesOwnersAndTheCircle) {
  const Outcome outcome = run_inverted_locks(Policy::kRoundRobin, 0);
  ASSERT_EQ(outcome.end, End::kDeadlock);
  EXPECT_EQ(outcome.leaked_fibers, 2U);
  EXPECT_THAT(
      outcome.wait_graph,
      AllOf(HasSubstr("deadlock: 2 fibers left"),
            HasSubstr("fiber 0 \"left\" (group 0) waits for mutex \"second\", held by fiber 1 "
                      "\"right\"; holds \"first\""),
            HasSubstr("fiber 1 \"right\" (group 1) waits for mutex \"first\", held by fiber 0 "
                      "\"left\"; holds \"second\""),
            HasSubstr("circle: fiber 0 \"left\" -> fiber 1 \"right\" -> fiber 0\n")));
}

TEST(WaitGraph, TheSameProgramIsFineUnderAnotherSchedule) {
  const Outcome outcome = run_inverted_locks(Policy::kDefault, 0);
  EXPECT_EQ(outcome.end, End::kFinished);
  EXPECT_EQ(outcome.wait_graph, "");
  EXPECT_EQ(outcome.leaked_fibers, 0U);
}

// The state is not changed under the mutex that the waiter looks at it with, so the notification
// can come between look and wait.
Outcome run_lost_wake_up(Policy policy, std::uint64_t seed) {
  Scheduler scheduler;
  scheduler.reset({policy, seed, {}});
  MutexCore mutex("state");
  CondVarCore changed("state.changed");
  bool is_set = false;
  scheduler.spawn("waiter", 0, [&] {
    if (is_set) return;
    mutex.lock();
    changed.wait(mutex, kNever);
    mutex.unlock();
  });
  scheduler.spawn("setter", 1, [&] {
    is_set = true;
    mutex.lock();
    changed.notify_one();
    mutex.unlock();
  });
  return scheduler.run();
}

TEST(WaitGraph, ALostWakeUpIsADeadlockThatNamesTheCondition) {
  std::uint64_t deadlocks = 0;
  std::string graph;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Outcome outcome = run_lost_wake_up(Policy::kRandomWalk, seed);
    if (outcome.end != End::kDeadlock) continue;
    ++deadlocks;
    graph = outcome.wait_graph;
  }
  EXPECT_GT(deadlocks, 5U);
  EXPECT_LT(deadlocks, 95U);
  EXPECT_THAT(graph, AllOf(HasSubstr("fiber 0 \"waiter\" (group 0) waits for condition "
                                     "\"state.changed\" with mutex \"state\", last notified by "
                                     "fiber 1"),
                           Not(HasSubstr("circle"))));
}

TEST(WaitGraph, JoinPlacesAndTheNeverNotifiedAreTold) {
  Scheduler scheduler;
  static Place place;
  place = Place{"a message on link", 2, 1, 0, {}};
  MutexCore mutex("m");
  CondVarCore changed("c");
  scheduler.spawn("joiner", 0, [] { running().join(1); });
  scheduler.spawn("receiver", 1, [] { running().wait_at(place, kNever); });
  scheduler.spawn("forgotten", 2, [&] {
    mutex.lock();
    changed.wait(mutex, kNever);
  });
  const Outcome outcome = scheduler.run();
  ASSERT_EQ(outcome.end, End::kDeadlock);
  EXPECT_THAT(outcome.wait_graph,
              AllOf(HasSubstr("\"joiner\" (group 0) waits for the end of fiber 1 \"receiver\""),
                    HasSubstr("waits for a message on link 2 -> 1, which could come from fiber 0 "
                              "\"joiner\""),
                    HasSubstr("which nobody has ever notified"),
                    HasSubstr("circle: fiber 0 \"joiner\" -> fiber 1 \"receiver\" -> fiber 0")));
}

TEST(WaitGraph, AFiberThatLocksTwiceWaitsForItself) {
  Scheduler scheduler;
  MutexCore mutex("m");
  scheduler.spawn("twice", 0, [&] {
    mutex.lock();
    mutex.lock();
  });
  const Outcome outcome = scheduler.run();
  ASSERT_EQ(outcome.end, End::kDeadlock);
  EXPECT_THAT(outcome.wait_graph, HasSubstr("circle: fiber 0 \"twice\" -> fiber 0"));
}

TEST(WaitGraph, AScheduleThatDeadlocksIsReplayedFromItsDeviations) {
  Scheduler scheduler;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    static MutexCore* mutexes[2];
    const auto run = [&](const Schedule& schedule) {
      scheduler.reset(schedule);
      MutexCore a("first");
      MutexCore b("second");
      mutexes[0] = &a;
      mutexes[1] = &b;
      for (std::uint32_t i = 0; i < 2; ++i)
        scheduler.spawn("f", i, [i] {
          mutexes[i]->lock();
          mutexes[1 - i]->lock();
          mutexes[1 - i]->unlock();
          mutexes[i]->unlock();
        });
      return scheduler.run();
    };
    const Outcome first = run({Policy::kRandomWalk, seed, {}});
    const std::uint64_t hash = scheduler.trace_hash();
    const Outcome again = run({Policy::kDefault, 0, scheduler.deviations()});
    ASSERT_EQ(first.end, again.end);
    ASSERT_EQ(first.wait_graph, again.wait_graph);
    ASSERT_EQ(hash, scheduler.trace_hash());
  }
}

// Stacks of abandoned fibers are used again, and a run after a deadlock is like any other.
TEST(WaitGraph, TheSchedulerWorksOnAfterDeadlocks) {
  Scheduler scheduler;
  for (int i = 0; i < 50; ++i) {
    scheduler.reset({});
    scheduler.spawn("hangs", 0, [] { running().sleep_until(kNever); });
    EXPECT_EQ(scheduler.run().end, End::kDeadlock);
    scheduler.reset({});
    int ran = 0;
    scheduler.spawn("runs", 0, [&] {
      running().sleep_until(1us);
      ++ran;
    });
    EXPECT_EQ(scheduler.run().end, End::kFinished);
    EXPECT_EQ(ran, 1);
  }
}

TEST(WaitGraph, PausedGroupsAndTimesAreShownInALivelock) {
  Scheduler scheduler({.step_limit = 1000});
  scheduler.spawn("paused", 1, [] { running().sleep_until(7us); });
  scheduler.spawn("spins", 0, [] {
    running().pause_group(1, 1s);
    for (;;) running().yield();
  });
  const Outcome outcome = scheduler.run();
  ASSERT_EQ(outcome.end, End::kLivelock);
  EXPECT_THAT(outcome.wait_graph, HasSubstr("\"paused\" (group 1) sleeps, paused, until 7000 ns"));
}

}  // namespace
}  // namespace lockstep::simulation
