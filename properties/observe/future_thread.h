// FutureThread completes the futures of a communication hook (S4) on a thread of its own, some time
// after they were promised: in the order in which they were promised, or in the reverse of it.
//
// Threads: promise() may be called from any thread; the thread begins with the first promise. The
// destructor ends it, and drops the futures that are not complete.
// Order: the flag of a promise is set before its future completes. In reversed order the thread
// waits a few milliseconds for the promise that is marked as the last one of the pass, and not
// longer, because a pass may fail before its last promise.
#pragma once

#include <memory>
#include <vector>

#include "reducer/comm/process_group.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class FutureThread {
 public:
  explicit FutureThread(bool is_reversed) : is_reversed_(is_reversed) {}
  ~FutureThread();
  FutureThread(const FutureThread&) = delete;
  FutureThread& operator=(const FutureThread&) = delete;

  using Flag = std::shared_ptr<platform::Atomic<bool>>;
  // Sets the flag and completes the future with `outcome`, both later and on the thread. `is_last`
  // says that no other promise of the pass follows.
  void promise(std::shared_ptr<Work> future, Flag is_complete, Status outcome, bool is_last);

 private:
  struct Promise {
    std::shared_ptr<Work> future;
    Flag is_complete;
    Status outcome;
  };
  void run();

  const bool is_reversed_;
  platform::Mutex mutex_{"hook.futures"};
  platform::CondVar changed_{"hook.futures"};
  std::vector<Promise> promises_;
  bool has_last_ = false;  // whether the last promise of the pass is among promises_
  bool is_stopping_ = false;
  platform::Thread thread_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
