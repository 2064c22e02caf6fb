// Draws what ranks do between the calls of a step: zero_grad, a forward without gradients, an
// optimizer step, outputs that they drop; and backwards of outputs of the step before. Pure
// functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// It has random numbers of its own. Call it when the graphs, outputs and calls of all passes are
// drawn. The program may end in an error then, where a subject knows errors and recovers.
void draw_between(Random random, const GenerateOptions& options, reference::Program& program);

// Returns the names of the features of these draws that a normalized case has (features.h).
std::vector<std::string> between_features(const Case& value);

}  // namespace lockstep::properties
