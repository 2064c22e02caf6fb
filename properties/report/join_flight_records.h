// What the ranks of a run told, joined (T1): the odd one out, the first difference between their
// collectives, who waits for whom. One block for each group of ranks in which there is something to
// tell: a recovery begins a new one, with ranks numbered anew. Empty where all is well.
#pragma once

#include <string>

#include "properties/lane/observation.h"

namespace lockstep::properties {

std::string join_flight_records(const Observation& observation);

}  // namespace lockstep::properties
