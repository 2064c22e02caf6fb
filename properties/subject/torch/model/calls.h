// Calls: which call a rank makes next in a step whose forwards and backwards may interleave
// (job.h); part of the model in hook_model.cc. The functions are pure: any thread may call
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
  const bool has_forward = rank.in_step.next_forward < pass.forwards.size();
  const bool has_backward =
      reference::kept_outputs(pass) > 0 && rank.in_step.next_call < reference::call_count(pass);
  if (!has_forward) return has_backward ? NextCall::kBackward : NextCall::kNone;
  const bool is_early =
      has_backward && rank.in_step.next_call < pass.backwards.size() &&
      rank.in_step.next_forward > 0 &&
      pass.backwards[rank.in_step.next_call].forwards == rank.in_step.next_forward;
  return is_early || rank.in_step.next_event > 0 ? NextCall::kBackward : NextCall::kForward;
}

// A rank whose step begins has nothing armed, and a forward whose outputs are dropped arms nothing.
// PyTorch's own reducer does not do so (policy stays_armed).
inline void disarm(const reference::RankPass& pass, Rank& rank) {
  if (reference::kept_outputs(pass) > 0)
    rank.is_armed = false;
  else
    rank.in_step.next_forward = static_cast<std::uint32_t>(pass.forwards.size());
}

// A backward call as call `call` of the pass that it starts in, which is one of the step before if
// the call starts from held outputs; `own` is that pass then.
struct StartedCall {
  bool is_held = false;
  bool is_left_out = false;  // the rank holds nothing
  reference::RankPass own;
  std::uint32_t call = 0;
  std::uint32_t step_key = 0;
  std::uint32_t whole_forwards = 0;

  const reference::RankPass& pass_in(const reference::RankPass& now) const {
    return is_held ? own : now;
  }
};

// Returns what the rank's next backward call starts from.
inline StartedCall start_call(const reference::Step& step, std::uint32_t number, const Rank& rank) {
  const reference::RankPass& pass = reference::pass_of(step, number);
  const reference::Backward& call = reference::backward_of(pass, rank.in_step.next_call);
  StartedCall started;
  started.call = rank.in_step.next_call;
  started.step_key = step.key;
  started.whole_forwards = rank.in_step.whole_forwards;
  started.is_held = call.held;
  if (!call.held) return started;
  started.is_left_out = true;
  if (rank.held.step == nullptr) return started;
  const reference::Step& before = *rank.held.step;
  started.own = reference::pass_of(before, number);
  reference::Backward only;
  only.roots = reference::held_roots(before.kind, started.own, call);
  started.is_left_out = only.roots.empty();
  started.own.backwards = {only};
  started.call = 0;
  started.step_key = before.key;
  started.whole_forwards = rank.held.whole_forwards;
  return started;
}

// Returns whether the rank's next backward call is the second one of a pass that is over (P7).
inline bool is_second_backward(const reference::Step& step, std::uint32_t number,
                               const Rank& rank) {
  const reference::RankPass& pass = reference::pass_of(step, number);
  if (rank.in_step.next_event > 0) return false;
  const bool is_late = reference::backward_of(pass, rank.in_step.next_call).held_synced &&
                       !start_call(step, number, rank).is_left_out;
  const bool is_synced = step.kind == reference::PassKind::kSynced &&
                         reference::is_synced_call(pass, rank.in_step.next_call);
  return is_late || (rank.in_step.is_over && is_synced);
}

// Notes at the end of a step what the rank holds from then on.
inline void hold_outputs(const reference::Step& step, std::uint32_t number, Rank& rank) {
  const reference::RankPass& pass = reference::pass_of(step, number);
  if (pass.skip) return;
  rank.held.step = pass.hold_outputs ? &step : nullptr;
  rank.held.whole_forwards = rank.in_step.whole_forwards;
}

// Returns whether the pass has a forward under no_sync, in a step that is synced otherwise.
inline bool has_local_forward(const reference::RankPass& pass) {
  return std::any_of(pass.forwards.begin(), pass.forwards.end(),
                     [](const reference::Forward& forward) { return forward.local; });
}

}  // namespace lockstep::properties::torch_model
