#include "properties/generate/interleave.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "properties/generate/change.h"
#include "reference/exclusions.h"
#include "reference/model/engine.h"

namespace lockstep::properties {
namespace {

using reference::Backward;
using reference::Forward;
using reference::Node;
using reference::PassKind;
using reference::RankPass;
using reference::Recompute;

// The number of the first output of forward `f`, among those of all kept forwards.
std::uint32_t first_output(const RankPass& pass, std::size_t f) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < f; ++i)
    if (!pass.forwards[i].discard) count += pass.forwards[i].outputs.size();
  return static_cast<std::uint32_t>(count);
}

// Runs the calls of which all roots are there before the last forward, or some of them, early.
void draw_early_calls(Random& random, RankPass& pass) {
  std::uint32_t least = 1;
  for (std::size_t c = 0; c + 1 < pass.backwards.size(); ++c) {
    Backward& call = pass.backwards[c];
    std::uint32_t forwards = least;
    while (forwards < pass.forwards.size() &&
           std::any_of(call.roots.begin(), call.roots.end(),
                       [&](std::uint32_t root) { return root >= first_output(pass, forwards); }))
      ++forwards;
    const bool is_early = random.percent(70);
    if (!is_early || call.roots.empty() || forwards >= pass.forwards.size()) return;
    call.forwards = least = forwards;
  }
}

// Adds a forward under no_sync to a synced pass: one like a forward that the pass has, with values
// of its own.
void add_local_forward(Random& random, RankPass& pass) {
  const auto count = static_cast<std::uint32_t>(pass.forwards.size());
  Forward local = pass.forwards[random.below(count)];
  const std::uint32_t place = random.below(count + 1);
  const std::uint32_t how = random.below(100);
  draw_keys(random, local.nodes);
  local.local = true;
  local.discard = false;
  const std::uint32_t first = first_output(pass, place);
  const auto added = static_cast<std::uint32_t>(local.outputs.size());
  for (Backward& call : pass.backwards)
    for (std::uint32_t& root : call.roots)
      if (root >= first) root += added;
  pass.forwards.insert(pass.forwards.begin() + place, std::move(local));
  Backward own;
  for (std::uint32_t i = 0; i < added; ++i) own.roots.push_back(first + i);
  const auto calls = static_cast<std::uint32_t>(pass.backwards.size());
  if (how < 18) {  // together with a call of the pass
    std::vector<std::uint32_t>& roots = pass.backwards[random.below(calls)].roots;
    roots.insert(roots.end(), own.roots.begin(), own.roots.end());
    return;
  }
  if (calls >= reference::kMaxBackwards || how >= 92) return;  // nobody uses its outputs
  std::uint32_t before = how < 60 ? 0 : calls;                 // before the pass, or after it
  if (how >= 80) before = random.below(calls + 1);
  pass.backwards.insert(pass.backwards.begin() + before, std::move(own));
}

bool has_roots(const RankPass& pass) {
  return reference::kept_outputs(pass) > 0 && pass.recompute == Recompute::kNone;
}

void interleave(Random& random, PassKind kind, RankPass& pass) {
  if (!random.percent(65) || !has_roots(pass)) return;
  name_roots(pass);
  const std::uint32_t locals = random.percent(80) ? 1 : 2;
  for (std::uint32_t i = 0; i < locals && kind == PassKind::kSynced; ++i)
    if (pass.forwards.size() < reference::kMaxForwards) add_local_forward(random, pass);
  draw_early_calls(random, pass);
}

}  // namespace

void draw_keys(Random& random, std::vector<Node>& nodes) {
  for (Node& node : nodes) {
    node.key = random.word();
    draw_keys(random, node.body);
  }
}

void name_roots(RankPass& pass) {
  const std::uint32_t outputs = reference::kept_outputs(pass);
  if (pass.backwards.empty()) pass.backwards.emplace_back();
  for (Backward& call : pass.backwards) {
    if (call.held) continue;
    for (std::uint32_t& root : call.roots) root %= outputs;
    if (!call.roots.empty()) continue;
    for (std::uint32_t i = 0; i < outputs; ++i) call.roots.push_back(i);
  }
}

void draw_interleaved(Random random, const GenerateOptions& options, reference::Program& program) {
  const Capabilities can = options.capabilities;
  const bool is_drawn = random.percent(16);
  if (!(is_drawn || options.is_interleaved) || !can.has(Capability::kInterleaved)) return;
  if (!can.has(Capability::kSeveralForwards) || !can.has(Capability::kSeveralBackwards)) return;
  reference::Program changed = program;
  for (reference::Step& step : changed.steps) {
    const bool may_mix = step.kind == PassKind::kSynced && !is_excluded(&Forward::local, changed);
    if (!may_mix && step.kind != PassKind::kNoSync) continue;
    for (RankPass& pass : step.variants) interleave(random, step.kind, pass);
  }
  normalize(changed);
  const bool may_fail = can.has(Capability::kErrors) && random.percent(25);
  take_change(may_fail, std::move(changed), program);
}

std::vector<std::string> interleaved_features(const Case& value) {
  std::vector<std::string> found;
  for (const reference::Step& step : value.program.steps) {
    if (step.kind == PassKind::kNoGrad) continue;
    for (const RankPass& pass : step.variants) {
      const bool is_mixed = std::any_of(pass.forwards.begin(), pass.forwards.end(),
                                        [](const Forward& forward) { return forward.local; });
      if (is_mixed) found.emplace_back("a forward under no_sync in a synced step");
      for (const Backward& call : pass.backwards)
        if (call.forwards > 0) found.emplace_back("a backward between two forwards");
      const std::vector<bool> is_of_pass = reference::synced_outputs(pass, pass.forwards.size());
      bool has_begun = false;
      bool has_local = false;
      for (std::uint32_t c = 0; is_mixed && c < pass.backwards.size(); ++c) {
        const bool is_synced = reference::is_synced_call(pass, c);
        if (is_synced && has_local) found.emplace_back("a local backward before the pass");
        if (!is_synced && has_begun) found.emplace_back("a local backward after one of the pass");
        (is_synced ? has_begun : has_local) = true;
        const reference::Outputs roots = reference::roots_of(pass, c);
        if (is_synced && !std::all_of(roots.begin(), roots.end(),
                                      [&](std::uint32_t root) { return is_of_pass[root]; }))
          found.emplace_back("a backward of outputs of the pass and of others");
      }
    }
  }
  return found;
}

}  // namespace lockstep::properties
