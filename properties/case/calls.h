// Calls: what a rank calls in one step, in order, as job.h says. Whoever runs a program follows
// this list, or writes it down. A pass with a checkpoint around the whole model has none
// (Recompute). A pure function; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/program.h"

namespace lockstep::properties {

struct Call {
  enum class Kind : std::uint8_t {
    kZeroGrad,       // zeroes gradients as Step::zero_grad says
    kForward,        // runs the forward with this number
    kSyncGradients,  // manual sync: hands all outputs to sync_gradients()
    kEvaluate,       // runs forward 0 without gradients, and drops its outputs
    kOptimizerStep,  // changes the values of parameters
    kDrop,           // lets go of the outputs that dropped_outputs() names for backward `number`
    kBackward,       // runs the backward with this number
    kCheckComplete,  // calls check_complete()
  };
  Kind kind = Kind::kForward;
  // The number of the forward, or of the backward call; for what a rank does just before a backward
  // call, the number of that one.
  std::uint32_t number = 0;
  // Where a failure of the call belongs (ObservedStep::failed_call): the number of the backward, or
  // kForwardCall for what comes before all backwards.
  std::int32_t place = kForwardCall;

  static constexpr std::int32_t kForwardCall = -1;
};

// The calls of a normalized program in a step of this kind.
std::vector<Call> calls_of(const reference::Replicated& options, reference::PassKind kind,
                           const reference::RankPass& pass);

}  // namespace lockstep::properties
