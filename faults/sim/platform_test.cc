// The simulated platform, through the interface of reducer/platform/platform.h.
#include "reducer/platform/platform.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "faults/sim/scheduler/scheduler.h"

namespace lockstep::platform {
namespace {

using simulation::End;
using simulation::Scheduler;
using namespace std::chrono_literals;

End run_in_fiber(std::uint32_t group, std::function<void()> body) {
  Scheduler scheduler;
  scheduler.spawn("main", group, std::move(body));
  const simulation::Outcome outcome = scheduler.run();
  EXPECT_EQ(outcome.wait_graph, "");
  return outcome.end;
}

TEST(SimPlatform, AThreadJoinsTheGroupOfItsCreator) {
  std::vector<std::uint32_t> groups;
  const End end = run_in_fiber(5, [&] {
    Thread thread("outer", [&] {
      groups.push_back(Scheduler::running()->current_group());
      EXPECT_EQ(Scheduler::running()->current_name(), "outer");
      Thread inner("inner", [&] { groups.push_back(Scheduler::running()->current_group()); });
      Thread moved = std::move(inner);
      EXPECT_FALSE(inner.joinable());  // NOLINT(bugprone-use-after-move)
      moved.join();
      EXPECT_FALSE(moved.joinable());
    });
    thread.join();
  });
  EXPECT_EQ(end, End::kFinished);
  EXPECT_EQ(groups, (std::vector<std::uint32_t>{5, 5}));
}

TEST(SimPlatform, AWaitSaysWhetherThePredicateHolds) {
  const End end = run_in_fiber(0, [] {
    Mutex mutex("m");
    CondVar changed("c");
    int value = 0;
    Thread setter("setter", [&] {
      for (int i = 1; i <= 3; ++i) {
        Scheduler::running()->sleep_until(now() + 10us);
        MutexLock lock(mutex);
        value = i;
        changed.notify_all();
      }
    });
    {
      MutexLock lock(mutex);
      EXPECT_TRUE(changed.wait(mutex, Deadline::never(), [&] { return value == 2; }));
      EXPECT_EQ(now(), 20us);
      EXPECT_FALSE(changed.wait(mutex, Deadline::in(5us), [&] { return value == 3; }));
      EXPECT_EQ(now(), 25us);
      EXPECT_TRUE(changed.wait(mutex, Deadline::at(31us), [&] { return value == 3; }));
      lock.unlock();
      lock.lock();
    }
    setter.join();
  });
  EXPECT_EQ(end, End::kFinished);
}

TEST(SimPlatform, DeadlinesAreOfVirtualTime) {
  const End end = run_in_fiber(0, [] {
    const Deadline soon = Deadline::in(10us);
    EXPECT_FALSE(soon.passed());
    EXPECT_EQ(soon.remaining(), 10us);
    EXPECT_TRUE(Deadline::never().is_never());
    EXPECT_TRUE(Deadline::in(Duration::max()).is_never());
    Scheduler::running()->sleep_until(10us);
    EXPECT_TRUE(soon.passed());
    EXPECT_FALSE(Deadline::never().passed());
    yield();
  });
  EXPECT_EQ(end, End::kFinished);
}

TEST(SimPlatform, WorksWithoutARunAsLongAsNothingHasToWait) {
  Mutex mutex("m");
  CondVar changed("c");
  MutexLock lock(mutex);
  changed.notify_all();
  EXPECT_TRUE(changed.wait(mutex, Deadline::never(), [] { return true; }));
  EXPECT_FALSE(changed.wait(mutex, Deadline::in(1s), [] { return false; }));
  EXPECT_EQ(now(), 0s);
  yield();
}

TEST(SimPlatformDeathTest, AThreadThatIsNotJoinedEndsTheProcess) {
  EXPECT_DEATH(run_in_fiber(0, [] { Thread thread("lost", [] {}); }), "check failed");
}

}  // namespace
}  // namespace lockstep::platform
