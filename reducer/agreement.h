// Agreement checks that all ranks were constructed alike, and that no rank refuses to be (contract
// B4).
//
// Every rank describes itself in lines of text. The ranks first exchange a message of fixed size
// with a hash of the lines, so that ranks whose descriptions differ in length cannot hang. Only if
// the hashes differ do they exchange the lines of two ranks: rank 0, and the first rank that
// differs from it. Every rank then finds the same first difference and fails with the same text.
//
// A rank that refuses for a reason of its own (an invalid option, or memory that it could not
// allocate) takes part all the same: its message says that it refuses, and it sends its reason. So
// its peers fail at once, with its number and its reason, and do not wait for it until their
// timeout.
//
// What peers send is bounded: an error names a rank that announces a description or a reason longer
// than the limit.
// Threads: as for the group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// A collective operation: every rank of the group calls it. `own` is the reason why this rank
// refuses, or ok. If this rank refuses, the call returns `own` with the rank; otherwise it returns
// the reason of the lowest rank that refuses, or kDisagreement, which names both ranks and the
// first line that differs. `sequence` becomes the sequence number of the agreement in its group.
Status agree(ProcessGroup& group, const std::vector<std::string>& lines, Status own,
             std::int64_t& sequence);

// A collective operation for ranks that have agreed already. It returns an error if a rank has
// refused since.
Status agree_to_go_on(ProcessGroup& group, Status own);

// A collective operation of both groups, of `first` before `second`. It checks that both groups
// have the same ranks in the same order, and returns kInvalidArgument if they do not. If a
// collective fails in one group, the other one ends, too.
Status agree_on_ranks(ProcessGroup& first, ProcessGroup& second);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
