// Joins the flight records of the ranks of a run (T1): the suspects, the first difference between
// the collectives of the ranks, and who waits for whom. The result has one block for each group of
// ranks in which something is wrong; a recovery begins a new group, in which ranks are numbered
// anew. The result is empty if nothing is wrong.
#pragma once

#include <string>

#include "properties/observe/observation.h"

namespace lockstep::properties {

std::string join_flight_records(const Observation& observation);

}  // namespace lockstep::properties
