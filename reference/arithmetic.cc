#include "reference/arithmetic.h"

#include <cassert>
#include <cstring>

namespace lockstep::reference {
namespace {

constexpr std::uint64_t infinity_of(const Format& format) {
  return ((std::uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits;
}

// For the formats that the processor does not know; x is no NaN.
inline std::uint64_t narrow_bits(const Format& format, double x) {
  assert(format.bytes == 2);
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
  const std::uint64_t biased = static_cast<std::uint64_t>(exponent - format.min_exponent) + 1;
  const std::uint64_t mantissa = magnitude << 12 >> (64 - format.mantissa_bits);
  return sign | biased << format.mantissa_bits | mantissa;
}

template <DType kDType>
inline std::uint64_t round_to(double x) {
  static_assert(kDType != DType::kComplex64, "its parts are rounded one by one");
  constexpr Format kFormat = format_of(kDType);
  if (x != x) return infinity_of(kFormat) | std::uint64_t{1} << (kFormat.mantissa_bits - 1);
  if constexpr (kDType == DType::kFloat64) return std::bit_cast<std::uint64_t>(x);
  if constexpr (kDType == DType::kFloat32)
    return std::bit_cast<std::uint32_t>(static_cast<float>(x));
  return narrow_bits(kFormat, x);
}

// Calls f with an object whose `dtype` is a constant: the choice is made once and not for every
// element.
template <DType kDType>
struct Chosen {
  static constexpr DType dtype = kDType;
};
template <class F>
void with_dtype(DType dtype, F f) {
  if (dtype == DType::kFloat64) return f(Chosen<DType::kFloat64>{});
  if (dtype == DType::kFloat16) return f(Chosen<DType::kFloat16>{});
  if (dtype == DType::kBFloat16) return f(Chosen<DType::kBFloat16>{});
  assert(dtype == DType::kFloat32 || dtype == DType::kComplex64);
  f(Chosen<DType::kFloat32>{});
}

void round_all(DType dtype, double* values, std::size_t count) {
  if (dtype == DType::kFloat64) return;
  with_dtype(dtype, [&](auto chosen) {
    for (std::size_t i = 0; i < count; ++i) values[i] = nearest(chosen.dtype, values[i]);
  });
}

}  // namespace

double to_double(DType dtype, std::uint64_t bits) {
  if (dtype == DType::kFloat64) return std::bit_cast<double>(bits);
  if (dtype == DType::kFloat32 || dtype == DType::kComplex64) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  if (dtype == DType::kBFloat16) {  // the upper half of a float
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  }
  assert(dtype == DType::kFloat16);
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
  std::uint64_t bits = 0;
  with_dtype(dtype, [&](auto chosen) { bits = round_to<chosen.dtype>(x); });
  return bits;
}

void round_values(DType dtype, std::uint64_t* into, const double* values,
                  const std::uint32_t* position, std::size_t count) {
  with_dtype(dtype, [&](auto chosen) {
    for (std::size_t i = 0; i < count; ++i) into[i] = round_to<chosen.dtype>(values[position[i]]);
  });
}

void store_values(DType dtype, std::byte* into, const double* values, double factor,
                  std::size_t count) {
  with_dtype(dtype, [&](auto chosen) {
    constexpr std::size_t kBytes = size_of(chosen.dtype);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bits = round_to<chosen.dtype>(values[i] * factor);
      std::memcpy(into + i * kBytes, &bits, kBytes);  // the low bytes
    }
  });
}
static_assert(std::endian::native == std::endian::little);

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

bool same_bits(DType dtype, std::uint64_t a, std::uint64_t b) {
  return a == b || (std::isnan(to_double(dtype, a)) && std::isnan(to_double(dtype, b)));
}

}  // namespace lockstep::reference
