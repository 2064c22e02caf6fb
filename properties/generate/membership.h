// membership: the draws of who trains together: ranks whose inputs end early, several reducers and
// groups, and a reducer that follows another one. Internal to generate/. Each draw has random
// numbers of its own, so that other choices stay what they are. Pure functions; any thread.
#pragma once

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Draws uneven inputs (S2).
void draw_join(Random random, const GenerateOptions& options, reference::Program& program);
// Draws a second reducer (F7), and a reducer that follows another one.
void draw_several_reducers(Random reducers, Random renewal, const GenerateOptions& options,
                           reference::Program& program);
// Draws two groups of ranks that train separately.
void draw_groups(Random random, const GenerateOptions& options, reference::Program& program);

}  // namespace lockstep::properties
