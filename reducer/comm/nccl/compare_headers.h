// Compares the headers of all ranks (F6). NCCL compares nothing: where ranks differ it mixes up the
// data, or hangs.
//
// Threads: a pure function.
#pragma once

#include <span>

#include "reducer/comm/collective_header.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Takes the headers of all ranks, in rank order. It returns Ok when they are equal, otherwise
// kMismatch with both sides. The suspect belongs to the smaller side, or to the side that `rank` is
// not on if both are equally large.
Status compare_headers(std::span<const CollectiveHeader> headers, int rank);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
