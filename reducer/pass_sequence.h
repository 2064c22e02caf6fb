// PassSequence holds the pass that is open or running, numbers passes, and uses the memory of the
// previous pass again.
// Threads: the thread that trains; hooks read the current pass while that thread is inside the
// backward.
#pragma once

#include <cstdint>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/pass.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class PassSequence {
 public:
  // The pass that is open or running; null if there is none.
  const Ref<Pass>& current() const { return current_; }
  bool is_running() const { return current_ && current_->state == Pass::State::kRunning; }
  // kNone if there is no pass, or none of its backwards has begun.
  std::int64_t number() const { return current_ ? current_->number : kNone; }
  std::int64_t next() const { return next_; }
  void start_over() { next_ = 0; }

  void open(Reducer* reducer, int rank) {
    LOCKSTEP_CHECK(!current_);
    if (closed_ && closed_->use_count() == 1) {  // None of its outputs is left.
      current_ = std::move(closed_);
      current_->reopen(reducer, rank);
    } else {
      current_ = make_ref<Pass>(reducer, rank);
    }
  }
  // The first backward of the open pass begins.
  void start() {
    LOCKSTEP_CHECK(current_->state == Pass::State::kOpen);
    current_->state = Pass::State::kRunning;
    current_->number = next_++;
  }
  void close(bool complete) {
    if (!current_) return;
    current_->close(complete);
    closed_ = std::move(current_);
  }

 private:
  Ref<Pass> current_;
  Ref<Pass> closed_;
  std::int64_t next_ = 0;  // The number of the next pass to start.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
