// Checkpoints around the whole model (P1): which passes run in one, or in two.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "properties/generate/generate.h"

namespace lockstep::properties {

// Draws it with random numbers of its own, after everything else of the program that it depends on.
void draw_recompute(std::uint64_t seed, std::uint64_t index, const GenerateOptions& options,
                    reference::Program& program);

// Adds the names of what the case has of it (features.h).
void find_recompute_features(const Case& value, std::set<std::string>& found);

}  // namespace lockstep::properties
