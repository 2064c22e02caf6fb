// What ranks make of each other's headers (F6): NCCL compares nothing, and of ranks that differ it
// mixes up the data, or hangs.
//
// Threads: a pure function.
#pragma once

#include <span>

#include "reducer/comm/collective_header.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Of the headers of all ranks, in their order: Ok when they are equal, otherwise kMismatch with
// both sides. The suspect is of the fewer, or of the others than `rank` where there are as many.
Status compare_headers(std::span<const CollectiveHeader> headers, int rank);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
