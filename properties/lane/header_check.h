// HeaderCheck: how collectives are told apart and put into words
// (reducer/comm/collective_header.h), where chance makes the collectives. Ranks of a program rarely
// differ in one field alone, as the agreement of a construction compares most of them (B4).
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Describes some collectives, which `key` determines, and compares each with one that differs in a
// single field (F6). Returns a sentence about the first wrong answer; empty if there is none.
std::string wrongly_described(std::uint32_t key);

// The same of ranks whose headers differ: each has to report a mismatch with both sides, and to
// suspect no rank that has entered what most of them have (F2, F6).
std::string wrongly_compared(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
