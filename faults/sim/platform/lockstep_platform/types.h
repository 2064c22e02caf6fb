// The platform `sim`: threads are fibers of the simulator. reducer/platform/platform.h documents
// the interface, and faults/sim/scheduler implements it. A thread joins the group (the rank) of the
// fiber that creates it.
//
// Outside of a run there are no threads: locks do nothing, the time is 0, and a wait whose
// predicate does not hold must have a deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "faults/sim/scheduler/scheduler.h"
#include "faults/sim/scheduler/sync.h"
#include "reducer/base/build_namespace.h"
#include "reducer/base/check.h"
#include "reducer/base/thread_safety.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace platform {

using Duration = std::chrono::nanoseconds;

inline Duration now() {
  const simulation::Scheduler* scheduler = simulation::Scheduler::running();
  return scheduler == nullptr ? Duration(0) : scheduler->now();
}

class Deadline {
 public:
  static Deadline never() { return Deadline(Duration::max()); }
  static Deadline at(Duration when) { return Deadline(when); }
  static Deadline in(Duration span) {
    const Duration start = now();
    return Deadline(span > Duration::max() - start ? Duration::max() : start + span);
  }
  bool is_never() const { return at_ == Duration::max(); }
  bool passed() const { return !is_never() && now() >= at_; }
  Duration remaining() const { return is_never() ? Duration::max() : at_ - now(); }
  Duration at() const { return at_; }

 private:
  explicit Deadline(Duration at) : at_(at) {}
  Duration at_;
};

class LOCKSTEP_CAPABILITY("mutex") Mutex {
 public:
  explicit Mutex(const char* name) : core_(name) {}

 private:
  friend class MutexLock;
  friend class MutexUnlock;
  friend class CondVar;
  simulation::MutexCore core_;
};

class LOCKSTEP_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LOCKSTEP_ACQUIRE(mutex) : core_(mutex.core_) {
    core_.lock();
    is_locked_ = true;
  }
  ~MutexLock() LOCKSTEP_RELEASE() {
    if (is_locked_) core_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() LOCKSTEP_ACQUIRE() {
    LOCKSTEP_CHECK(!is_locked_);
    core_.lock();
    is_locked_ = true;
  }
  void unlock() LOCKSTEP_RELEASE() {
    LOCKSTEP_CHECK(is_locked_);
    core_.unlock();
    is_locked_ = false;
  }

 private:
  simulation::MutexCore& core_;
  bool is_locked_ = false;
};

// The destructor acquires the mutex again. It has the attribute of a release all the same, because
// clang's analysis reads a release at the end of a scope as the end of what the constructor did.
class LOCKSTEP_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) LOCKSTEP_RELEASE(mutex) : core_(mutex.core_) {
    core_.unlock();
  }
  ~MutexUnlock() LOCKSTEP_RELEASE() { core_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  simulation::MutexCore& core_;
};

class CondVar {
 public:
  explicit CondVar(const char* name) : core_(name) {}
  void notify_one() { core_.notify_one(); }
  void notify_all() { core_.notify_all(); }

  // Clang does not analyse this body, because it cannot see that the mutex that the predicate
  // requires is `mutex`.
  template <class Predicate>
  bool wait(Mutex& mutex, Deadline deadline, Predicate predicate)
      LOCKSTEP_REQUIRES(mutex) LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS {
    while (!predicate())
      if (!core_.wait(mutex.core_, deadline.at())) {
        const bool holds = predicate();
        core_.note_end_by_deadline(holds, deadline.at());
        return holds;
      }
    return true;
  }

 private:
  simulation::CondVarCore core_;
};

class Thread {
 public:
  Thread() = default;
  Thread(const std::string& name, std::function<void()> body) {
    simulation::Scheduler* scheduler = simulation::Scheduler::running();
    LOCKSTEP_CHECK(scheduler != nullptr);  // only fibers create threads
    fiber_ = scheduler->spawn(name, scheduler->current_group(), std::move(body));
  }
  Thread(Thread&& other) noexcept : fiber_(std::exchange(other.fiber_, simulation::kNoFiber)) {}
  Thread& operator=(Thread&& other) noexcept {
    LOCKSTEP_CHECK(!joinable());
    fiber_ = std::exchange(other.fiber_, simulation::kNoFiber);
    return *this;
  }
  ~Thread() { LOCKSTEP_CHECK(!joinable()); }

  bool joinable() const { return fiber_ != simulation::kNoFiber; }
  void join() {
    LOCKSTEP_CHECK(joinable());
    simulation::Scheduler::running()->join(fiber_);
    fiber_ = simulation::kNoFiber;
  }

 private:
  simulation::FiberId fiber_ = simulation::kNoFiber;
};

// A thread's id is that of its fiber. Outside of a run it is kNoFiber.
using ThreadId = simulation::FiberId;
inline ThreadId this_thread() {
  const simulation::Scheduler* scheduler = simulation::Scheduler::running();
  return scheduler == nullptr ? simulation::kNoFiber : scheduler->current_id();
}

inline void yield() {
  if (simulation::Scheduler* scheduler = simulation::Scheduler::running()) scheduler->yield();
}

// No operation is a scheduling point. A search over all orders (faults/sim/explore) must know
// which steps use the same atomic, so each operation tells. The operators += and -= return nothing,
// so that two of them commute.
template <class T>
class Atomic {
 public:
  Atomic() = default;
  Atomic(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): as std::atomic
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order order = std::memory_order_seq_cst) const {
    simulation::Scheduler::touch(id_, simulation::Access::kRead);
    return value_.load(order);
  }
  operator T() const { return load(); }  // NOLINT(google-explicit-constructor): as std::atomic
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    touch();
    value_.store(value, order);
  }
  T operator=(T value) {  // NOLINT(misc-unconventional-assign-operator): as std::atomic
    store(value);
    return value;
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
    touch();
    return value_.exchange(value, order);
  }
  bool compare_exchange_strong(T& expected, T desired) {
    touch();
    return value_.compare_exchange_strong(expected, desired);
  }
  T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) {
    touch();
    return value_.fetch_add(value, order);
  }
  T fetch_sub(T value, std::memory_order order = std::memory_order_seq_cst) {
    touch();
    return value_.fetch_sub(value, order);
  }
  void operator+=(T value) {
    simulation::Scheduler::touch(id_, simulation::Access::kAdd);
    value_ += value;
  }
  void operator-=(T value) {
    simulation::Scheduler::touch(id_, simulation::Access::kAdd);
    value_ -= value;
  }

 private:
  void touch() { simulation::Scheduler::touch(id_, simulation::Access::kWrite); }

  std::atomic<T> value_{};
  simulation::ObjectId id_;
};

}  // namespace platform
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
