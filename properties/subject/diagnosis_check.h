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
// with a record that this rank of the group has left for the same reducer, or as silent. If this
// rank's failure is an error that another rank made by itself, and the store `keeps_records`, that
// rank must have a record: ranks write it before they report the error.
std::string flaw_of_diagnosis(const DataParallel& parallel, bool keeps_records);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
