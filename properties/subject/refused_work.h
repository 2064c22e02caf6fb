// Asks a reducer that has failed for more work, as a user might, and judges how it refuses (P12).
//
// Threads: the one that trains.
#pragma once

#include <string>

#include "reducer/data_parallel.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Returns what is wrong with the answers of a reducer that refuses work, or an empty text; a
// reducer that does not is asked nothing. Every refusal has to name the failure that it is because
// of, and all that this failure names; no forward may begin that would run user code for a pass. A
// forward without gradients is no work of the reducer's, and has to run.
std::string flaw_of_refusals(DataParallel& parallel, bool manual_sync);

// Returns what is wrong where ranks with uneven inputs have raised an error, which ends their join
// (S2), or an empty text. A reducer that refuses work is asked nothing.
std::string flaw_of_ended_join(DataParallel& parallel);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
