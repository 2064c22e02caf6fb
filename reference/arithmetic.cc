#include "reference/arithmetic.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

namespace lockstep::reference {
namespace {

constexpr std::uint64_t infinity_of(const Format& format) {
  return ((std::uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits;
}

constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// The exponent of x in a format: that of the smallest normal values also for subnormal ones, and
// the highest one for what is too large.
int exponent_in(const Format& format, double x) {
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(std::fabs(x)) >> 52) - 1023;
  return std::clamp(exponent, format.min_exponent, format.max_exponent);
}

// For the formats that the processor does not know. Beside `anchor` a double has exactly the step
// that the format has at x, so that the addition rounds as wanted; the subtraction is exact.
double nearest_narrow(const Format& format, double x) {
  if (!std::isfinite(x)) return x;
  const double anchor = power_of_two(exponent_in(format, x) - format.mantissa_bits + 52);
  const double rounded = (std::fabs(x) + anchor) - anchor;
  const bool is_finite = rounded < power_of_two(format.max_exponent + 1);
  return std::copysign(is_finite ? rounded : INFINITY, x);
}

// The same as bits; x is no NaN. The leading 1 of a normal value counts up the exponent.
std::uint64_t narrow_bits(const Format& format, double x) {
  const std::uint64_t sign = std::uint64_t{std::signbit(x)} << 15;
  const double rounded = std::fabs(nearest_narrow(format, x));
  if (std::isinf(rounded)) return sign | infinity_of(format);
  const int exponent = exponent_in(format, rounded);
  const auto counted = static_cast<std::uint64_t>(exponent - format.min_exponent);
  const double mantissa = rounded * power_of_two(format.mantissa_bits - exponent);
  return sign | ((counted << format.mantissa_bits) + static_cast<std::uint64_t>(mantissa));
}

// Calls f with the rounding of the dtype, which is so chosen once and not for each element.
template <class F>
void with_rounding(DType dtype, const F& f) {
  const Format format = format_of(dtype);
  if (format.bytes == 8) return f([](double x) { return x; });
  if (format.bytes == 4)
    return f([](double x) { return static_cast<double>(static_cast<float>(x)); });
  f([format](double x) { return nearest_narrow(format, x); });
}

}  // namespace

double nearest(DType dtype, double x) {
  if (dtype == DType::kFloat64) return x;
  if (format_of(dtype).bytes == 2) return nearest_narrow(format_of(dtype), x);
  return static_cast<double>(static_cast<float>(x));
}

double to_double(DType dtype, std::uint64_t bits) {
  if (dtype == DType::kFloat64) return std::bit_cast<double>(bits);
  if (dtype == DType::kBFloat16) bits <<= 16;  // the upper half of a float
  if (dtype != DType::kFloat16)
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  assert(bits <= 0xffff);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const auto mantissa = static_cast<double>(bits & 0x3ff);
  const int exponent = static_cast<int>(bits >> 10 & 0x1f);
  if (exponent == 0x1f) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 0x400, exponent - 25);
}

std::uint64_t round_from_double(DType dtype, double x) {
  const Format format = format_of(dtype);
  if (std::isnan(x)) return infinity_of(format) | std::uint64_t{1} << (format.mantissa_bits - 1);
  if (dtype == DType::kFloat64) return std::bit_cast<std::uint64_t>(x);
  if (format.bytes == 4) return std::bit_cast<std::uint32_t>(static_cast<float>(x));
  return narrow_bits(format, x);
}

void add_values(DType dtype, double* into, const double* from, std::size_t count) {
  with_rounding(dtype, [&](const auto& rounded) {
    for (std::size_t i = 0; i < count; ++i) into[i] = rounded(into[i] + from[i]);
  });
}

void scale_values(DType dtype, double* into, const double* from, double factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = scaled(dtype, from[i], factor);
}

void multiply_values(DType dtype, double* into, double factor, std::size_t count) {
  if (factor == 1) return;
  with_rounding(dtype, [&](const auto& rounded) {
    for (std::size_t i = 0; i < count; ++i) into[i] = rounded(into[i] * factor);
  });
}

void store_values(DType dtype, std::byte* into, const double* values, double factor,
                  std::size_t count) {
  const auto bytes = static_cast<std::size_t>(format_of(dtype).bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = round_from_double(dtype, values[i] * factor);
    for (std::size_t b = 0; b < bytes; ++b) *into++ = static_cast<std::byte>(bits >> 8 * b & 0xff);
  }
}

bool same_bits(DType dtype, std::uint64_t a, std::uint64_t b) {
  return a == b || (std::isnan(to_double(dtype, a)) && std::isnan(to_double(dtype, b)));
}

}  // namespace lockstep::reference
