// The platform `os`: the standard library. See reducer/platform/platform.h for the interface.
#pragma once

#ifndef LOCKSTEP_NS
#define LOCKSTEP_NS os
#endif

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

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

class Mutex {
 public:
  explicit Mutex(const char*) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

class MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) : lock_(mutex.mutex_) {}
  void lock() { lock_.lock(); }
  void unlock() { lock_.unlock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

class CondVar {
 public:
  explicit CondVar(const char*) {}
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  template <class Predicate>
  bool wait(MutexLock& lock, Deadline deadline, Predicate predicate) {
    if (deadline.is_never()) {
      condition_.wait(lock.lock_, predicate);
      return true;
    }
    const std::chrono::steady_clock::time_point until(deadline.at());
    return condition_.wait_until(lock.lock_, until, predicate);
  }

 private:
  std::condition_variable condition_;
};

class Thread {
 public:
  Thread() = default;
  Thread(std::string, std::function<void()> body) : thread_(std::move(body)) {}
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
