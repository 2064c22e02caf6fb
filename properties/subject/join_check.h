// Lets the ranks of a group join uneven inputs with options in which one of them differs, and
// judges how they are refused (S2).
//
// Threads: the one that trains.
#pragma once

#include <cstdint>
#include <string>

#include "properties/case/environment.h"
#include "reducer/data_parallel.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Returns what is wrong with the answer that this rank gets, or an empty text. Every rank of the
// group calls this with the same environment, whose join is unlike, when none of them trains or
// joins. A group of one rank has nobody to differ from, and may go on; any other one has
// failed afterwards.
std::string flaw_of_join(DataParallel& parallel, const properties::Environment& environment);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
