// membership: the draws of who trains together: ranks whose inputs end early, several reducers and
// groups, a reducer that follows another one, and a rank that takes no part in a pass. Internal to
// generate/. Each draw has random numbers of its own, so that other choices stay what they are.
// Pure functions; any thread.
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
// Draws that a rank takes no part in a pass (P8), unless a fault may end a step. Call it after all
// other draws of the program and of faults.
void draw_absent_rank(Random random, const GenerateOptions& options, Case& value);

}  // namespace lockstep::properties
