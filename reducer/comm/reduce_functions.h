// The sums of the host's process groups; Gloo's all-reduce calls them for each segment that
// arrives: out[i] = local[i] + incoming[i], each rounded to the dtype, as the declared order of
// additions demands (contract G3).
//
// float64 and float32 use the IEEE addition. float16 and bfloat16 widen both operands to float,
// add, and round to nearest even; the float sum of two 16-bit floats, rounded again, equals the
// exactly rounded sum, subnormals, infinities and -0 included. A NaN stays a NaN (with any
// payload). int32 adds modulo 2^32.
//
// `out` may equal `local` or `incoming`. The buffers need no alignment, and are bytes of the dtype.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reducer/base/dtype.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using SumFunction = void (*)(void* out, const void* local, const void* incoming,
                             std::size_t elements);

// Returns the sum for a dtype, or null for one that cannot be summed (kByte).
SumFunction sum_function(DType dtype);

// out[i] = local[i] + incoming[i], where each operand that `scaled` selects counts as round(factor
// * x).
enum class Scaled : std::uint8_t { kBoth, kLocal, kIncoming };
using ScaledSumFunction = void (*)(void* out, const void* local, const void* incoming,
                                   std::size_t elements, double factor, Scaled scaled);

// For float32 and float64; null for other dtypes. `factor` must be a value of the dtype.
ScaledSumFunction scaled_sum_function(DType dtype);

// Computes sum = ((x0 + x1) + x2) + ... of the pieces of all ranks, scaled as the collective says.
// A piece has `bytes` bytes, and the pieces are `stride` bytes apart.
void add_in_order(const Collective& collective, const std::byte* parts, std::size_t stride,
                  std::size_t bytes, std::uint64_t ranks, std::byte* sum);

// The float16 sum without the processor's conversion instructions. sum_function() returns it where
// there are none; it is declared here for the test that compares the two.
void sum_float16_portable(void* out, const void* local, const void* incoming, std::size_t elements);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
