// BoardCheck: whom ranks take for the cause of a failure, as the reports say that they find in the
// store of their group (reducer/failure_board.h), where chance makes the reports. The ranks of a
// program leave few of the reports that they could leave: they stop at the first cause.
//
// Threads: any, one call at a time.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Lets the ranks of some groups settle what has failed, by reports that `key` determines. Returns a
// sentence about the first answer that is not the one that the reports give; empty if all are.
std::string wrongly_settled(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
