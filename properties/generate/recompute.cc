#include "properties/generate/recompute.h"

#include <array>

#include "properties/generate/random.h"

namespace lockstep::properties {

using reference::Recompute;

void draw_recompute(Random random, const GenerateOptions& options, reference::Program& program) {
  const Capabilities can = options.capabilities;
  if (!random.percent(16) || !can.has(Capability::kRecompute)) return;
  const bool may_fail =
      random.percent(30) && can.has(Capability::kErrors) && can.has(Capability::kRecovery);
  for (reference::Step& step : program.steps)
    for (reference::RankPass& pass : step.variants) {
      const std::array<std::uint16_t, 4> weights{28, 38, 24, 10};
      const auto drawn = static_cast<Recompute>(random.weighted(weights));
      if (!may_recompute(program.options, step, pass)) continue;
      pass.recompute = drawn == Recompute::kTwiceFails && !may_fail ? Recompute::kOnce : drawn;
    }
}

void find_recompute_features(const Case& value, std::set<std::string>& found) {
  const auto add_if = [&](bool condition, const char* name) {
    if (condition) found.insert(name);
  };
  for (const reference::Step& step : value.program.steps)
    for (const reference::RankPass& pass : step.variants) {
      add_if(pass.recompute == Recompute::kOnce, "a checkpoint around the whole model");
      add_if(pass.recompute == Recompute::kTwice,
             "two checkpoints around the whole model, and the refusal ignored");
      add_if(pass.recompute == Recompute::kTwiceFails,
             "two checkpoints around the whole model, and the refusal an error (P1)");
    }
}

}  // namespace lockstep::properties
