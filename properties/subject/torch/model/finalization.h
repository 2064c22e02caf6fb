// How a user of PyTorch 2.15 ends passes by hand (TorchOptions::finalization): the rules that the
// subject follows, and the model with it. Pure; any thread; nothing fails.
//
// The user gives the reducer set_manual_finalization_required(true). After that nothing is waited
// for, and gradients get no means, before finalize_backward_manual():
//   kAfter   the user calls it after the last backward of each synced step
//   kInHook  the user calls it in a hook that comes after the reducer's on the first parameter, in
//            each synced step; but as kAfter where should_finalize_after_backward() says so
//   kAlways  as kAfter, but after local steps, too, in which there is nothing to end
//   kTwice   as kAfter, but twice: the second call has nothing to end
//   kNever   the user never calls it
// A step without a backward on a rank has no call there.
#pragma once

#include <cstdint>

#include "properties/case/torch_options.h"
#include "reference/program.h"

namespace lockstep::properties::torch_model {

inline bool ends_by_hand(const TorchOptions& options) {
  return options.finalization != TorchOptions::Finalization::kAutomatic;
}

// Returns whether the user lets a hook end the pass of a step of this kind. The reducer may ask for
// a call after backward instead (should_finalize_after_backward()).
inline bool may_end_in_hook(const TorchOptions& options, reference::PassKind kind) {
  return options.finalization == TorchOptions::Finalization::kInHook &&
         kind == reference::PassKind::kSynced;
}

// How often the user ends the pass after the backwards of a step. `is_in_hook`: a hook ends it.
inline std::uint32_t endings_after(const TorchOptions& options, reference::PassKind kind,
                                   bool is_in_hook) {
  using enum TorchOptions::Finalization;
  const bool is_synced = kind == reference::PassKind::kSynced;
  switch (options.finalization) {
    case kAutomatic:
    case kNever:
      return 0;
    case kAlways:
      return 1;
    case kTwice:
      return is_synced ? 2 : 0;
    case kAfter:
    case kInHook:
      return is_synced && !is_in_hook ? 1 : 0;
  }
  return 0;
}

}  // namespace lockstep::properties::torch_model
