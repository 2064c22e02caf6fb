// The wait-for graph of a run that cannot go on, as text: one line for each live fiber, saying what
// it waits for, who holds or could give that where it is known, and then the circles among them.
#pragma once

#include <string>

#include "faults/sim/scheduler/scheduler.h"

namespace lockstep::simulation {

std::string describe_waits(const Scheduler& scheduler, End end);

}  // namespace lockstep::simulation
