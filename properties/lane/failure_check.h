// FailureCheck: what a reducer makes of a failure of its group (reducer/failure.cc), where chance
// makes the failure, and what else happens in that step: a node fails, or the user gives up. The
// groups of a program seldom fail in a collective of another reducer, ahead of the rank, or with
// numbers that nobody has.
//
// Judged is what F2 and P12 promise of the error that the step raises, of the cause for which the
// rank ends its group, and of the report that its peers read: they name the rank, the pass, and a
// bucket only if the failure is one of that bucket, with the names of its parameters; the first
// cause is kept, and what followed is attached; and where nothing was launched the group goes on.
//
// Threads: one call at a time, in which other fibers may run.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Lets a reducer fail in some ways that `key` determines. Returns a sentence about the first thing
// that is wrong; empty if nothing is.
std::string wrongly_failed(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
