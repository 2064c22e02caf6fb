// Asks the production reducer for a diagnosis (T1) as a user does, in any state outside of
// backward.
//
// Threads: the one that trains.
#pragma once

#include <memory>
#include <string>

#include "reducer/comm/store.h"
#include "reducer/data_parallel.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Returns what is wrong with the diagnosis that this rank gets now, or an empty text. The diagnosis
// has to have the rank's own flight record, as flight_record() gives it, and each other rank once:
// with a record that this rank of the group has left for the same reducer, or as silent. If this
// rank's failure is an error that another rank made by itself, and the store `keeps_records`, that
// rank must have a record: ranks write it before they report the error.
std::string flaw_of_diagnosis(const DataParallel& parallel, bool keeps_records);

// Returns what is wrong, or an empty text: a peer that waits for this rank in vain must learn from
// the store of the group why the rank gave up a pass of which it had launched nothing.
std::string flaw_of_note(const DataParallel& parallel, std::shared_ptr<Store> store);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
