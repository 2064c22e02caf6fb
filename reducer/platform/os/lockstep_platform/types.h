// The platform `os`: the standard library. See reducer/platform/platform.h for the interface.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "reducer/base/build_namespace.h"
#include "reducer/base/thread_safety.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace platform {

using Duration = std::chrono::nanoseconds;

inline Duration now() { return std::chrono::steady_clock::now().time_since_epoch(); }

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
  explicit Mutex(const char*) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  friend class MutexUnlock;
  friend class CondVar;
  std::mutex mutex_;
};

class LOCKSTEP_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LOCKSTEP_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() LOCKSTEP_RELEASE() = default;
  void lock() LOCKSTEP_ACQUIRE() { lock_.lock(); }
  void unlock() LOCKSTEP_RELEASE() { lock_.unlock(); }

 private:
  std::unique_lock<std::mutex> lock_;
};

// The analysis calls the end of its scope a release, and takes the mutex as acquired again.
class LOCKSTEP_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) LOCKSTEP_RELEASE(mutex) : mutex_(mutex.mutex_) {
    mutex_.unlock();
  }
  ~MutexUnlock() LOCKSTEP_RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  std::mutex& mutex_;
};

class CondVar {
 public:
  explicit CondVar(const char*) {}
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  // The analysis cannot see that the predicate's mutex is this one.
  template <class Predicate>
  bool wait(Mutex& mutex, Deadline deadline, Predicate predicate)
      LOCKSTEP_REQUIRES(mutex) LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS {
    Borrowed borrowed(mutex);
    if (deadline.is_never()) {
      condition_.wait(borrowed.lock, predicate);
      return true;
    }
    const std::chrono::steady_clock::time_point until(deadline.at());
    return condition_.wait_until(borrowed.lock, until, predicate);
  }

 private:
  // The lock of the caller, as the standard library wants it. It stays locked.
  struct Borrowed {
    explicit Borrowed(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Borrowed() { lock.release(); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable condition_;
};

class Thread {
 public:
  Thread() = default;
  Thread(const std::string&, std::function<void()> body) : thread_(std::move(body)) {}
  Thread(Thread&&) = default;
  Thread& operator=(Thread&&) = default;
  bool joinable() const { return thread_.joinable(); }
  void join() { thread_.join(); }

 private:
  std::thread thread_;
};

using ThreadId = std::thread::id;
inline ThreadId this_thread() { return std::this_thread::get_id(); }

inline void yield() {}

template <class T>
using Atomic = std::atomic<T>;

}  // namespace platform
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
