// JoinStateCheck: what ranks with uneven inputs decide by what all of them announce
// (reducer/uneven_inputs.h), where chance makes the announcements (S2). The ranks of a program come
// to the same point, as they train alike.
//
// Threads: any, one call at a time.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/base/build_namespace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Lets the ranks of some groups announce what they are about to start, which `key` determines.
// Returns a sentence about the first decision that is not the one that the announcements give;
// empty if all are.
std::string wrongly_decided(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
