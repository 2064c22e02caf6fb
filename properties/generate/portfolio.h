// The portfolio: which policies the schedules of cases have. All cases draw their policy by the
// weights in the table of fields; cases over NCCL then draw it anew, by weights of their own.
//
// The weights are fixed. They come from `lockstep eval` (faults/sim/README.md), and a run does not
// change them, so that a seed and an index say which case it is, whatever ran before and on however
// many workers.
//
// Threads: any; there is no state.
#pragma once

#include "properties/case/case.h"
#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// Draws the policy of a case over NCCL, unless the options name one. The seed of the schedule
// stays. The transport of the program must be drawn already.
void draw_policy_over_nccl(Random random, const GenerateOptions& options, Case& value);

}  // namespace lockstep::properties
