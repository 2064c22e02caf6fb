// Tests which orders the policies find that a random walk hardly finds, and that no policy starves
// a fiber.
#include "faults/sim/scheduler/policy/policy.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "faults/sim/scheduler/scheduler.h"
#include "faults/sim/scheduler/sync.h"

namespace lockstep::simulation {
namespace {

constexpr int kSteps = 20;

// A bug of depth 1 that a random walk hardly finds: one fiber has to take many steps before another
// takes its first.
bool is_overtaken(Scheduler& scheduler, const Schedule& schedule) {
  scheduler.reset(schedule);
  int steps = 0;
  int seen = -1;
  scheduler.spawn("long", 0, [&] {
    for (; steps < kSteps; ++steps) Scheduler::running()->point();
  });
  scheduler.spawn("short", 0, [&] {
    Scheduler::running()->point();
    seen = steps;
  });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  return seen == kSteps;
}

int found(Policy policy, bool (*is_found)(Scheduler&, const Schedule&), int seeds = 1000) {
  Scheduler scheduler;
  int count = 0;
  static_cast<void>(is_found(scheduler, {Policy::kCounting, 0, {}}));
  for (int seed = 0; seed < seeds; ++seed)
    count += is_found(scheduler, {policy, static_cast<std::uint64_t>(seed), {}}) ? 1 : 0;
  return count;
}

TEST(SchedulingPolicy, APriorityThatStaysFindsWhatARandomWalkDoesNot) {
  EXPECT_LT(found(Policy::kRandomWalk, is_overtaken), 10);
  EXPECT_GT(found(Policy::kPct, is_overtaken), 200);
  EXPECT_GT(found(Policy::kPos, is_overtaken), 20);
}

// Two fibers use one object once each, and one of them takes many steps before that use. A policy
// that draws anew for each step hardly ever lets that one be the first.
bool is_second_first(Scheduler& scheduler, const Schedule& schedule) {
  scheduler.reset(schedule);
  Place place{"place", kNoFiber, kNoFiber, kNoFiber, {}};
  int first = -1;
  const auto use = [&](int who) {
    Scheduler::running()->point(&place);
    if (first < 0) first = who;
  };
  scheduler.spawn("late", 0, [&] {
    for (int i = 0; i < kSteps; ++i) Scheduler::running()->point();
    use(0);
  });
  scheduler.spawn("early", 0, [&] { use(1); });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  return first == 0;
}

TEST(SchedulingPolicy, PartialOrderSamplingLetsTheLateOneBeFirstAtTimes) {
  EXPECT_LT(found(Policy::kRandomWalk, is_second_first), 10);
  EXPECT_GT(found(Policy::kPos, is_second_first), 20);
}

// One fiber has to be stopped in the middle, after some number of steps, and once alone.
bool is_stopped_once(Scheduler& scheduler, const Schedule& schedule) {
  constexpr int kBefore = 12;
  scheduler.reset(schedule);
  int steps = 0;
  int seen = -1;
  scheduler.spawn("long", 0, [&] {
    for (; steps < kSteps; ++steps) Scheduler::running()->point();
  });
  scheduler.spawn("short", 0, [&] { seen = steps; });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  return seen == kBefore;
}

TEST(SchedulingPolicy, ADelayStopsAFiberInTheMiddle) {
  EXPECT_EQ(found(Policy::kDefault, is_stopped_once), 0);
  EXPECT_LT(found(Policy::kRandomWalk, is_stopped_once), 5);
  EXPECT_GT(found(Policy::kDelayBounded, is_stopped_once), 8);
}

TEST(SchedulingPolicy, AUniformWalkStopsAFiberAnywhere) {
  EXPECT_GT(found(Policy::kUrw, is_stopped_once), 20);  // one of 21 places
}

// Runs a program under the schedules of 10,000 seeds, and counts how often each order comes that
// the program writes into its log.
using Log = std::string;
using Program = void (*)(Scheduler&, Log&);
std::map<Log, int> orders_of(Program program, Policy policy) {
  constexpr int kSeeds = 10'000;
  Scheduler scheduler;
  std::map<Log, int> counts;
  for (int seed = -1; seed < kSeeds; ++seed) {
    const bool is_counted = seed < 0;
    scheduler.reset(is_counted ? Schedule{Policy::kCounting, 0, {}}
                               : Schedule{policy, static_cast<std::uint64_t>(seed), {}});
    Log log;
    program(scheduler, log);
    EXPECT_EQ(scheduler.run().end, End::kFinished);
    if (!is_counted) ++counts[log];
  }
  return counts;
}

// Pearson's statistic for the claim that all orders are equally likely, as a multiple of its mean
// under that claim. Its standard deviation is then sqrt(2 / (orders - 1)).
double unevenness(const std::map<Log, int>& counts, std::size_t orders) {
  EXPECT_LE(counts.size(), orders);
  double all = 0;
  for (const auto& [log, count] : counts) all += count;
  const double expected = all / static_cast<double>(orders);
  double sum = static_cast<double>(orders - counts.size()) * expected;
  for (const auto& [log, count] : counts) sum += (count - expected) * (count - expected) / expected;
  return sum / static_cast<double>(orders - 1);
}

void log_steps(Log& log, char name, int steps) {
  for (int i = 0; i < steps; ++i) {
    if (i > 0) Scheduler::running()->point();
    log += name;
  }
}

// Fibers of one, two and four steps.
constexpr std::size_t kOrdersOfThree = 105;  // 7! / (1! 2! 4!)
void three_fibers(Scheduler& scheduler, Log& log) {
  scheduler.spawn("a", 0, [&] { log_steps(log, 'a', 1); });
  scheduler.spawn("b", 0, [&] { log_steps(log, 'b', 2); });
  scheduler.spawn("c", 0, [&] { log_steps(log, 'c', 4); });
}

// A fiber spawns another one in its first step; a third one is there from the beginning.
constexpr std::size_t kOrdersWithChild = 126;  // 7! / (3! 2! 2!), of which p is first of p p p c c
void parent_and_child(Scheduler& scheduler, Log& log) {
  scheduler.spawn("parent", 0, [&] {
    log += 'p';
    Scheduler::running()->spawn("child", 0, [&] { log_steps(log, 'c', 2); });
    log_steps(log, 'p', 2);
  });
  scheduler.spawn("other", 0, [&] { log_steps(log, 'o', 2); });
}

TEST(SchedulingPolicy, AUniformWalkTakesEveryInterleavingEquallyOften) {
  for (const auto& [program, orders] :
       {std::pair{&three_fibers, kOrdersOfThree}, std::pair{&parent_and_child, kOrdersWithChild}}) {
    const std::map<Log, int> uniform = orders_of(program, Policy::kUrw);
    EXPECT_EQ(uniform.size(), orders);
    EXPECT_LT(unevenness(uniform, orders), 1.7);  // five standard deviations
    EXPECT_GT(unevenness(orders_of(program, Policy::kRandomWalk), orders), 10);
  }
}

// Two fibers lock a mutex, three times and twice; one of them has much else to do before it.
constexpr std::size_t kOrdersOfLocks = 10;  // 5! / (3! 2!)
void late_locker(Scheduler& scheduler, Log& log) {
  const auto mutex = std::make_shared<MutexCore>("policy_test");
  const auto use = [mutex, &log](char name, int times) {
    for (int i = 0; i < times; ++i) {
      mutex->lock();
      log += name;
      mutex->unlock();
      Scheduler::running()->point();
    }
  };
  scheduler.spawn("late", 0, [use] {
    for (int i = 0; i < kSteps; ++i) Scheduler::running()->point();
    use('l', 3);
  });
  scheduler.spawn("early", 0, [use] { use('e', 2); });
}

TEST(SchedulingPolicy, ASelectivelyUniformWalkTakesEveryOrderOfLocksEquallyOften) {
  const std::map<Log, int> uniform = orders_of(late_locker, Policy::kSurw);
  EXPECT_EQ(uniform.size(), kOrdersOfLocks);
  EXPECT_LT(unevenness(uniform, kOrdersOfLocks), 3.4);  // five standard deviations
  for (const Policy other : {Policy::kRandomWalk, Policy::kUrw})
    EXPECT_GT(unevenness(orders_of(late_locker, other), kOrdersOfLocks), 10);
}

// Two mutexes, whose numbers depend on what the process has named before.
Log order_of_two_mutexes(std::uint64_t seed, const char* first, const char* second) {
  Scheduler scheduler;
  Log log;
  for (const Policy policy : {Policy::kCounting, Policy::kSurw}) {
    scheduler.reset({policy, seed, {}});
    MutexCore one(first);
    MutexCore two(second);
    log.clear();
    for (const char name : {'a', 'b', 'c'})
      scheduler.spawn("fiber", 0, [&log, &one, &two, name] {
        for (MutexCore* const mutex : {&one, &two, &one, &two}) {
          mutex->lock();
          log += name;
          mutex->unlock();
        }
      });
    EXPECT_EQ(scheduler.run().end, End::kFinished);
  }
  return log;
}

TEST(SchedulingPolicy, ASelectivelyUniformWalkIsTheSameInEveryProcess) {
  static_cast<void>(intern_name("policy_test.x2"));
  static_cast<void>(intern_name("policy_test.x1"));
  static_cast<void>(intern_name("policy_test.y1"));
  static_cast<void>(intern_name("policy_test.y2"));
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    ASSERT_EQ(order_of_two_mutexes(seed, "policy_test.x1", "policy_test.x2"),
              order_of_two_mutexes(seed, "policy_test.y1", "policy_test.y2"));
}

TEST(SchedulingPolicy, CountsBelongToNamesAndIncludeWhatIsSpawned) {
  Scheduler scheduler;
  Log log;
  scheduler.reset({Policy::kCounting, 0, {}});
  late_locker(scheduler, log);
  parent_and_child(scheduler, log);
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  const NameId lock = intern_name("policy_test");
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>> events;  // and locks
  for (const EventCounts::Entry& entry : scheduler.event_counts().entries()) {
    EXPECT_EQ(entry.fibers, 1U) << entry.name;
    EXPECT_EQ(entry.own_locks.contains(lock), entry.locks[lock] > 0) << entry.name;
    events[entry.name] = {entry.events, entry.locks[lock]};
  }
  const decltype(events) expected{{"late", {kSteps + 7, 3}},
                                  {"early", {5, 2}},
                                  {"other", {2, 0}},
                                  {"parent", {5, 0}},
                                  {"child", {2, 0}}};
  EXPECT_EQ(events, expected);
}

// With fixed priorities, a fiber that yields in a loop would wait forever for one of a lower
// priority.
TEST(SchedulingPolicy, NoPolicyStarvesAFiberThatOthersWaitFor) {
  for (int policy = 0; policy < static_cast<int>(kPolicies); ++policy) {
    Scheduler scheduler;
    scheduler.set_step_limit(100'000);
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      scheduler.reset({static_cast<Policy>(policy), seed, {}});
      bool is_done = false;
      for (int i = 0; i < 2; ++i)
        scheduler.spawn("waits " + std::to_string(i), 0, [&] {
          while (!is_done) Scheduler::running()->yield();
        });
      scheduler.spawn("works", 0, [&] {
        for (int i = 0; i < kSteps; ++i) Scheduler::running()->point();
        is_done = true;
      });
      ASSERT_EQ(scheduler.run().end, End::kFinished) << policy << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace lockstep::simulation
