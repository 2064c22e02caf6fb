// StagedCheck: what a group that goes through host memory (reducer/comm/staged_group.h) tells its
// owner where its GPU is late or does not answer, where memory is refused, and where the group
// below it refuses a collective or fails. Several collectives are on their way then, of the host,
// too.
//
// Threads: any fiber; it takes virtual time.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Runs some collectives, which `key` determines, on a GPU of its own. Each ends in time (F1), with
// the right bits (F3) or an error that names it and this rank (F2). Nothing succeeds behind an
// error, and no memory is given back that the GPU still uses (F8). Returns a sentence about the
// first thing that is wrong; empty if nothing is.
std::string wrongly_staged(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
