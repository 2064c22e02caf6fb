// The watchdog's limits: how long a case may take before it counts as hung. They are functions of
// the case, so that the watchdog soon gives up a case that cannot be slow.
#pragma once

#include <chrono>

#include "properties/lane/lane.h"

namespace lockstep::properties {

// The limit for the ranks of one run, in the lanes in real time.
//
// Over Gloo every wait of a rank ends after the case's timeout, so a run in which nothing moves for
// that long fails by its errors. The watchdog remains for a wait that never ends. A harmful fault
// may cost the others one timeout until they notice it and one more until they have connected anew;
// so may the last collectives of the program. All the rest takes milliseconds; its limit is ten
// seconds, because the machine may be busy. Faults seldom add up to that much, so the limit is at
// most a minute, unless the timeout is longer than usual. Where a program has two reducers, each
// step that must err adds a timeout: neither rank may learn of the other's error before.
//
// On a GPU processes take turns in slices of milliseconds, and a rank that was killed must
// initialize CUDA anew; libtorch takes seconds to load, and a case may run twice (CaseRunner).
// These costs are constants.
std::chrono::milliseconds run_limit(LaneKind lane, const Subject& subject, const Case& c);

// The limit for the answer of the process that runs the case, or both runs of it, on the subject
// and on Subject::against. It is larger than run_limit(): if ranks are processes, the lane knows
// best which of them hangs.
std::chrono::milliseconds answer_limit(LaneKind lane, const Subject& subject, const Case& c);

// How long the process of a case may do nothing: in the simulator nobody waits for time or for
// others, so that a few seconds are a hang. 0 in the other lanes.
std::chrono::milliseconds idle_limit(LaneKind lane);

// The limit for such an answer while a failing case is made small. A case that hangs is abandoned
// long before the limit of its first run, but not before one that does not hang would have ended:
// NCCL's processes need seconds to start, and more on a busy machine.
std::chrono::milliseconds repeat_limit(LaneKind lane, const Subject& subject, const Case& c);

}  // namespace lockstep::properties
