// FrameCheck: whether a rank takes the frames of a verified collective for what they are
// (reducer/comm/verified.h), where chance makes them. Links seldom mix up what two ranks send to
// one, or what belongs to two groups.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Runs some verified collectives, which `key` determines, on one rank: of each kind, and of sizes
// that the ranks cannot share evenly. Those whose frames are right must succeed with the right
// bytes; where another frame takes the place of one, or a byte changes, the rank must notice, and
// name its sender (F3). Returns a sentence about the first wrong answer; empty if there is none.
std::string wrongly_received(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
