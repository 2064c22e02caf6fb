// Sizes: sums and products of counts that do not wrap around. A result that does not fit is
// kTooLarge, and stays so under everything but a multiplication by zero, so that a chain of them is
// checked once, at its end: nothing that a program can hold has so many elements, or bytes.
//
// Pure functions of numbers that are not negative.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

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

// The next multiple of `step`, which is positive.
inline std::int64_t round_up_size(std::int64_t size, std::int64_t step) {
  const std::int64_t raised = add_sizes(size, step - 1);
  return raised == kTooLarge ? kTooLarge : raised / step * step;
}

// The same of bytes as they are asked for: what is too large for anybody to have.
inline bool is_too_large(std::size_t bytes) { return bytes >= static_cast<std::size_t>(kTooLarge); }

}  // namespace lockstep
