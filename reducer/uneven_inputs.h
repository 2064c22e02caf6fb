// UnevenInputs knows which ranks take part in the mean: all of them, or under a join those that
// still train (S2). It decides what all ranks do next when ranks have uneven inputs.
//
// Between begin_join() and end_join() every rank announces what it is about to start, by the sum of
// a few numbers over all ranks. A rank that is out of inputs announces kNone; it then shadows what
// the others start, with zeros, until no rank trains any more. The sum is the same on every rank,
// so all ranks decide alike.
//
// Threads: the thread that trains. Hooks call is_shadowing() while that thread is inside the
// backward.
// Memory: begin() reserves all of it.
// Failure: agree() returns kMismatch if ranks are at different points or have different options,
// and kUnevenInputs if the options ask for that when the first rank is out of inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reducer/comm/process_group.h"
#include "reducer/gradient_scale.h"
#include "reducer/options.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class UnevenInputs {
 public:
  // What a rank is about to start. kNone: it is out of inputs.
  enum class Event : std::uint8_t { kBuffers, kRebuild, kPass, kNone };

  bool is_joining() const { return joining_.has_value(); }
  // kInvalidArgument if a join has begun already.
  Status begin(const JoinOptions& options, int ranks);
  void end() { joining_.reset(); }

  // The factor that makes a mean of the sum over the ranks that take part. agree() sets it under a
  // join; otherwise the whole group takes part.
  const GradientScale& scale() const { return scale_; }
  void divide_by(int ranks) { scale_.divide_by(ranks); }

  // The sum over all ranks that announces the event of this rank. Its data belongs to this object.
  Collective announce(Event event, int rank, int ranks);
  // Interprets the sum: what the ranks that train are about to start, kNone if no rank trains.
  Result<Event> agree();

  // Whether all ranks trained in the last event on which they agreed, and the lowest one that did.
  bool all_train() const;
  // Rank 0 before the first event.
  int lowest_that_trains() const;

  // Whether this rank shadows a pass of other ranks, and contributes zeros.
  bool is_shadowing() const { return is_shadowing_; }
  void set_shadowing(bool is_shadowing) { is_shadowing_ = is_shadowing; }

 private:
  Failure mismatch(std::int32_t ranks, std::int32_t active) const;
  Failure early_termination(std::span<const std::int32_t> flags) const;
  bool is_uniform(std::size_t entry, std::int32_t ranks) const {
    return state_[entry] == 0 || state_[entry] == ranks;
  }

  std::optional<JoinOptions> joining_;  // Set between begin() and end().
  // One entry for each rank: 1 if the rank trained in the last event.
  std::vector<std::int32_t> active_;
  std::vector<std::int32_t> state_;  // The sum.
  GradientScale scale_;
  bool is_shadowing_ = false;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
