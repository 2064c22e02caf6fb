// Draws misfits: constructions and resets that all ranks must refuse (reference/misfit.h). Plain
// functions; any thread.
#pragma once

#include <string_view>

#include "properties/case/case.h"
#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Gives one case in thirty a misfit that it can have. At a reset only where a rank's own error or a
// fault of the plan may lead to one. `variant` draws in which of several ways the rank does not
// fit.
void draw_misfit(Random random, Random variant, const GenerateOptions& options, Case& value);

// Whether the normalized case has the feature of this name (features.h). False for names that
// concern neither misfits nor long pauses.
bool has_further_feature(const Case& value, std::string_view feature);

}  // namespace lockstep::properties
