// Lets the ranks of a group join uneven inputs with options in which one of them differs, and
// judges how they are refused (S2).
//
// Threads: the one that trains.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/data_parallel.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Returns what is wrong with the answer that this rank gets, or an empty text. Every rank of the
// group calls this with the same key, which chooses the rank and the option, when none of them
// trains or joins. A group of one rank has nobody to differ from, and may go on; any other one has
// failed afterwards.
std::string flaw_of_join(DataParallel& parallel, std::uint64_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
