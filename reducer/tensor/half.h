// Conversions between float and the two 16-bit formats, IEEE binary16 and bfloat16, held as their
// bits. Conversions to 16 bits round to nearest, ties to even, keep subnormals, overflow to
// infinity, and turn a NaN into a quiet NaN with the same sign. Conversions from 16 bits are exact.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

inline float half_to_float(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffu;
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  // With the fields moved into place the exponent is 112 too small. One exact multiplication
  // corrects that, and handles subnormals too.
  static_assert(std::bit_cast<float>(0x3c00u << 13) * 0x1p112f == 1.0f);  // 0x3c00 is 1.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const std::uint32_t bits = magnitude >= 0x7c00u ? (0x7f800000u | (magnitude & 0x3ffu) << 13)
                                                  : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(sign | bits);
}

inline std::uint16_t float_to_half(float value) {
  constexpr std::uint32_t kInfinity = 0x7f800000u;
  // 65520, which is half-way between 65504 and 65536.
  constexpr std::uint32_t kOverflow = 0x477ff000u;
  constexpr std::uint32_t kMinNormal = 0x38800000u;  // 2^-14.
  static_assert(std::bit_cast<float>(kOverflow) == 65520.0f);
  static_assert(std::bit_cast<float>(kMinNormal) == 0x1p-14f);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kInfinity) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= kOverflow) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < kMinNormal) {
    // Adding 0.5 aligns the last place with 2^-24, the smallest subnormal, so that the hardware
    // does the rounding.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  const std::uint32_t rounded = magnitude - (112u << 23) + 0xfffu + odd;
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

inline float bfloat16_to_float(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

inline std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace lockstep
