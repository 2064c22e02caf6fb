// The portfolio: which policies the schedules of cases have. Each case draws its policy by weights,
// which differ between transports.
//
// The weights are fixed. They are learned from `lockstep eval` (faults/sim/README.md has the
// figures), and a run does not change them, so that a seed and an index say which case it is,
// whatever ran before and on however many workers. `fuzz` prints the shares.
//
// Threads: any; there is no state.
#pragma once

#include "properties/case/case.h"
#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Draws a policy for a case that is not over NCCL. It draws one number.
Schedule::Policy draw_policy(Random& random);

// Draws the policy of a case over NCCL, unless the options name one. The seed of the schedule
// stays. The transport of the program must be drawn already.
void draw_policy_over_nccl(Random random, const GenerateOptions& options, Case& value);

}  // namespace lockstep::properties
