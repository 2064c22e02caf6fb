// draw_switch: the draw of the option that a second run of a case switches. Internal to generate/.
// It has random numbers of its own, so that the case is the same with and without a switch. A pure
// function; any thread.
#pragma once

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Draws one of options.switched that this case can switch within the capabilities, each with the
// same probability. Returns no switch if there is none.
Switch draw_switch(Random random, const GenerateOptions& options, const Case& value);

}  // namespace lockstep::properties
