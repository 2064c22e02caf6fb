// Addition, and the scaling of clause G2 by 1/n, for the bits of one element: what the model does
// with arrays of values.
#pragma once

#include <cstdint>

#include "reference/arithmetic.h"

namespace lockstep::reference {

inline std::uint64_t add(DType dtype, std::uint64_t a, std::uint64_t b) {
  return round_from_double(dtype, nearest(dtype, to_double(dtype, a) + to_double(dtype, b)));
}

inline std::uint64_t scale(DType dtype, std::uint64_t bits, std::uint32_t n) {
  return round_from_double(dtype, scaled(dtype, to_double(dtype, bits), scale_factor(dtype, n)));
}

}  // namespace lockstep::reference
