// fault_plan: the part of the generator that draws what goes wrong, and the timeout that goes with
// it. Internal to generate/.
#pragma once

#include "properties/generate/random.h"
#include "properties/generate/generate.h"

namespace lockstep::properties {

// Fills faults and timeout_ms of a case whose program is drawn.
void draw_faults(Random& random, const GenerateOptions& options, Case& value);

// What a swarm does to what travels, where that is verified (F3); after the other faults, in their
// place or besides.
void draw_payload_faults(Random random, const GenerateOptions& options, Case& value);

// What a simulated NCCL does where it carries the collectives out: a call of it fails.
void draw_call_faults(Random random, const GenerateOptions& options, Case& value);

// How many buckets the program's parameters make (contract B1).
std::uint32_t bucket_count(const reference::Program& program);

}  // namespace lockstep::properties
