// Claim: the search with partial-order reduction reaches every final state that plain enumeration
// of all interleavings reaches, and runs each class of equivalent interleavings once. Method: tiny
// programs of fibers whose classes can be counted by hand, and random ones, in both modes. A
// failure means that the dependence of steps, or the reduction, is wrong: then no "complete" of
// `lockstep exhaust` can be believed.
#include "faults/sim/explore/explorer.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "faults/sim/platform/lockstep_platform/types.h"
#include "faults/sim/scheduler/scheduler.h"
#include "faults/sim/scheduler/sync.h"
#include "faults/sim/scheduler/test_leaks.h"
#include "faults/sim/scheduler/test_running.h"

namespace lockstep::simulation {
namespace {

// What the fibers of a program share. Tests read `log` and `value` after a run.
struct Shared {
  MutexCore first{"explore.first"};
  MutexCore second{"explore.second"};
  CondVarCore changed{"explore.changed"};
  platform::Atomic<int> atomic{0};
  Place place;
  int value = 0;
  std::string log;
};
using Body = std::function<void(Shared&)>;
using Bodies = std::vector<Body>;

constexpr std::uint64_t kMostExecutions = 200'000;

struct Result {
  std::set<std::string> states;
  ExplorerCounts counts;
  bool is_complete = false;
  std::string anomaly;
};

// Runs the program once. Returns its final state.
std::string run_once(Scheduler& scheduler, const Bodies& program) {
  scheduler.reset(Schedule{});
  auto shared = std::make_unique<Shared>();
  Shared& state = *shared;
  for (const Body& body : program) scheduler.spawn("fiber", 0, [&body, &state] { body(state); });
  const Outcome& outcome = scheduler.run();
  std::string result = state.log + "=" + std::to_string(state.value);
  if (outcome.end == End::kFinished) return result;
  const MayLeak may_leak;
  (void)shared.release();  // abandoned fibers point to it
  return result + (outcome.end == End::kDeadlock ? " deadlock" : " livelock");
}

Result explore(const Bodies& program, Explorer::Mode mode,
               const std::function<bool(std::uint64_t)>& forgotten = nullptr) {
  Scheduler scheduler;
  Explorer explorer(mode);
  if (forgotten) explorer.forget_uses(forgotten);
  Result result;
  bool goes_on = true;
  while (goes_on && explorer.counts().executions < kMostExecutions) {
    explorer.begin_execution();
    const std::string state = run_once(scheduler, program);
    result.states.insert(state);
    if (mode == Explorer::Mode::kReduced && !forgotten && !explorer.was_pruned()) {
      explorer.begin_reordered(explorer.counts().executions);
      EXPECT_EQ(run_once(scheduler, program), state);
      EXPECT_TRUE(explorer.end_reordered());
    }
    goes_on = explorer.end_execution();
  }
  result.counts = explorer.counts();
  result.is_complete = explorer.is_complete();
  result.anomaly = explorer.anomaly();
  return result;
}

// Explores in both modes, and returns the reduced one.
Result compare(const Bodies& program) {
  const Result all = explore(program, Explorer::Mode::kAll);
  Result reduced = explore(program, Explorer::Mode::kReduced);
  EXPECT_TRUE(all.is_complete) << all.anomaly;
  EXPECT_TRUE(reduced.is_complete) << reduced.anomaly;
  EXPECT_EQ(reduced.states, all.states);
  EXPECT_LE(reduced.counts.executions, all.counts.executions);
  return reduced;
}

Body lock_and_note(char letter, int rounds = 1) {
  return [letter, rounds](Shared& shared) {
    for (int i = 0; i < rounds; ++i) {
      shared.first.lock();
      shared.log += letter;
      shared.first.unlock();
    }
  };
}

TEST(Explorer, TwoFibersOnOneMutexHaveTwoOrders) {
  const Result result = compare({lock_and_note('a'), lock_and_note('b')});
  EXPECT_EQ(result.counts.executions, 2u);
  EXPECT_EQ(result.states, (std::set<std::string>{"ab=0", "ba=0"}));
}

TEST(Explorer, ThreeFibersOnOneMutexHaveSixOrders) {
  EXPECT_EQ(compare({lock_and_note('a'), lock_and_note('b'), lock_and_note('c')}).counts.executions,
            6u);
}

TEST(Explorer, RoundsOnOneMutexHaveBinomiallyManyOrders) {
  EXPECT_EQ(compare({lock_and_note('a', 2), lock_and_note('b', 2)}).counts.executions, 6u);
  EXPECT_EQ(compare({lock_and_note('a', 3), lock_and_note('b', 3)}).counts.executions, 20u);
}

TEST(Explorer, IndependentMutexesHaveOneOrder) {
  const Body on_second = [](Shared& shared) {
    for (int i = 0; i < 3; ++i) {
      shared.second.lock();
      ++shared.value;
      shared.second.unlock();
    }
  };
  const Result result = compare({lock_and_note('a', 3), on_second});
  EXPECT_EQ(result.counts.executions, 1u);
  EXPECT_EQ(result.counts.pruned, 0u);
}

TEST(Explorer, AtomicsAreDependentButForReadsAndForSumsThatNobodySees) {
  const Body add = [](Shared& shared) {
    running().yield();
    shared.atomic += 1;
  };
  const Body look = [](Shared& shared) {
    running().yield();
    const int seen = shared.atomic.load();
    if (seen == 2) shared.value = 1;
  };
  EXPECT_EQ(compare({add, add, add}).counts.executions, 1u);
  EXPECT_EQ(compare({look, look, look}).counts.executions, 1u);
  EXPECT_EQ(compare({add, add, look}).counts.executions, 4u);  // who came before the look
}

TEST(Explorer, ALostNotificationIsFound) {
  const Body wait = [](Shared& shared) {
    shared.first.lock();
    while (shared.atomic.load() == 0) shared.changed.wait(shared.first, kNever);
    shared.first.unlock();
  };
  const Body notify_with_mutex = [](Shared& shared) {
    shared.first.lock();
    shared.atomic.store(1);
    shared.changed.notify_all();
    shared.first.unlock();
  };
  const Body notify_without = [](Shared& shared) {
    running().yield();
    shared.atomic.store(1);
    shared.changed.notify_all();
  };
  EXPECT_EQ(compare({wait, notify_with_mutex}).states, (std::set<std::string>{"=0"}));
  EXPECT_EQ(compare({wait, notify_without}).states, (std::set<std::string>{"=0", "=0 deadlock"}));
}

TEST(Explorer, ADeadlockOfTwoMutexesIsFound) {
  const Body one = [](Shared& shared) {
    shared.first.lock();
    shared.second.lock();
    shared.second.unlock();
    shared.first.unlock();
  };
  const Body other = [](Shared& shared) {
    shared.second.lock();
    shared.first.lock();
    shared.first.unlock();
    shared.second.unlock();
  };
  EXPECT_EQ(compare({one, other}).states, (std::set<std::string>{"=0", "=0 deadlock"}));
  EXPECT_EQ(compare({one, one}).states, (std::set<std::string>{"=0"}));
}

Body produce(int items) {
  return [items](Shared& shared) {
    for (int i = 0; i < items; ++i) {
      shared.first.lock();
      ++shared.value;
      shared.changed.notify_one();
      shared.first.unlock();
    }
  };
}

Body consume(char letter) {
  return [letter](Shared& shared) {
    shared.first.lock();
    while (shared.value == 0) shared.changed.wait(shared.first, kNever);
    --shared.value;
    shared.log += letter;
    shared.first.unlock();
  };
}

TEST(Explorer, EveryWaiterThatNotifyOneCanWakeIsTried) {
  const Result result = compare({consume('a'), consume('b'), produce(2)});
  EXPECT_EQ(result.states, (std::set<std::string>{"ab=0", "ba=0"}));
  EXPECT_EQ(compare({consume('a'), consume('b'), produce(1)}).states,
            (std::set<std::string>{"a=0 deadlock", "b=0 deadlock"}));
}

TEST(Explorer, TimeoutsOfWaitsComeAfterAllThatCanRun) {
  const Body wait = [](Shared& shared) {
    shared.first.lock();
    const bool was_notified =
        shared.changed.wait(shared.first, running().now() + std::chrono::microseconds(5));
    shared.log += was_notified ? 'n' : 't';
    shared.first.unlock();
  };
  const Body notify = [](Shared& shared) {
    running().yield();
    shared.changed.notify_all();
  };
  const Body sleep = [](Shared& shared) {
    running().sleep_until(running().now() + std::chrono::microseconds(5));
    shared.first.lock();
    shared.log += 's';
    shared.first.unlock();
  };
  compare({wait, notify});
  const Result result = compare({wait, notify, sleep});
  EXPECT_EQ(result.states, (std::set<std::string>{"ns=0", "st=0", "ts=0"}));
}

TEST(Explorer, SpawnedFibersHaveNamesThatDoNotDependOnTheOrder) {
  const auto parent = [](char letter) -> Body {
    return [letter](Shared& shared) {
      const FiberId child = running().spawn("child", 0, [&shared, letter] {
        shared.first.lock();
        shared.log += letter;
        shared.first.unlock();
      });
      running().join(child);
    };
  };
  // Which child is first; and of each pair, whether the join or the end of the child is.
  EXPECT_EQ(compare({parent('a'), parent('b')}).counts.executions, 8u);
}

// Fibers with random operations on two mutexes, an atomic and a condition variable. `first`
// guards the log, `second` the value.
Bodies random_program(std::uint32_t seed) {
  std::uint32_t state = seed * 2654435761U + 12345;
  const auto draw = [&state](std::uint32_t below) {
    state = state * 1664525U + 1013904223U;
    return (state >> 16) % below;
  };
  Bodies program;
  for (std::uint32_t thread = 0; thread < 3; ++thread) {
    std::vector<std::uint32_t> operations(thread == 0 ? 2 : 1 + draw(2));
    for (std::uint32_t& each : operations) each = draw(8);
    program.push_back([operations, thread](Shared& shared) {
      for (const std::uint32_t operation : operations) {
        MutexCore& mutex = operation % 2 == 0 ? shared.first : shared.second;
        if (operation < 4) {
          mutex.lock();
          if (operation < 2)
            shared.atomic.store(shared.atomic.load() * 3 + static_cast<int>(thread));
          if (operation == 2) shared.log += static_cast<char>('a' + thread);
          if (operation == 3) shared.value = shared.value * 7 + static_cast<int>(thread) + 1;
          mutex.unlock();
        } else if (operation < 6) {
          running().yield();
          shared.atomic.store(shared.atomic.load() * 5 + static_cast<int>(thread));
        } else if (operation == 6) {
          shared.first.lock();
          shared.changed.wait(shared.first, running().now() + std::chrono::microseconds(1));
          shared.log += static_cast<char>('A' + thread);
          shared.first.unlock();
        } else {
          shared.changed.notify_one();
        }
      }
      shared.first.lock();
      if (shared.atomic.load() > 9) shared.log += '!';
      shared.first.unlock();
    });
  }
  return program;
}

TEST(Explorer, RandomProgramsReachTheStatesOfPlainEnumeration) {
  std::uint64_t all = 0;
  std::uint64_t reduced = 0;
  int compared = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Bodies program = random_program(seed);
    const Result plain = explore(program, Explorer::Mode::kAll);
    const Result fewer = explore(program, Explorer::Mode::kReduced);
    ASSERT_TRUE(fewer.is_complete) << fewer.anomaly;
    ASSERT_EQ(plain.anomaly, "");
    if (!plain.is_complete) continue;  // too many interleavings
    ++compared;
    ASSERT_EQ(fewer.states, plain.states);
    all += plain.counts.executions;
    reduced += fewer.counts.executions;
  }
  EXPECT_GT(compared, 50);
  EXPECT_LT(reduced * 4, all);
}

// Negative control: the tests above can fail. Without the uses of one kind of object the reduction
// misses states.
TEST(Explorer, MissesAStateWhenOneKindOfObjectIsForgotten) {
  // `first` is the first object of a run, `atomic` the fourth.
  const std::uint64_t kind_of_mutex = 1, kind_of_atomic = 4;
  const auto forgets = [](std::uint64_t number) {
    return [number](std::uint64_t object) { return object >> 24 == number; };
  };
  const Bodies locks = {lock_and_note('a'), lock_and_note('b')};
  EXPECT_EQ(explore(locks, Explorer::Mode::kAll).states.size(), 2u);
  EXPECT_EQ(explore(locks, Explorer::Mode::kReduced, forgets(kind_of_mutex)).states.size(), 1u);
  const Body twice = [](Shared& shared) {
    running().yield();
    shared.value = shared.atomic.fetch_add(1) == 0 ? 1 : shared.value;
  };
  const Body store = [](Shared& shared) {
    running().yield();
    shared.atomic.store(5);
  };
  const Bodies atomics = {twice, store};
  EXPECT_EQ(explore(atomics, Explorer::Mode::kReduced).states.size(), 2u);
  EXPECT_EQ(explore(atomics, Explorer::Mode::kReduced, forgets(kind_of_atomic)).states.size(), 1u);
}

// Another order of independent steps does the same: here it does not, because the fibers share
// memory that the search does not see.
TEST(Explorer, AnotherOrderShowsMemoryThatTheSearchDoesNotSee) {
  const auto note = [](char letter) -> Body {
    return [letter](Shared& shared) {
      running().yield();
      shared.log += letter;
    };
  };
  const Bodies program = {note('a'), note('b')};
  Scheduler scheduler;
  int different = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Explorer explorer;
    explorer.begin_execution();
    const std::string state = run_once(scheduler, program);
    explorer.begin_reordered(seed);
    if (run_once(scheduler, program) != state) ++different;
    EXPECT_TRUE(explorer.end_reordered());
    EXPECT_FALSE(explorer.end_execution());
  }
  EXPECT_GT(different, 0);
}

TEST(Explorer, GoesOnFromAState) {
  const Bodies program = {lock_and_note('a', 3), lock_and_note('b', 3)};
  Scheduler scheduler;
  Explorer::State saved;
  std::set<std::string> states;
  bool goes_on = true;
  while (goes_on) {
    Explorer explorer;  // as a new process
    explorer.restore(saved);
    explorer.begin_execution();
    states.insert(run_once(scheduler, program));
    goes_on = explorer.end_execution();
    saved = explorer.state();
    EXPECT_EQ(explorer.remaining() != 0, goes_on);
  }
  EXPECT_EQ(states.size(), 20u);
  EXPECT_EQ(saved.counts.executions, 20u);
}

TEST(Explorer, AProbeEstimatesTheNumberOfExecutions) {
  Scheduler scheduler;
  const auto estimate = [&](const Bodies& program) {
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      Explorer explorer;
      explorer.begin_probe(seed);
      run_once(scheduler, program);
      sum += explorer.end_probe();
    }
    return sum / 200;
  };
  EXPECT_EQ(estimate({lock_and_note('a'), lock_and_note('b')}), 2);
  const double small = estimate({lock_and_note('a', 2), lock_and_note('b', 2)});  // 6
  EXPECT_GT(small, 3);
  EXPECT_LT(small, 12);
  EXPECT_GT(estimate({lock_and_note('a', 30), lock_and_note('b', 30)}), 1e6);
}

}  // namespace
}  // namespace lockstep::simulation
