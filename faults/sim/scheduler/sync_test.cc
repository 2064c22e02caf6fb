#include "faults/sim/scheduler/sync.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "faults/sim/scheduler/test_running.h"

namespace lockstep::simulation {
namespace {

using namespace std::chrono_literals;

TEST(Mutex, KeepsFibersOutUnderEverySchedule) {
  Scheduler scheduler;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    scheduler.reset({Policy::kRandomWalk, seed, {}});
    MutexCore mutex("mutex");
    int inside = 0;
    int entered = 0;
    for (int i = 0; i < 5; ++i)
      scheduler.spawn("f", 0, [&] {
        for (int k = 0; k < 5; ++k) {
          mutex.lock();
          EXPECT_EQ(++inside, 1);
          running().point();
          --inside;
          ++entered;
          mutex.unlock();
        }
      });
    ASSERT_EQ(scheduler.run().end, End::kFinished);
    ASSERT_EQ(entered, 25);
  }
}

// The control of the test above: without the mutex the fibers do meet.
TEST(Mutex, FibersWithoutItMeet) {
  Scheduler scheduler;
  scheduler.reset({Policy::kRandomWalk, 1, {}});
  int inside = 0;
  int most = 0;
  for (int i = 0; i < 5; ++i)
    scheduler.spawn("f", 0, [&] {
      most = std::max(most, ++inside);
      running().point();
      --inside;
    });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  EXPECT_GT(most, 1);
}

// One fiber waits for a second until another one has set a flag, after a while. Returns where a
// wait ended only at its deadline, although the flag was set; empty if none did. Of fibers that are
// ready at one time, the one that was spawned first runs first.
std::string late_wait(bool notifies, Duration after, bool spawns_setter_first = false) {
  Scheduler scheduler;
  scheduler.reset({Policy::kDefault, 0, {}});
  MutexCore mutex("mutex");
  CondVarCore changed("changed");
  bool is_set = false;
  const auto waits = [&] {
    mutex.lock();
    while (!is_set)
      if (!changed.wait(mutex, 1s)) {
        changed.note_end_by_deadline(is_set, 1s);
        break;
      }
    mutex.unlock();
  };
  const auto sets = [&] {
    running().sleep_until(after);
    mutex.lock();
    is_set = true;
    if (notifies) changed.notify_all();
    mutex.unlock();
  };
  if (spawns_setter_first) scheduler.spawn("sets", 0, sets);
  scheduler.spawn("waits", 0, waits);
  if (!spawns_setter_first) scheduler.spawn("sets", 0, sets);
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  return scheduler.late_wait() ? scheduler.late_wait()->at : std::string();
}

TEST(CondVar, AWaitThatOnlyItsDeadlineEndsIsKnown) {
  EXPECT_EQ(late_wait(true, 10ms), "");
  EXPECT_EQ(late_wait(false, 10ms), "changed");
  // A wait is not late if its condition becomes true after the deadline, or at that time.
  EXPECT_EQ(late_wait(false, 2s), "");
  EXPECT_EQ(late_wait(false, 1s), "");
  EXPECT_EQ(late_wait(false, 1s, true), "");
  EXPECT_EQ(late_wait(false, 10ms, true), "changed");
}

// One fiber waits until another one has set a flag. How many of 200 random walks end in a deadlock?
int lost_wake_ups(bool with_mutex) {
  Scheduler scheduler;
  int lost = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    scheduler.reset({Policy::kRandomWalk, seed, {}});
    auto* mutex = new MutexCore("mutex");  // what a deadlock leaves behind must not be destroyed
    auto* changed = new CondVarCore("changed");
    auto* is_set = new bool(false);
    scheduler.spawn("waits", 0, [=] {
      mutex->lock();
      while (!*is_set) changed->wait(*mutex, kNever);
      mutex->unlock();
    });
    scheduler.spawn("sets", 0, [=] {
      running().point();
      if (with_mutex) mutex->lock();
      *is_set = true;
      changed->notify_all();
      if (with_mutex) mutex->unlock();
    });
    const bool is_lost = scheduler.run().end == End::kDeadlock;
    lost += is_lost ? 1 : 0;
    if (is_lost) continue;
    delete is_set;
    delete changed;
    delete mutex;
  }
  return lost;
}

TEST(CondVar, AWakeUpWithoutTheMutexCanBeLost) {
  EXPECT_GT(lost_wake_ups(false), 0);
  EXPECT_EQ(lost_wake_ups(true), 0);
}

TEST(CondVar, AWaitEndsAtItsTime) {
  Scheduler scheduler;
  MutexCore mutex("mutex");
  CondVarCore changed("changed");
  scheduler.spawn("waits", 0, [&] {
    mutex.lock();
    EXPECT_FALSE(changed.wait(mutex, 30us));
    EXPECT_EQ(running().now(), 30us);
    EXPECT_FALSE(changed.wait(mutex, 30us));  // has passed: returns at once
    mutex.unlock();
  });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
}

TEST(CondVar, ANotificationBeatsTheTime) {
  Scheduler scheduler;
  MutexCore mutex("mutex");
  CondVarCore changed("changed");
  scheduler.spawn("waits", 0, [&] {
    mutex.lock();
    EXPECT_TRUE(changed.wait(mutex, 30us));
    EXPECT_EQ(running().now(), 10us);
    mutex.unlock();
    running().sleep_until(100us);  // the timer of the wait is gone
    EXPECT_EQ(running().now(), 100us);
  });
  scheduler.spawn("notifies", 0, [&] {
    running().sleep_until(10us);
    mutex.lock();
    changed.notify_one();
    mutex.unlock();
  });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
}

TEST(CondVar, NotifyOneWakesOneAndAnyOfThem) {
  Scheduler scheduler;
  std::vector<int> woken(3, 0);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    scheduler.reset({Policy::kRandomWalk, seed, {}});
    MutexCore mutex("mutex");
    CondVarCore changed("changed");
    int notified = 0;
    for (int i = 0; i < 3; ++i)
      scheduler.spawn("waits", 0, [&, i] {
        mutex.lock();
        if (changed.wait(mutex, 10us)) {
          ++notified;
          ++woken[static_cast<std::size_t>(i)];
        }
        mutex.unlock();
      });
    scheduler.spawn("notifies", 0, [&] {
      running().sleep_until(1us);
      mutex.lock();
      changed.notify_one();
      mutex.unlock();
    });
    ASSERT_EQ(scheduler.run().end, End::kFinished);
    ASSERT_EQ(notified, 1);
  }
  for (const int count : woken) EXPECT_GT(count, 50);
}

TEST(CondVar, NotifyAllWakesAll) {
  Scheduler scheduler;
  MutexCore mutex("mutex");
  CondVarCore changed("changed");
  int notified = 0;
  for (int i = 0; i < 3; ++i)
    scheduler.spawn("waits", 0, [&] {
      mutex.lock();
      notified += changed.wait(mutex, kNever);
      mutex.unlock();
    });
  scheduler.spawn("notifies", 0, [&] {
    running().sleep_until(1us);
    mutex.lock();
    changed.notify_all();
    mutex.unlock();
  });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  EXPECT_EQ(notified, 3);
}

// Takes the two mutexes in the given orders, one fiber after the other, so that nothing can
// deadlock.
std::vector<std::string> violations_of(bool inverted) {
  Scheduler scheduler;
  MutexCore a("a");
  MutexCore b("b");
  for (const bool second : {false, true})
    scheduler.spawn("f", 0, [&, second] {
      MutexCore& outer = second && inverted ? b : a;
      MutexCore& inner = second && inverted ? a : b;
      outer.lock();
      inner.lock();
      inner.unlock();
      outer.unlock();
    });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  return scheduler.lock_order_violations();
}

TEST(LockOrder, AnInversionIsFoundInARunThatDidNotDeadlock) {
  ASSERT_EQ(violations_of(true).size(), 1U);
  EXPECT_EQ(violations_of(true)[0], "a -> b (fiber 0) -> a (fiber 1)");
}

TEST(LockOrder, OneOrderEverywhereIsFine) { EXPECT_TRUE(violations_of(false).empty()); }

TEST(LockOrder, AMutexThatWasReleasedIsNotHeld) {
  Scheduler scheduler;
  MutexCore a("a");
  MutexCore b("b");
  scheduler.spawn("f", 0, [&] {
    a.lock();
    b.lock();
    a.unlock();  // out of order
    b.unlock();
    b.lock();
    b.unlock();
    a.lock();
    a.unlock();
  });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  EXPECT_TRUE(scheduler.lock_order_violations().empty());
}

TEST(SyncDeathTest, ProgrammerErrorsEndTheProcess) {
  const auto run_in_fiber = [](auto body) {
    Scheduler scheduler;
    scheduler.spawn("f", 0, body);
    scheduler.run();
  };
  EXPECT_DEATH(run_in_fiber([] {
                 MutexCore mutex("m");
                 mutex.unlock();
               }),
               "check failed");
  EXPECT_DEATH(run_in_fiber([] {
                 MutexCore mutex("m");
                 mutex.lock();
               }),
               "check failed");
}

}  // namespace
}  // namespace lockstep::simulation
