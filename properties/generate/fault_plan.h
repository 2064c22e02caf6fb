// fault_plan: the part of the generator that draws the faults of a case, and the timeout that they
// need. Internal to generate/.
#pragma once

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Fills the faults and timeout_ms of a case whose program is drawn.
void draw_faults(Random& random, const GenerateOptions& options, Case& value);

// Draws the payload faults of a swarm, for programs with verified collectives (F3). It runs after
// the other faults are drawn, and replaces them or adds to them.
void draw_payload_faults(Random random, const GenerateOptions& options, Case& value);

// Draws a failing library call, for programs whose collectives run over the simulated NCCL.
void draw_call_faults(Random random, const GenerateOptions& options, Case& value);
// The same for a group that goes through host memory: its calls that wait for the GPU.
void draw_device_faults(Random random, const GenerateOptions& options, Case& value);

// Adds a fault that acts in the reset after a fault that ends a step. It runs after the other
// faults are drawn, and changes none of them.
void draw_reset_fault(Random random, const GenerateOptions& options, Case& value);

// Lets calls of NCCL fail with which a group connects after a failure. It runs after the other
// faults are drawn, and changes none of them.
void draw_connect_fault(Random random, const GenerateOptions& options, Case& value);

// Refuses a request for memory of a rank that is constructed or reset (B4), and one of a rank in a
// step (F1), of the reducer or of the program; most of the latter cases have no other fault. It
// runs after the other faults are drawn.
void draw_memory_faults(Random in_reset, Random in_step, const GenerateOptions& options,
                        Case& value);

// Lets stores fail, be slow, or lose a part of a value, mostly where something else fails, as ranks
// tell each other the cause through the store (F2). It runs after the other faults are drawn, and
// changes none of them.
void draw_store_faults(Random random, const GenerateOptions& options, Case& value);

// Delays several collectives of one rank, one after the other, so that its peers meet it at each of
// them or at a later one; mostly over NCCL, where ranks look into the store meanwhile. It runs
// after the other faults are drawn, and changes none of them.
void draw_delays_in_turn(Random random, const GenerateOptions& options, Case& value);

// Makes a pause or a delay last for seconds, where waits never time out and only a deadline that
// nobody asked for would end them.
void draw_long_pause(Random random, const GenerateOptions& options, Case& value);
bool has_long_pause(const Case& value);

bool has_payload_fault(const Case& value);

// Returns the number of buckets of the program's parameters (B1).
std::uint32_t bucket_count(const reference::Program& program);

// Draws one of the synced steps; if there is none, any step. The program has a step.
std::uint32_t draw_synced_step(Random& random, const reference::Program& program);

}  // namespace lockstep::properties
