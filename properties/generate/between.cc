#include "properties/generate/between.h"

#include <cstdint>
#include <utility>

#include "properties/generate/change.h"
#include "properties/generate/interleave.h"
#include "reference/exclusions.h"
#include "reference/model/engine.h"

namespace lockstep::properties {
namespace {

using reference::Backward;
using reference::Forward;
using reference::PassKind;
using reference::RankPass;
using reference::Recompute;
using reference::Step;

bool makes_calls(const Step& step, const RankPass& pass) {
  return step.kind != PassKind::kNoGrad && pass.recompute == Recompute::kNone &&
         reference::kept_outputs(pass) > 0;
}

// zero_grad most often stands between the last forward and the first backward.
void draw_more(Random& random, RankPass& pass) {
  if (pass.backwards.empty()) pass.backwards.emplace_back();
  const bool zeroes = random.percent(50);
  const std::uint32_t calls = static_cast<std::uint32_t>(pass.backwards.size());
  const std::uint32_t zeroed = random.percent(70) ? 0 : random.below(calls);
  for (std::uint32_t c = 0; c < calls; ++c) {
    Backward& call = pass.backwards[c];
    call.zeroes = zeroes && c == zeroed;
    call.evaluates = random.percent(30);
    call.updates = random.percent(20);
    call.drops = random.percent(calls > 1 ? 40 : 10);
  }
}

// Gives the pass a forward whose outputs nobody uses in its step, and which are held.
bool add_held_forward(Random& random, bool is_local, RankPass& pass) {
  if (pass.forwards.size() >= reference::kMaxForwards) return false;
  name_roots(pass);
  Forward held = pass.forwards[random.below(static_cast<std::uint32_t>(pass.forwards.size()))];
  draw_keys(random, held.nodes);
  held.discard = false;
  held.local = is_local;
  pass.forwards.push_back(std::move(held));
  pass.keep_outputs = pass.hold_outputs = true;
  return true;
}

void add_held_backward(Random& random, bool is_synced, RankPass& pass) {
  const auto calls = static_cast<std::uint32_t>(pass.backwards.size());
  if (calls == 0) pass.backwards.emplace_back();
  if (calls >= reference::kMaxBackwards) return;
  Backward call;
  call.held = true;
  call.held_synced = is_synced;
  for (std::uint32_t roots = random.below(3); roots > 0; --roots)
    call.roots.push_back(random.below(reference::kMaxOutputs));
  const std::uint32_t place = random.percent(30) ? 0 : random.below(calls + 1);
  pass.backwards.insert(pass.backwards.begin() + place, std::move(call));
}

bool may_hold(const reference::Program& program, const Step& step) {
  return step.kind == PassKind::kNoSync ||
         (step.kind == PassKind::kSynced && !is_excluded(&Forward::local, program));
}

// In a synced step what is held comes of a forward under no_sync, or, if the backward is to be
// refused, of one whose pass is complete by then.
void draw_held(Random& random, bool is_refused, reference::Program& program) {
  for (std::size_t s = 0; s + 1 < program.steps.size(); ++s) {
    Step& step = program.steps[s];
    Step& next = program.steps[s + 1];
    if (!random.percent(70) || !may_hold(program, step) || next.kind == PassKind::kNoGrad) continue;
    if (is_refused && (step.kind != PassKind::kSynced || next.kind != step.kind)) continue;
    const bool is_local = step.kind == PassKind::kSynced && !is_refused;
    bool is_held = false;
    for (RankPass& pass : step.variants)
      if (makes_calls(step, pass) && random.percent(75))
        is_held = add_held_forward(random, is_local, pass) || is_held;
    for (RankPass& pass : next.variants)
      if (is_held && makes_calls(next, pass)) add_held_backward(random, is_refused, pass);
  }
}

bool can_hold(Capabilities can) {
  using enum Capability;
  return can.has(kLaterBackward) && can.has(kSeveralForwards) && can.has(kSeveralBackwards) &&
         can.has(kNoSync) && can.has(kKeepOutputs) && can.has(kHoldOutputs) &&
         can.has(kInterleaved);
}

bool holds_for(const reference::Program& program, std::size_t step, bool is_synced) {
  if (step == 0) return false;
  const Step& before = program.steps[step - 1];
  for (const RankPass& pass : before.variants)
    if (!reference::held_outputs(before.kind, pass, is_synced).empty()) return true;
  return false;
}

}  // namespace

void draw_between(Random random, const GenerateOptions& options, reference::Program& program) {
  const Capabilities can = options.capabilities;
  const std::uint32_t drawn = random.below(100);
  const bool draws_held = drawn < 7 && can_hold(can);
  const bool draws_more = (drawn < 2 || drawn >= 92) && can.has(Capability::kBetween);
  if (!draws_held && !draws_more) return;
  const bool may_raise = can.has(Capability::kErrors);
  const bool is_refused = draws_held && may_raise && random.percent(27);
  reference::Program changed = program;
  if (draws_held) draw_held(random, is_refused, changed);
  for (Step& step : changed.steps)
    for (RankPass& pass : step.variants)
      if (draws_more && makes_calls(step, pass) && random.percent(70)) draw_more(random, pass);
  normalize(changed);
  const bool may_fail = is_refused || (may_raise && random.percent(5));
  take_change(may_fail, std::move(changed), program);
}

std::vector<std::string> between_features(const Case& value) {
  std::vector<std::string> found;
  const reference::Program& program = value.program;
  for (std::size_t s = 0; s < program.steps.size(); ++s)
    for (const RankPass& pass : program.steps[s].variants)
      for (std::size_t c = 0; c < pass.backwards.size(); ++c) {
        const Backward& call = pass.backwards[c];
        if (call.zeroes) found.emplace_back("zero_grad between a forward and its backward");
        if (call.evaluates)
          found.emplace_back(c == 0
                                 ? "a forward without gradients between a forward and its backward"
                                 : "a forward without gradients between two backwards");
        if (call.updates) found.emplace_back("an optimizer step before a backward");
        if (call.drops && c > 0) found.emplace_back("outputs dropped between two backwards");
        if (!call.held || !holds_for(program, s, call.held_synced)) continue;
        if (call.held_synced) {
          found.emplace_back("a second backward in the step after that of its pass");
          continue;
        }
        found.emplace_back("a backward of outputs of the step before");
        if (program.steps[s].kind == PassKind::kSynced && pass.backwards.size() > 1 && c > 0)
          found.emplace_back("a backward of outputs of the step before, amid those of a pass");
      }
  return found;
}

}  // namespace lockstep::properties
