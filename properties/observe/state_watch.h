// StateWatch: says what a rank's reducer is doing (faults/reducer_state.h), as the training loop
// sees it from outside: by the calls of the subject, the gradients that arrive, and the collectives
// that are started. It tells the environment each change, so that a fault knows in which state it
// acts.
//
// Threads: any thread of the rank, also under locks of the reducer. In the simulator no call is a
// scheduling point, so a schedule does not depend on it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <numeric>

#include "faults/reducer_state.h"
#include "properties/observe/environment.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class StateWatch {
 public:
  using State = faults::ReducerState;

  explicit StateWatch(RankEnvironment& environment) : environment_(environment) {}
  // Nothing is told before this call.
  void begin() {
    is_on_ = environment_.wants_states();
    enter(State::kIdle);
  }
  bool is_on() const { return is_on_; }

  // From outside of passes: between steps (kIdle), end_join(), and a recovery.
  void enter(State state) {
    if (!is_on_) return;
    const std::scoped_lock lock(mutex_);
    set(state);
  }

  // A synced forward has returned outputs; its pass reduces as many buckets.
  void forward_returned(std::uint32_t buckets) {
    if (!is_on_) return;
    const std::scoped_lock lock(mutex_);
    if (state_ != State::kIdle) return;  // a further forward of the same pass
    buckets_ = buckets;
    launched_.fill(0);
    set(State::kArmed);
  }

  void module_begins() {
    if (!is_on_) return;
    const std::scoped_lock lock(mutex_);
    if (state_ == State::kRebuilding) set(State::kIdle);
  }

  void gradient_arrives() {
    if (!is_on_) return;
    const std::scoped_lock lock(mutex_);
    if (state_ == State::kArmed) set(State::kReducing);
  }

  // Only the order of the rebuilt buckets is broadcast as integers.
  void collective_begins(const Collective& collective) {
    if (!is_on_) return;
    const std::scoped_lock lock(mutex_);
    const bool is_order = collective.op == Op::kBroadcast && collective.dtype == DType::kInt32;
    if (state_ == State::kIdle && is_order) set(State::kRebuilding);
  }

  void bucket_launched(std::uint32_t reducer, int bucket) {
    if (!is_on_) return;
    const std::scoped_lock lock(mutex_);
    const bool is_in_pass =
        state_ == State::kArmed || state_ == State::kReducing || state_ == State::kLaunched;
    if (!is_in_pass) return;
    launched_[reducer] = std::max(launched_[reducer], static_cast<std::uint32_t>(bucket) + 1);
    const std::uint32_t all = std::accumulate(launched_.begin(), launched_.end(), 0u);
    set(all >= buckets_ ? State::kFinalizing : State::kLaunched);
  }

  // A backward has returned. If all buckets were launched, or no further backward comes, its pass
  // is over.
  void backward_returned(bool is_last) {
    if (!is_on_) return;
    const std::scoped_lock lock(mutex_);
    if (is_last || state_ == State::kFinalizing) set(State::kIdle);
  }

 private:
  void set(State state) {
    if (state == state_) return;
    state_ = state;
    environment_.set_state(state);
  }

  RankEnvironment& environment_;
  bool is_on_ = false;
  // It is not the platform's mutex, because a schedule must not depend on it: no thread waits while
  // it holds it.
  std::mutex mutex_;
  State state_ = State::kUnknown;
  std::uint32_t buckets_ = 0;
  std::array<std::uint32_t, reference::kMaxReducers> launched_{};  // by reducer
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
