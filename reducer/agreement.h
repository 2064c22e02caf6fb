// Agreement: whether all ranks were constructed alike, and none refuses to (contract B4).
//
// Every rank describes itself in lines of text. A message of fixed size goes first, with a hash of
// the lines, so that ranks whose descriptions differ in length cannot hang; only when hashes differ
// do the lines of two ranks travel, rank 0's and those of the first that differs from it. Every
// rank then finds the same first difference and fails with the same text.
//
// A rank that refuses for a reason of its own (an option that is wrong, memory that it was refused)
// takes part all the same: its message says so, and its reason travels. So its peers fail at once,
// with its number and its reason, and do not wait for it until their timeout.
//
// What peers say is bounded: a rank that announces more than a description, or a reason, can have
// is named. Threads: as for the group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// A collective operation: every rank of the group calls it. `own`: why this rank refuses, if it
// does. That comes back, with the rank; or else the reason of the lowest rank that refuses; or
// kDisagreement, which names both ranks and the first differing line. `sequence` becomes the number
// of the agreement in its group.
Status agree(ProcessGroup& group, const std::vector<std::string>& lines, Status own,
             std::int64_t& sequence);

// A collective operation, where all ranks have agreed already: whether one of them has refused
// since.
Status agree_to_go_on(ProcessGroup& group, Status own);

// A collective operation of both groups, the first one first: whether their ranks are the same ones
// in the same order. kInvalidArgument: they are not.
Status agree_on_ranks(ProcessGroup& first, ProcessGroup& second);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
