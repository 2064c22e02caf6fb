// A run as a picture, in Chrome's trace format, which ui.perfetto.dev opens: a process per rank, in
// it a thread with its steps and one or more with its collectives, and arrows from the first rank
// that started a collective to the others. Times are those of the lane: virtual in the simulator.
#pragma once

#include <string>

#include "properties/report/outcome.h"

namespace lockstep::properties {

std::string chrome_trace(const Outcome& outcome);

}  // namespace lockstep::properties
