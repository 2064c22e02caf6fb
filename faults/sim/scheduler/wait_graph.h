// Describes the waits of a run that cannot go on, as text: one line for each live fiber, which says
// what the fiber waits for and who holds it or could provide it, if that is known; then the cycles
// among the fibers.
#pragma once

#include <string>

#include "faults/sim/scheduler/scheduler.h"

namespace lockstep::simulation {

std::string describe_waits(const Scheduler& scheduler, End end);

}  // namespace lockstep::simulation
