// Sums and products of counts that do not wrap around. A result that does not fit is kTooLarge. It
// stays kTooLarge under every operation but a multiplication by zero, so one check at the end of a
// chain of operations suffices: nothing that a program can hold has so many elements or bytes.
//
// These are pure functions of non-negative numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "reducer/base/check.h"

namespace lockstep {

constexpr std::int64_t kTooLarge = std::numeric_limits<std::int64_t>::max();

inline std::int64_t add_sizes(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kTooLarge : sum;
}

inline std::int64_t multiply_sizes(std::int64_t a, std::int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (a == kTooLarge || b == kTooLarge) return kTooLarge;
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kTooLarge : product;
}

// Rounds up to the next multiple of `step`, which must be positive.
inline std::int64_t round_up_size(std::int64_t size, std::int64_t step) {
  LOCKSTEP_CHECK_LT(0, step);
  const std::int64_t raised = add_sizes(size, step - 1);
  return raised == kTooLarge ? kTooLarge : raised / step * step;
}

// The same check for a requested number of bytes: whether no memory can be that large.
inline bool is_too_large(std::size_t bytes) { return bytes >= static_cast<std::size_t>(kTooLarge); }

}  // namespace lockstep
