// LayoutCheck: whether layouts that nobody may have are refused (B3, B5; reducer/bucket/layout.h):
// lists of buckets, a layout beside parameters that are not its own, and the text of a saved one,
// as chance makes and damages them. The layouts of a program are right, or of one misfit.
//
// Threads: any, one call at a time.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/base/build_namespace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Makes some layouts, which `key` determines. Returns a sentence about the first one that is
// wrongly taken or refused; empty if none is.
std::string wrongly_laid_out(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
