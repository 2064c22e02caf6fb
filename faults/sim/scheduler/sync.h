// MutexCore and CondVarCore: the implementation of the simulated platform's Mutex and CondVar.
//
// Threads: fibers of one scheduler. Outside of a run locking does nothing, because there is no
// other fiber. Order: a released mutex goes to the fiber that acquires it first; the fiber that has
// waited longest becomes runnable. A fiber that is woken from a condition variable while the mutex
// is held moves directly to the mutex's queue, because it could do nothing else. Failure: unlocking
// a mutex that the fiber does not hold, or destroying an object that a fiber waits for, is a
// programmer error.
#pragma once

#include "faults/sim/scheduler/scheduler.h"

namespace lockstep::simulation {

class MutexCore {
 public:
  explicit MutexCore(const char* name) : name_(intern_name(name)) {}
  ~MutexCore();
  MutexCore(const MutexCore&) = delete;
  MutexCore& operator=(const MutexCore&) = delete;

  void lock();
  void unlock();
  NameId name() const { return name_; }
  const Fiber* owner() const { return owner_; }

 private:
  friend class CondVarCore;
  void acquire(Scheduler& scheduler);  // not a scheduling point
  void release(Scheduler& scheduler);
  void take(Fiber& fiber);

  Fiber* owner_ = nullptr;
  FiberQueue waiters_;
  NameId name_;
  ObjectId id_;
};

class CondVarCore {
 public:
  explicit CondVarCore(const char* name) : name_(name) {}
  ~CondVarCore();
  CondVarCore(const CondVarCore&) = delete;
  CondVarCore& operator=(const CondVarCore&) = delete;

  // Releases the mutex, waits, and acquires the mutex again. Returns false if the deadline passed
  // first. A scheduling point comes before all that, while the mutex is held, so that a
  // notification without the mutex can be lost.
  bool wait(MutexCore& mutex, Duration until);
  // Notes a late wait. The wait of the caller ended at its deadline, and `holds` says whether its
  // condition is true now.
  void note_end_by_deadline(bool holds, Duration until) const;
  void notify_one();
  void notify_all();
  const char* name() const { return name_; }
  FiberId last_notifier() const { return last_notifier_; }

 private:
  void wake(Scheduler& scheduler, Fiber& fiber);

  FiberQueue waiters_;
  const char* name_;
  FiberId last_notifier_ = kNoFiber;
  ObjectId id_;
};

}  // namespace lockstep::simulation
