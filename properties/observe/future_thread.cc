#include "properties/observe/future_thread.h"

#include <chrono>
#include <utility>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// How long the thread takes for one future.
constexpr platform::Duration kTakes = std::chrono::microseconds(150);
// How long the thread waits for the last promise of a pass in reversed order.
constexpr platform::Duration kPatience = std::chrono::milliseconds(5);

}  // namespace

FutureThread::~FutureThread() {
  {
    platform::MutexLock lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void FutureThread::promise(std::shared_ptr<Work> future, Flag is_complete, Status outcome,
                           bool is_last) {
  platform::MutexLock lock(mutex_);
  promises_.push_back({std::move(future), std::move(is_complete), std::move(outcome)});
  has_last_ = has_last_ || is_last;
  if (!thread_.joinable()) thread_ = platform::Thread("hook.futures", [this] { run(); });
  changed_.notify_all();
}

void FutureThread::run() {
  platform::MutexLock lock(mutex_);
  while (true) {
    changed_.wait(mutex_, platform::Deadline::never(),
                  [this] { return is_stopping_ || !promises_.empty(); });
    if (is_reversed_)
      changed_.wait(mutex_, platform::Deadline::in(kPatience),
                    [this] { return is_stopping_ || has_last_; });
    changed_.wait(mutex_, platform::Deadline::in(kTakes), [this] { return is_stopping_; });
    if (is_stopping_) return;
    const auto next = is_reversed_ ? promises_.end() - 1 : promises_.begin();
    Promise promise = std::move(*next);
    promises_.erase(next);
    has_last_ = has_last_ && !promises_.empty();
    lock.unlock();
    promise.is_complete->store(true);
    promise.future->complete(std::move(promise.outcome));
    promise = {};
    lock.lock();
  }
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
