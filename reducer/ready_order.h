// ReadyOrder records the order in which the parameters of the first pass became ready, which the
// rebuilt buckets follow (B2).
//
// Threads: one call at a time. While a backward runs, the reducer's mutex sees to that.
// Order: the order is recorded in the first pass that is complete on all ranks. Then all ranks take
// the order of rank 0, which is broadcast into span(); then the buckets are rebuilt, once.
// Memory: all of it is reserved by start_over(), so that no pass allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reducer/base/build_namespace.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class ReadyOrder {
 public:
  // Forgets everything that was recorded for this number of parameters or another one.
  void start_over(std::size_t parameters) {
    order_.clear();
    order_.reserve(parameters);
    state_ = State::kRecording;
  }

  // A pass that was not complete, or that other ranks trained alone, has left no order.
  void begin_pass() {
    if (state_ == State::kRecording) order_.clear();
  }
  void note_ready(std::uint32_t parameter) {
    if (state_ == State::kRecording) order_.push_back(static_cast<std::int32_t>(parameter));
  }
  // A pass is complete, in which every rank trained.
  void end_pass() {
    if (state_ == State::kRecording) state_ = State::kRecorded;
  }
  void mark_rebuilt() {
    LOCKSTEP_CHECK(state_ == State::kRecorded);
    state_ = State::kRebuilt;
  }

  // Whether the next forward is to rebuild the buckets.
  bool is_rebuild_due() const { return state_ == State::kRecorded; }
  bool is_rebuilt() const { return state_ == State::kRebuilt; }
  // The parameters, by number, in the order in which they became ready. Rank 0 broadcasts it.
  std::span<std::int32_t> span() { return order_; }
  std::span<const std::int32_t> span() const { return order_; }

 private:
  enum class State : std::uint8_t { kRecording, kRecorded, kRebuilt };
  State state_ = State::kRecording;
  std::vector<std::int32_t> order_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
