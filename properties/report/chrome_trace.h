// Writes a run in Chrome's trace format, which ui.perfetto.dev opens. Each rank is a process with
// one thread for its steps and one or more for its collectives. Arrows lead from the first rank
// that started a collective to the others. The times are those of the lane: virtual in the
// simulator.
#pragma once

#include <string>

#include "properties/report/outcome.h"

namespace lockstep::properties {

std::string chrome_trace(const Outcome& outcome);

}  // namespace lockstep::properties
