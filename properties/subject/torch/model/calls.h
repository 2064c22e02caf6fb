// Calls: which call a rank makes next in a step whose forwards and backwards may interleave
// (program.h); part of the model in hook_model.cc. The functions are pure: any thread may call
// them, and none fails.
#pragma once

#include <algorithm>
#include <cstdint>

#include "properties/subject/torch/model/rank_state.h"
#include "reference/model/engine.h"
#include "reference/program.h"

namespace lockstep::properties::torch_model {

enum class NextCall : std::uint8_t { kForward, kBackward, kNone };

// Returns what the rank does next. A backward comes as soon as the forwards that it asks for have
// run, and goes on where it was left.
inline NextCall next_call(const reference::RankPass& pass, const Rank& rank) {
  const bool has_forward = rank.next_forward < pass.forwards.size();
  const bool has_backward =
      reference::kept_outputs(pass) > 0 && rank.next_call < reference::call_count(pass);
  if (!has_forward) return has_backward ? NextCall::kBackward : NextCall::kNone;
  const bool is_early = has_backward && rank.next_call < pass.backwards.size() &&
                        rank.next_forward > 0 &&
                        pass.backwards[rank.next_call].forwards == rank.next_forward;
  return is_early || rank.next_event > 0 ? NextCall::kBackward : NextCall::kForward;
}

// A rank whose step begins has nothing armed, and a forward whose outputs are dropped arms nothing.
// PyTorch's own reducer does not do so (policy stays_armed).
inline void disarm(const reference::RankPass& pass, Rank& rank) {
  if (reference::kept_outputs(pass) > 0)
    rank.is_armed = false;
  else
    rank.next_forward = static_cast<std::uint32_t>(pass.forwards.size());
}

// Returns whether the pass has a forward under no_sync, in a step that is synced otherwise.
inline bool has_local_forward(const reference::RankPass& pass) {
  return std::any_of(pass.forwards.begin(), pass.forwards.end(),
                     [](const reference::Forward& forward) { return forward.local; });
}

}  // namespace lockstep::properties::torch_model
