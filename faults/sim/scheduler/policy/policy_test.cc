// Tests which orders the policies find that a random walk hardly finds, and that no policy starves
// a fiber.
#include "faults/sim/scheduler/policy/policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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
  EXPECT_FALSE(is_found(scheduler, {Policy::kCounting, 0, {}}));
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

// As is_second_first(), with a mutex.
bool is_second_first_to_lock(Scheduler& scheduler, const Schedule& schedule) {
  scheduler.reset(schedule);
  MutexCore mutex("policy_test");
  int first = -1;
  const auto use = [&](int who) {
    mutex.lock();
    if (first < 0) first = who;
    mutex.unlock();
  };
  scheduler.spawn("late", 0, [&] {
    for (int i = 0; i < kSteps; ++i) Scheduler::running()->point();
    use(0);
  });
  scheduler.spawn("early", 0, [&] { use(1); });
  EXPECT_EQ(scheduler.run().end, End::kFinished);
  return first == 0;
}

TEST(SchedulingPolicy, ASelectivelyUniformWalkOrdersLocksAlone) {
  EXPECT_LT(found(Policy::kRandomWalk, is_second_first_to_lock), 10);
  EXPECT_GT(found(Policy::kSurw, is_second_first_to_lock), 300);  // half of them
  EXPECT_LT(found(Policy::kSurw, is_second_first_to_lock), 700);
}

TEST(SchedulingPolicy, CountsBelongToNamesAndGroups) {
  Scheduler scheduler;
  is_second_first_to_lock(scheduler, {Policy::kCounting, 0, {}});
  const std::vector<EventCounts::Entry>& counts = scheduler.event_counts().entries();
  ASSERT_EQ(counts.size(), 2U);
  const NameId lock = intern_name("policy_test");
  for (const EventCounts::Entry& entry : counts) {
    EXPECT_EQ(entry.fibers, 1U) << entry.name;
    EXPECT_LE(entry.locks[lock], 1U) << entry.name;
    EXPECT_GE(entry.events, entry.locks[lock]) << entry.name;
  }
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
