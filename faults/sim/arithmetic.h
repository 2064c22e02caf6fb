// The sums of the simulated transport: into[i] = into[i] + from[i], rounded to the dtype (to
// nearest, ties to even, subnormals preserved). The 16-bit formats add in float, which gives the
// correctly rounded sum: with 24 bits, rounding twice does no harm. int32 wraps around. These are
// pure functions; any thread may call them. `into` and `from` need no alignment and must not
// overlap.
#pragma once

#include <cstddef>

#include "reducer/base/dtype.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

bool can_sum(DType dtype);

// Requires can_sum(dtype). `bytes` must be a multiple of the element's size.
void sum_into(DType dtype, std::byte* into, const std::byte* from, std::size_t bytes);

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
