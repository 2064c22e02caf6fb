// Asks the production reducer for a diagnosis (T1) as a user does, in any state outside of
// backward.
//
// Threads: the one that trains.
#pragma once

#include <string>

#include "reducer/data_parallel.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Returns what is wrong with the diagnosis that this rank gets now, or an empty text. The diagnosis
// has to have the rank's own flight record, as flight_record() gives it, and each other rank once:
// with a record that this rank of the group has left for the same reducer, or as silent.
std::string flaw_of_diagnosis(const DataParallel& parallel);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
