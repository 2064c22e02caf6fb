// Draws passes whose forwards and backward calls interleave (P1): forwards under no_sync in a
// synced step, with backward calls of their own before, between or after those of the pass, or
// together with them; and backward calls between the forwards. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// It has random numbers of its own. Call it when the graphs, outputs and calls of all passes are
// drawn. The program may end in an error then, where a subject knows errors and recovers.
void draw_interleaved(Random random, const GenerateOptions& options, reference::Program& program);

// For a forward that is added to a pass: draws other keys for all its nodes; and says of each call
// of the pass which outputs are its roots, so that a further forward does not change them.
void draw_keys(Random& random, std::vector<reference::Node>& nodes);
void name_roots(reference::RankPass& pass);

// Returns the names of the features of these draws that a normalized case has (features.h).
std::vector<std::string> interleaved_features(const Case& value);

}  // namespace lockstep::properties
