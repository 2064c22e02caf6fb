// user_abort: the part of the generator that lets the user of a rank give up (F5). Internal to
// generate/.
#pragma once

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Lets the user of a rank abort its groups or its reducers, in a step, while it is constructed, or
// while it is reset; most of these cases have no other fault. It runs after the other faults are
// drawn.
void draw_user_abort(Random random, const GenerateOptions& options, Case& value);

}  // namespace lockstep::properties
