// Draws constructions and resets that all ranks must refuse
// (reference/construction_disagreement.h). Plain functions; any thread.
#pragma once

#include <set>
#include <string>

#include "properties/case/case.h"
#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Gives one case in thirty a disagreement that it can have. At a reset only where a rank's own
// error or a fault of the plan may lead to one. `variant` draws in which of several ways the rank
// differs.
void draw_disagreement(Random random, Random variant, const GenerateOptions& options, Case& value);

// Adds the features of disagreements that the normalized case has (features.h).
void find_disagreement_features(const Case& value, std::set<std::string>& found);

}  // namespace lockstep::properties
