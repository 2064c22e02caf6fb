// RowsCheck: what a rank makes of the rows that its peers send it of a sparse gradient
// (reducer/sparse_sum.h), where chance makes the rows, and most lists are none that a peer may send
// (F3). The peers of a program send what they should, and a verified exchange finds what was
// changed on its way before the lists are read.
//
// Threads: any, one call at a time.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Lets a rank add the rows of some groups, which `key` determines. Returns a sentence about the
// first answer that is not the one that the rows give; empty if all are.
std::string wrongly_added(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
