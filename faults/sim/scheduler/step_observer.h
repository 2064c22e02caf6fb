// StepObserver: a policy that also sees what each step does. A step is what a fiber runs from one
// scheduling point to the next. The observer learns of every step, also where there is no choice,
// and of every object of the simulator that the step uses. The search over all interleavings
// (faults/sim/explore) is one; the policies that count steps are others.
//
// What counts as a use: locking, unlocking and waiting for a mutex; waiting for a condition
// variable, and notifying it; waiting at a Place, and waking it; every operation of a
// platform::Atomic; a message, and the state of a link (faults/sim/network.h); the queue of a
// simulated group; joining a fiber, and its end. Memory that fibers share in other ways is not
// seen.
//
// Threads: the scheduler's. While an observer is set by Scheduler::observe(), the schedules that
// are given to the scheduler are ignored: the observer picks.
#pragma once

#include <cstdint>

#include "faults/sim/scheduler/object_id.h"
#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {

class StepObserver : public SchedulingPolicy {
 public:
  // The step before has ended, and `fiber` runs next.
  virtual void on_step(const Fiber& fiber) = 0;
  // The current step uses the object.
  virtual void on_access(std::uint64_t /*object*/, Access) {}
  // The current step, or a timer, makes `fiber` runnable, which waited.
  virtual void on_wake(FiberId /*fiber*/) {}
  // The current step joins `fiber`, or is the last one of `fiber`.
  virtual void on_meet(FiberId /*fiber*/) {}
  // The step before has ended, nothing can run, and the time advances.
  virtual void on_time() {}

  StepObserver* as_step_observer() final { return this; }
};

}  // namespace lockstep::simulation
