// Draws which passes run in a checkpoint around the whole model, or in two (P1). Pure functions;
// any thread.
#pragma once

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Sets RankPass::recompute. It has random numbers of its own. Call it after all draws of what
// may_recompute() looks at.
void draw_recompute(Random random, const GenerateOptions& options, reference::Program& program);

}  // namespace lockstep::properties
