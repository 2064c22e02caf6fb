// Draws what a user's communication hook does in a case: what it returns, when its result is
// complete, which backward it runs, and whether it fails (S4). Pure functions; any thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Changes only programs that have such a hook. It has random numbers of its own. Call it after the
// draw of the timeout, which a hook that fails does not need, because it silences no rank.
void draw_user_hook(Random random, const GenerateOptions& options, Case& value);

// Adds the names of the features of such hooks that the case has (features.h).
void find_user_hook_features(const Case& value, std::set<std::string>& found);

}  // namespace lockstep::properties
