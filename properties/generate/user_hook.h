// What a communication hook of a user does in a case: what it returns, when that is there, which
// backward it runs, and whether it fails (S4).
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "properties/generate/generate.h"

namespace lockstep::properties {

// Draws it for a program that has such a hook, with random numbers of its own. The timeout of the
// case is drawn before: a hook that fails silences no rank.
void draw_user_hook(std::uint64_t seed, std::uint64_t index, const GenerateOptions& options,
                    Case& value);

// Adds the names of what the case has of it (features.h).
void find_user_hook_features(const Case& value, std::set<std::string>& found);

}  // namespace lockstep::properties
