// Arithmetic: exactly rounded conversion, addition and scaling for the dtypes, to nearest,
// ties to even, subnormals kept (G2, G9). Pure functions; any thread; nothing fails.
//
// An element has two forms. Its *bits* are the dtype's bit pattern in the low bytes of a 64-bit
// integer. Its *value* is a double: every value of every dtype is one, -0 and the infinities
// included. A NaN is a NaN; payload and sign of it are not kept (G9).
//
// Why one double addition is enough. add() computes the sum s of two values in double and rounds it
// to the dtype, two roundings where the contract asks for one. The result is the same:
//   fp64  The second rounding does nothing.
//   fp32, fp16, bf16, with p = 24, 11, 8 significant bits. If s was exact there is one rounding.
//         Otherwise a + b needs more than 53 bits. Let |a| >= |b|, with 2^x <= |a| < 2^(x+1). Both
//         have at most p <= 24 bits. Had |b| at least 2^(x-27), its last bit would stand at
//         2^(x-50) or above, the sum would lie between that and 2^(x+2), and 53 bits would hold it:
//         so |b| < 2^(x-27). (A sum of subnormals is exact by the same argument, since all values
//         are multiples of the smallest one.) The neighbours of a in its dtype are at least
//         2^(x-p) away, so the nearest point halfway to one of them is at least 2^(x-p-1) >=
//         2^(x-25) away. The exact sum is less than 2^(x-27) from a, and s less than that plus half
//         an ulp of double, 2^(x-52): both round to a. Where a is the largest finite value, the
//         point from which numbers round to infinity is halfway to the next power of two's
//         neighbour, and the same holds.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "reference/program.h"

namespace lockstep::reference {

// The binary interchange format of a dtype: 1 sign bit, then the exponent, then the mantissa.
struct Format {
  int bytes;
  int mantissa_bits;  // stored ones
  int exponent_bits;
  int min_exponent;  // of the smallest normal value
  int max_exponent;  // of the largest finite value
};

constexpr Format format_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {8, 52, 11, -1022, 1023};
    case DType::kFloat16:
      return {2, 10, 5, -14, 15};
    case DType::kBFloat16:
      return {2, 7, 8, -126, 127};
    case DType::kFloat32:
    case DType::kComplex64:  // of a part
      break;
  }
  return {4, 23, 8, -126, 127};
}

constexpr std::uint32_t size_of(DType dtype) {
  return static_cast<std::uint32_t>(format_of(dtype).bytes) * parts_of(dtype);
}

// Rounds a double to a narrower format by hand; for those the processor does not know.
inline double nearest_narrow(const Format& format, double x) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  constexpr std::uint64_t kInfinity = std::uint64_t{0x7ff} << 52;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t magnitude = bits & ~kSign;
  if (magnitude >= kInfinity) return x;  // infinities and NaN
  const auto power_of_two = [](int exponent) {
    return static_cast<std::uint64_t>(exponent + 1023) << 52;
  };
  if (magnitude >= power_of_two(format.min_exponent)) {
    const int dropped = 52 - format.mantissa_bits;
    const std::uint64_t is_odd = magnitude >> dropped & 1;
    const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
    std::uint64_t rounded = (magnitude + half - 1 + is_odd) >> dropped << dropped;
    if (rounded >= power_of_two(format.max_exponent + 1)) rounded = kInfinity;
    return std::bit_cast<double>(rounded | (bits & kSign));
  }
  // Subnormal there: beside this number a double has exactly the format's smallest step, so that
  // the addition rounds as wanted; the subtraction is exact.
  const double step_at =
      std::bit_cast<double>(power_of_two(format.min_exponent - format.mantissa_bits + 52));
  return std::copysign((std::fabs(x) + step_at) - step_at, x);
}

// The value of the dtype nearest to x.
inline double nearest(DType dtype, double x) {
  if (dtype == DType::kFloat64) return x;
  if (dtype == DType::kFloat16) return nearest_narrow(format_of(DType::kFloat16), x);
  if (dtype == DType::kBFloat16) return nearest_narrow(format_of(DType::kBFloat16), x);
  return static_cast<double>(static_cast<float>(x));
}

// The value that the bits stand for.
double to_double(DType dtype, std::uint64_t bits);

// The bits of the dtype's value nearest to x. Every NaN gives the same quiet NaN.
std::uint64_t round_from_double(DType dtype, double x);

// The factor of clause G2 for the divisor n: 1/n, rounded to the dtype's compute type.
inline double scale_factor(DType dtype, std::uint32_t n) {
  if (dtype == DType::kFloat64) return 1.0 / static_cast<double>(n);
  return static_cast<double>(1.0F / static_cast<float>(n));
}

// Clause G2 for a value: the product in the compute type, rounded to the dtype. The product of two
// floats is exact in double, so that rounding it to float is the multiplication of floats.
inline double scaled(DType dtype, double value, double factor) {
  if (dtype == DType::kFloat64) return value * factor;
  return nearest(dtype, static_cast<double>(static_cast<float>(value * factor)));
}

// For arrays of values: into[i] + from[i]; from[i] scaled; into[i] * factor, computed in
// double and rounded once.
void add_values(DType dtype, double* into, const double* from, std::size_t count);
void scale_values(DType dtype, double* into, const double* from, double factor, std::size_t count);
void multiply_values(DType dtype, double* into, double factor, std::size_t count);

// round_from_double() for arrays: of values[position[i]]; and of values[i] * factor, whose bits
// become element i of the dtype's array that begins at `into`.
void round_values(DType dtype, std::uint64_t* into, const double* values,
                  const std::uint32_t* position, std::size_t count);
void store_values(DType dtype, std::byte* into, const double* values, double factor,
                  std::size_t count);

// Equal bits, or both are NaN.
bool same_bits(DType dtype, std::uint64_t a, std::uint64_t b);

}  // namespace lockstep::reference
