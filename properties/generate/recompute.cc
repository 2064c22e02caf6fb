#include "properties/generate/recompute.h"

#include "properties/case/fields.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

using reference::Recompute;

void draw_recompute(Random random, const GenerateOptions& options, reference::Program& program) {
  const Capabilities can = options.capabilities;
  if (!random.percent(16) || !can.has(Capability::kRecompute)) return;
  const bool may_fail = random.percent(30) && can.has(Capability::kErrors);
  for (reference::Step& step : program.steps)
    for (reference::RankPass& pass : step.variants) {
      const auto drawn = static_cast<Recompute>(random.weighted(fields::weights<Recompute>()));
      if (!may_recompute(program, step, pass)) continue;
      pass.recompute = drawn == Recompute::kTwiceFails && !may_fail ? Recompute::kOnce : drawn;
    }
}

}  // namespace lockstep::properties
