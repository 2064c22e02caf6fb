// Agreement: whether all ranks were constructed alike (contract B4).
//
// Every rank describes itself in lines of text. A message of fixed size, with a hash of the lines,
// goes first, so that ranks whose descriptions differ in length cannot hang; only when hashes
// differ do the lines themselves travel. Every rank then finds the same first difference and fails
// with the same text.
#pragma once

#include <string>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/process_group.h"

namespace lockstep::inline LOCKSTEP_NS {

// A collective operation: every rank of the group calls it. kDisagreement names both ranks and the
// first differing line.
Status agree(ProcessGroup& group, const std::vector<std::string>& lines, std::int64_t& sequence);

// A collective operation of both groups, the first one first: whether their ranks are the same ones
// in the same order. kInvalidArgument: they are not.
Status agree_on_ranks(ProcessGroup& first, ProcessGroup& second);

}  // namespace lockstep::inline LOCKSTEP_NS
