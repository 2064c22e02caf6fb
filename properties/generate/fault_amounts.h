// fault_amounts: draws where a fault acts within its site, and how strongly: bits, bytes, percent,
// times (faults/plan.h). Internal to generate/. Pure functions; any thread.
#pragma once

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Draws where a payload fault acts. A collective has two exchanges of frames. Frames begin with
// their seals of 64 bytes, which are as interesting as the rest.
void draw_payload(Random& random, const Case& value, std::uint32_t collectives,
                  faults::Fault& fault);
// Half of the faults of the network concern one pair of ranks, and half last until the ranks
// recover.
void draw_network(Random& random, std::uint32_t world, faults::Fault& fault);
// Half of the faults of nodes and the store that can act where ranks connect act in the
// construction.
void draw_node(Random& random, faults::Fault& fault);

}  // namespace lockstep::properties
