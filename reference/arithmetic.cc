#include "reference/arithmetic.h"

#include <cassert>

namespace lockstep::reference {
namespace {

constexpr std::uint64_t infinity_of(const Format& format) {
  return ((std::uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits;
}

// For the formats that the processor does not know; x is no NaN.
inline std::uint64_t narrow_bits(const Format& format, double x) {
  const std::uint64_t sign = std::uint64_t{std::signbit(x)} << 15;
  const double rounded = std::fabs(nearest_narrow(format, x));
  const std::uint64_t magnitude = std::bit_cast<std::uint64_t>(rounded);
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  if (exponent > format.max_exponent) return sign | infinity_of(format);
  if (exponent < format.min_exponent) {  // a multiple of the smallest subnormal
    const int smallest = format.min_exponent - format.mantissa_bits;
    const double steps =
        rounded * std::bit_cast<double>(static_cast<std::uint64_t>(1023 - smallest) << 52);
    return sign | static_cast<std::uint64_t>(steps);
  }
  const std::uint64_t biased = static_cast<std::uint64_t>(exponent - format.min_exponent + 1);
  const std::uint64_t mantissa = magnitude << 12 >> (64 - format.mantissa_bits);
  return sign | biased << format.mantissa_bits | mantissa;
}

// nearest() in a loop, with the choice of the dtype made once and not for every element.
void round_all(DType dtype, double* values, std::size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      for (std::size_t i = 0; i < count; ++i) values[i] = nearest(DType::kFloat32, values[i]);
      return;
    case DType::kFloat64:
      return;
    case DType::kFloat16:
      for (std::size_t i = 0; i < count; ++i) values[i] = nearest(DType::kFloat16, values[i]);
      return;
    case DType::kBFloat16:
      for (std::size_t i = 0; i < count; ++i) values[i] = nearest(DType::kBFloat16, values[i]);
      return;
  }
}

}  // namespace

double to_double(DType dtype, std::uint64_t bits) {
  if (dtype == DType::kFloat64) return std::bit_cast<double>(bits);
  if (dtype == DType::kFloat32) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  if (dtype == DType::kBFloat16) {  // the upper half of a float
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  }
  assert(bits <= 0xffff);
  const std::uint64_t sign = (bits & 0x8000) << 48;
  const std::uint64_t exponent = bits >> 10 & 0x1f;
  const std::uint64_t mantissa = bits & 0x3ff;
  if (exponent == 0) {
    const double magnitude = static_cast<double>(mantissa) * 0x1p-24;
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(magnitude) | sign);
  }
  const std::uint64_t wide = exponent == 0x1f ? 0x7ff : exponent - 15 + 1023;
  return std::bit_cast<double>(sign | wide << 52 | mantissa << 42);
}

std::uint64_t round_from_double(DType dtype, double x) {
  if (x != x) {
    const Format format = format_of(dtype);
    return infinity_of(format) | std::uint64_t{1} << (format.mantissa_bits - 1);
  }
  switch (dtype) {
    case DType::kFloat64:
      return std::bit_cast<std::uint64_t>(x);
    case DType::kFloat16:
      return narrow_bits(format_of(DType::kFloat16), x);
    case DType::kBFloat16:
      return narrow_bits(format_of(DType::kBFloat16), x);
    case DType::kFloat32:
      break;
  }
  return std::bit_cast<std::uint32_t>(static_cast<float>(x));
}

void add_values(DType dtype, double* into, const double* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
  round_all(dtype, into, count);
}

void scale_values(DType dtype, double* into, const double* from, double factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = from[i] * factor;
  if (dtype == DType::kFloat64) return;
  round_all(DType::kFloat32, into, count);  // the compute type
  if (dtype != DType::kFloat32) round_all(dtype, into, count);
}

void multiply_values(DType dtype, double* into, double factor, std::size_t count) {
  if (factor == 1) return;
  for (std::size_t i = 0; i < count; ++i) into[i] *= factor;
  round_all(dtype, into, count);
}

std::uint64_t add(DType dtype, std::uint64_t a, std::uint64_t b) {
  return round_from_double(dtype, to_double(dtype, a) + to_double(dtype, b));
}

std::uint64_t scale(DType dtype, std::uint64_t bits, std::uint32_t n) {
  assert(n > 0);
  return round_from_double(dtype, scaled(dtype, to_double(dtype, bits), scale_factor(dtype, n)));
}

bool same_bits(DType dtype, std::uint64_t a, std::uint64_t b) {
  return a == b || (std::isnan(to_double(dtype, a)) && std::isnan(to_double(dtype, b)));
}

}  // namespace lockstep::reference
