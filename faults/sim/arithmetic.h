// The sums of the simulated transport: into[i] = into[i] + from[i], rounded to the dtype (to
// nearest, ties to even, subnormals kept). The 16-bit formats add in float, which gives the
// correctly rounded sum: 24 bits are enough to round twice without harm. int32 wraps around. Pure
// functions; any thread. `into` and `from` need no alignment and do not overlap.
#pragma once

#include <cstddef>

#include "reducer/base/dtype.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

bool can_sum(DType dtype);

// can_sum(dtype) must hold. `bytes` is a multiple of the element's size.
void sum_into(DType dtype, std::byte* into, const std::byte* from, std::size_t bytes);

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
