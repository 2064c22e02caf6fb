// LoneRankCheck: what one rank's reducer does where its user goes on after something that no
// program of a case has. All ranks of a case recover from every failure; here a pass that failed
// and left the reducer clean is followed by another one (P12), a reducer that works is reset, on a
// new group or its own (F4), and one call in some steps meets a mishap: memory that is refused, a
// collective that fails, a communication hook that fails, a second group of other processes. Only
// this rank runs: it is rank 0 of two, and the group knows what the other one contributes.
//
// Judged is that no call swallows a mishap (F1), what its error names (F2), whether the reducer
// refuses work afterwards (P12), what its flight record says (T1), and that the gradients of all
// steps that end well are those of the contract, in all modes, also of passes that the rank
// shadows (S2).
//
// Threads: a fiber of the simulator's. It takes a little virtual time.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/base/build_namespace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Trains some models, which `key` determines. Returns a sentence about the first thing that is
// wrong, or an empty text.
std::string wrongly_trained(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
