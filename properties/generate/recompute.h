// Draws which passes run in a checkpoint around the whole model, or in two (P1). Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Sets RankPass::recompute. It has random numbers of its own. Call it after all draws of what
// may_recompute() looks at.
void draw_recompute(Random random, const GenerateOptions& options, reference::Program& program);

// Adds the names of the features of such checkpoints that the case has (features.h).
void find_recompute_features(const Case& value, std::set<std::string>& found);

}  // namespace lockstep::properties
