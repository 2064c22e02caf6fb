// AgreementCheck: whether what a rank says of itself at a construction (reducer/replica_set.h)
// tells models and options apart that differ in one thing, whatever that is, and no others (B4).
// The ranks of a program that do not fit each other differ in what a misfit draws.
//
// Threads: any, one call at a time.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/base/build_namespace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Describes some models, which `key` determines. Returns a sentence about the first description
// that is wrong; empty if none is.
std::string wrongly_told_apart(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
