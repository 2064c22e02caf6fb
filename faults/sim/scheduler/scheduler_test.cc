#include "faults/sim/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "faults/sim/scheduler/sync.h"
#include "faults/sim/scheduler/test_running.h"

namespace lockstep::simulation {
namespace {

using namespace std::chrono_literals;

// Some ranks with some threads each, which take turns at mutexes, wait for each other with and
// without a time, sleep, and log what they do. What ends up in the log depends on the schedule
// alone.
struct Workload {
  MutexCore mutex{"workload.mutex"};
  CondVarCore changed{"workload.changed"};
  int tokens = 0;
  std::vector<std::uint32_t> log;

  void note(std::uint32_t what) {
    log.push_back(running().current_id() << 8 | what);
    running().trace(log.back());
  }
  void produce() {
    for (int i = 0; i < 6; ++i) {
      mutex.lock();
      ++tokens;
      note(1);
      if (i % 2 == 0)
        changed.notify_one();
      else
        changed.notify_all();
      mutex.unlock();
      if (i == 3) running().sleep_until(running().now() + 3us);
      running().yield();
    }
  }
  void consume() {
    for (int i = 0; i < 6; ++i) {
      mutex.lock();
      while (tokens == 0) {
        const bool was_notified = changed.wait(mutex, i % 2 == 0 ? kNever : running().now() + 1us);
        note(was_notified ? 2 : 3);
      }
      --tokens;
      note(4);
      mutex.unlock();
    }
  }
  void spawn_all(Scheduler& scheduler) {
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      scheduler.spawn("rank " + std::to_string(rank), rank, [this, rank] {
        const FiberId producer = running().spawn("producer", rank, [this] { produce(); });
        consume();
        running().join(producer);
        note(5);
      });
  }
};

struct RunLog {
  End end;
  std::uint64_t trace_hash;
  std::uint64_t choices;
  std::vector<Deviation> deviations;
  std::vector<std::uint32_t> log;
};

RunLog run_workload(Scheduler& scheduler, const Schedule& schedule) {
  scheduler.reset(schedule);
  Workload workload;
  workload.spawn_all(scheduler);
  const End end = scheduler.run().end;
  return {end, scheduler.trace_hash(), scheduler.choices(), scheduler.deviations(), workload.log};
}

constexpr Policy kAllPolicies[] = {Policy::kDefault,      Policy::kRandomWalk, Policy::kStayBiased,
                                   Policy::kRoundRobin,   Policy::kPos,        Policy::kPct,
                                   Policy::kDelayBounded, Policy::kUrw,        Policy::kSurw,
                                   Policy::kCounting};
static_assert(std::size(kAllPolicies) == kPolicies);

TEST(Scheduler, TheSameSeedGivesTheSameTraceOver1000Seeds) {
  Scheduler scheduler;
  Scheduler other;
  std::uint64_t different = 0;
  std::uint64_t last = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Schedule schedule{kAllPolicies[1 + seed % 2], seed, {}};
    const RunLog first = run_workload(scheduler, schedule);
    const RunLog second = run_workload(seed % 3 == 0 ? other : scheduler, schedule);
    ASSERT_EQ(first.end, End::kFinished);
    ASSERT_EQ(first.trace_hash, second.trace_hash) << seed;
    ASSERT_EQ(first.log, second.log) << seed;
    different += first.trace_hash != last;
    last = first.trace_hash;
  }
  EXPECT_EQ(different, 1000U);  // the hash can tell runs apart
}

TEST(Scheduler, DeviationsReplayARunOfAnyPolicy) {
  Scheduler scheduler;
  for (const Policy policy : kAllPolicies)
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      const RunLog first = run_workload(scheduler, {policy, seed, {}});
      const RunLog replay = run_workload(scheduler, {Policy::kDefault, 12345, first.deviations});
      ASSERT_EQ(first.trace_hash, replay.trace_hash);
      ASSERT_EQ(first.log, replay.log);
      ASSERT_EQ(first.choices, replay.choices);
      ASSERT_EQ(first.deviations.size(), replay.deviations.size());
    }
  EXPECT_TRUE(run_workload(scheduler, {}).deviations.empty());
}

TEST(Scheduler, OneDeviationLessIsAnotherRunButStillARun) {
  Scheduler scheduler;
  RunLog first = run_workload(scheduler, {Policy::kRandomWalk, 7, {}});
  std::vector<Deviation> fewer = first.deviations;
  fewer.erase(fewer.begin() + 3);
  const RunLog other = run_workload(scheduler, {Policy::kDefault, 0, fewer});
  EXPECT_EQ(other.end, End::kFinished);
  EXPECT_NE(other.trace_hash, first.trace_hash);
}

TEST(Scheduler, DeviationsToFibersThatCannotRunAreIgnored) {
  Scheduler scheduler;
  const RunLog plain = run_workload(scheduler, {});
  const RunLog odd = run_workload(
      scheduler, {Policy::kDefault, 0, {{0, 200}, {1, 99'999}, {2, kNoFiber}, {9'999'999, 0}}});
  EXPECT_EQ(plain.trace_hash, odd.trace_hash);
  EXPECT_TRUE(odd.deviations.empty());
}

TEST(Scheduler, DefaultStaysOnTheRunningFiberAndThenTakesTheLowestId) {
  Scheduler scheduler;
  std::vector<FiberId> order;
  for (int i = 0; i < 3; ++i)
    scheduler.spawn("f", 0, [&] {
      for (int k = 0; k < 3; ++k) {
        order.push_back(running().current_id());
        running().point();
      }
    });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  EXPECT_EQ(order, (std::vector<FiberId>{0, 0, 0, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(scheduler.preemptions(), 0U);
}

TEST(Scheduler, RoundRobinTakesTurns) {
  Scheduler scheduler;
  scheduler.reset({Policy::kRoundRobin, 0, {}});
  std::vector<FiberId> order;
  for (int i = 0; i < 3; ++i)
    scheduler.spawn("f", 0, [&] {
      for (int k = 0; k < 2; ++k) {
        order.push_back(running().current_id());
        running().point();
      }
    });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  EXPECT_EQ(order, (std::vector<FiberId>{0, 1, 2, 0, 1, 2}));
}

TEST(Scheduler, RandomWalkReachesEveryOrder) {
  Scheduler scheduler;
  std::vector<int> seen(6, 0);
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    scheduler.reset({Policy::kRandomWalk, seed, {}});
    std::string order;
    for (int i = 0; i < 3; ++i)
      scheduler.spawn("f", 0,
                      [&order] { order += static_cast<char>('0' + running().current_id()); });
    scheduler.run();
    const std::string all[] = {"012", "021", "102", "120", "201", "210"};
    for (std::size_t i = 0; i < 6; ++i) seen[i] += order == all[i];
  }
  for (const int count : seen) EXPECT_GT(count, 60);
}

TEST(Scheduler, ALoneFiberHasNoChoices) {
  Scheduler scheduler;
  scheduler.reset({Policy::kRandomWalk, 1, {}});
  scheduler.spawn("alone", 0, [] {
    for (int i = 0; i < 100; ++i) running().yield();
    running().sleep_until(5us);
  });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  EXPECT_EQ(scheduler.choices(), 0U);
  EXPECT_EQ(scheduler.now(), 5us);
}

TEST(Scheduler, YieldLetsOthersRunUnderTheDefaultPolicy) {
  Scheduler scheduler;
  bool flag = false;
  scheduler.spawn("spins", 0, [&] {
    while (!flag) running().yield();
  });
  scheduler.spawn("sets", 0, [&] { flag = true; });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
}

TEST(Scheduler, TimeMovesOnlyWhenNobodyCanRun) {
  Scheduler scheduler;
  std::vector<std::string> log;
  scheduler.spawn("sleeper", 0, [&] {
    running().sleep_until(10us);
    log.push_back("slept");
  });
  scheduler.spawn("worker", 0, [&] {
    for (int i = 0; i < 1000; ++i) running().point();
    EXPECT_EQ(running().now(), 0us);
    log.push_back("worked");
    running().sleep_until(20us);
    log.push_back("last");
  });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  EXPECT_EQ(log, (std::vector<std::string>{"worked", "slept", "last"}));
  EXPECT_EQ(scheduler.now(), 20us);
}

TEST(Scheduler, AnEndlessLoopOverSchedulingPointsIsALivelock) {
  Scheduler scheduler({.step_limit = 10'000});
  scheduler.spawn("spins", 3, [] {
    for (;;) running().yield();
  });
  scheduler.spawn("sleeps", 0, [] { running().sleep_until(1us); });
  const Outcome& outcome = scheduler.run();
  EXPECT_EQ(outcome.end, End::kLivelock);
  EXPECT_EQ(outcome.leaked_fibers, 2U);
  EXPECT_NE(outcome.wait_graph.find("\"spins\" (group 3) can run"), std::string::npos)
      << outcome.wait_graph;
}

TEST(Scheduler, APausedGroupDoesNothingUntilItsTime) {
  Scheduler scheduler;
  std::vector<std::string> log;
  const auto note = [&](const char* what) { log.push_back(what); };
  for (std::uint32_t group = 0; group < 2; ++group)
    for (int i = 0; i < 2; ++i)
      scheduler.spawn("f", group, [&note, group, i] {
        if (group == 0 && i == 0) {
          running().pause_group(1, 50us);
          running().pause_group(1, 20us);  // the longest wins
        }
        running().sleep_until(10us);
        note(group == 0 ? "free" : "paused");
        if (group == 1) {
          EXPECT_EQ(running().now(), 50us);  // its own timer went off meanwhile
        }
      });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  EXPECT_EQ(log, (std::vector<std::string>{"free", "free", "paused", "paused"}));
}

TEST(Scheduler, AGroupCanPauseItself) {
  Scheduler scheduler;
  bool other_ran = false;
  scheduler.spawn("pauses", 1, [&] {
    running().pause_group(1, 5us);
    EXPECT_EQ(running().now(), 5us);
    EXPECT_TRUE(other_ran);
  });
  scheduler.spawn("other", 0, [&] { other_ran = true; });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
}

TEST(Scheduler, IdsOfJoinedFibersAreUsedAgain) {
  Scheduler scheduler;
  scheduler.spawn("main", 0, [] {
    for (int i = 0; i < 1000; ++i) {
      const FiberId child = running().spawn("child", 0, [] {});
      EXPECT_EQ(child, 1U);
      running().join(child);
    }
  });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
}

TEST(Scheduler, BodiesAreDestroyedWhenTheyEnd) {
  Scheduler scheduler;
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  scheduler.spawn("owner", 0, [owned] { EXPECT_EQ(*owned, 1); });
  owned.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  EXPECT_TRUE(watch.expired());
}

// Each fiber throws and catches while others do the same, and switches inside the handlers.
TEST(Scheduler, SwitchingInsideAnExceptionHandlerKeepsTheExceptionsApart) {
  Scheduler scheduler;
  scheduler.reset({Policy::kRandomWalk, 3, {}});
  int caught = 0;
  for (int i = 0; i < 8; ++i)
    scheduler.spawn("thrower", 0, [&caught, i] {
      for (int k = 0; k < 20; ++k) {
        const std::string mine = std::to_string(i) + "/" + std::to_string(k);
        try {
          throw std::runtime_error(mine);
        } catch (const std::runtime_error&) {
          running().point();
          try {
            throw;  // the one being handled, whatever others threw meanwhile
          } catch (const std::runtime_error& again) {
            running().point();
            EXPECT_EQ(again.what(), mine);
            EXPECT_EQ(std::uncaught_exceptions(), 0);
            ++caught;
          }
        }
      }
    });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  EXPECT_EQ(caught, 160);
}

TEST(Scheduler, FibersKeepTheirFloatingPointResults) {
  Scheduler scheduler;
  scheduler.reset({Policy::kRandomWalk, 3, {}});
  for (int i = 1; i <= 8; ++i)
    scheduler.spawn("sums", 0, [i] {
      double sum = 0;
      for (int k = 0; k < 100; ++k) {
        sum += 1.0 / i;
        running().point();
      }
      double expected = 0;
      for (int k = 0; k < 100; ++k) expected += 1.0 / i;
      EXPECT_EQ(sum, expected);
    });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
}

TEST(Scheduler, DeepStacksFit) {
  Scheduler scheduler;
  struct Recursion {
    static int down(int depth) {
      volatile char frame[512] = {};
      frame[0] = static_cast<char>(depth);
      if (depth == 0) return 0;
      running().point();
      return down(depth - 1) + 1 + frame[1];
    }
  };
  for (int i = 0; i < 4; ++i)
    scheduler.spawn("deep", 0, [] { EXPECT_EQ(Recursion::down(150), 150); });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
}

TEST(SchedulerDeathTest, ABodyThatThrowsEndsTheProcess) {
  EXPECT_DEATH(
      {
        Scheduler scheduler;
        scheduler.spawn("throws", 0, [] { throw std::runtime_error("out"); });
        scheduler.run();
      },
      "terminate");
}

}  // namespace
}  // namespace lockstep::simulation
