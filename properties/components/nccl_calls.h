// Calls of a group over NCCL that are wrong, and that it must refuse at once (kInvalidArgument),
// with a text that says what is wrong: collectives, options, and smaller groups. Each of them is
// made on one side of a boundary; what lies on the other side must pass this check, and be refused
// for another reason, as nothing may start here.
//
// A refused call must change nothing: the ranks go on with the group.
// Threads: the rank's own, while it is the only one that uses the group.
#pragma once

#include <string>

#include "reducer/comm/nccl/nccl_process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Returns a sentence about the first call that was not refused as it should be, or an empty text.
// Groups of this rank alone connect, too, to communicators that are not the ones that were asked
// for.
std::string check_nccl_calls(const NcclApi& api, Device& gpu, NcclProcessGroup& group);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
