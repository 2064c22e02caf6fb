// How long a case may take before it counts as hung: the watchdog's limits. Functions of the case,
// so that a case that cannot be slow is given up soon.
#pragma once

#include <chrono>

#include "properties/lane/lane.h"

namespace lockstep::properties {

// For the ranks of one run, in the lanes in real time.
//
// Over Gloo every wait of a rank ends after the case's timeout, so a run in which nothing at all
// moves for that long fails by its errors. What is left for the watchdog is a wait that has no end.
// A harmful fault may cost the others one timeout until they notice and one until they have
// connected anew; so may the last collectives of the program. What all the rest takes,
// milliseconds, has ten seconds, because the machine may be busy. Faults seldom cost that much one
// after the other, so a minute is the most, unless the timeout is longer than usual.
//
// On a GPU processes take turns by slices of milliseconds, and a rank that was killed has to begin
// with CUDA anew; libtorch takes seconds to load, and a case may run twice (CaseRunner). These have
// constants.
std::chrono::milliseconds run_limit(LaneKind lane, const Subject& subject, const Case& c);

// For the answer of the process that runs the case, or both runs of it, on the subject and on
// Subject::against. More than the above: where ranks are processes, the lane knows best which of
// them hangs.
std::chrono::milliseconds answer_limit(LaneKind lane, const Subject& subject, const Case& c);

}  // namespace lockstep::properties
