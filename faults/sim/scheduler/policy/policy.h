// SchedulingPolicy picks the fiber that runs next where more than one can. Each policy is one file
// in this folder; policies.cc lists them. The scheduler records the picks of a policy as deviations
// from the default policy, so that replay and shrinking need only the default policy.
//
// A policy decides from its arguments and from random() alone, so the same seed gives the same
// picks.
//
// Threads: the scheduler's. Cost: the scheduler calls the policy at each choice, some hundred times
// in a case; a policy allocates nothing in these calls. Failure: none.
#pragma once

#include <cstdint>
#include <memory>

#include "faults/sim/scheduler/event_counts.h"
#include "faults/sim/scheduler/fiber.h"
#include "faults/sim/scheduler/index_set.h"
#include "faults/sim/scheduler/schedule.h"

namespace lockstep::simulation {

using FiberSet = IndexSet<kMaxFibers / 64>;

struct Choice {
  const RunSet<kMaxFibers / 64>& runnable;  // the fibers that can run, at least two
  const Fiber* const* fibers;               // by id
  FiberId current;                          // the fiber that ran last; kNoFiber at the beginning
  bool may_stay;                            // whether `current` is runnable
  std::uint64_t number;                     // the number of this choice in the run, from 0
  FiberId by_default;                       // what the default policy picks without deviations
};

class StepObserver;  // step_observer.h

class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;

  // Begins a run: forgets the last one, and sets the seed of random(). The counts are the
  // scheduler's; only the policy kCounting changes them.
  void begin(std::uint64_t seed, EventCounts& counts);

  // Returns a runnable fiber.
  virtual FiberId pick(const Choice& choice) = 0;
  // Returns which of the fibers that wait for a condition variable notify_one() wakes. `first` has
  // waited longest. Unless a policy overrides this, it is any of them.
  virtual FiberId pick_waiter(const FiberSet& waiters, FiberId first);
  // A fiber is spawned, by `parent`; by nobody (null) before the run. Its id may be that of a fiber
  // that has ended.
  virtual void on_spawn(const Fiber& /*fiber*/, const Fiber* /*parent*/) {}
  // The fiber calls yield(): it waits in a loop for another fiber.
  virtual void on_yield(FiberId) {}
  // A policy that has to see every step, also where there is no choice, is a StepObserver.
  virtual StepObserver* as_step_observer() { return nullptr; }

 protected:
  // Called by begin(), after the seed is set.
  virtual void restart() {}
  std::uint64_t random();                     // splitmix64
  EventCounts& counts() { return *counts_; }  // see event_counts.h
  std::uint32_t random_below(std::uint32_t count) {
    return static_cast<std::uint32_t>(((random() >> 32) * count) >> 32);
  }

 private:
  std::uint64_t state_ = 0;
  EventCounts* counts_ = nullptr;
};

// Returns a new policy; null for the default policy, which the scheduler implements itself.
std::unique_ptr<SchedulingPolicy> make_policy(Policy policy);

std::unique_ptr<SchedulingPolicy> make_random_walk();
std::unique_ptr<SchedulingPolicy> make_stay_biased();
std::unique_ptr<SchedulingPolicy> make_round_robin();
std::unique_ptr<SchedulingPolicy> make_pos();
std::unique_ptr<SchedulingPolicy> make_pct();
std::unique_ptr<SchedulingPolicy> make_delay_bounded();
std::unique_ptr<SchedulingPolicy> make_urw();
std::unique_ptr<SchedulingPolicy> make_surw();
std::unique_ptr<SchedulingPolicy> make_counting();

}  // namespace lockstep::simulation
