#pragma once

#include "faults/sim/scheduler/scheduler.h"

namespace lockstep::simulation {

// The scheduler of the calling fiber. Only within a run.
inline Scheduler& running() { return *Scheduler::running(); }

}  // namespace lockstep::simulation
