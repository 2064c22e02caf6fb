#include "faults/sim/arithmetic.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "reference/test_arithmetic.h"

namespace lockstep::simulated {
namespace {

template <class T>
T sum_of(DType dtype, T a, T b) {
  std::array<std::byte, sizeof(T)> into;
  std::array<std::byte, sizeof(T)> from;
  std::memcpy(into.data(), &a, sizeof(T));
  std::memcpy(from.data(), &b, sizeof(T));
  sum_into(dtype, into.data(), from.data(), sizeof(T));
  std::memcpy(&a, into.data(), sizeof(T));
  return a;
}

template <class T>
void expect_as_reference(DType dtype, reference::DType same, std::uint64_t a, std::uint64_t b) {
  const T sum = sum_of(dtype, static_cast<T>(a), static_cast<T>(b));
  const std::uint64_t expected = reference::add(same, a, b);
  EXPECT_TRUE(reference::same_bits(same, sum, expected))
      << name_of(dtype) << std::hex << " " << a << " + " << b << " gave " << +sum << ", not "
      << expected;
}

// Zeros, subnormals, the largest and smallest normals, infinities, NaN, ones and their neighbours,
// of either sign.
std::vector<std::uint64_t> corners_16(std::uint32_t mantissa_bits) {
  const std::uint64_t one_exponent = std::uint64_t{1} << mantissa_bits;
  const std::uint64_t infinity = 0x7fff & ~(one_exponent - 1);
  std::vector<std::uint64_t> out;
  for (const std::uint64_t sign : {0x0000U, 0x8000U})
    for (const std::uint64_t bits :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, one_exponent - 1, one_exponent,
          one_exponent + 1, infinity / 2, infinity / 2 + 1, infinity - one_exponent, infinity - 1,
          infinity, infinity | 1, infinity | one_exponent / 2})
      out.push_back(sign | bits);
  return out;
}

TEST(SimulatedSums, CornersOfTheSixteenBitFormatsAreRoundedAsTheReferenceRounds) {
  for (const std::uint64_t a : corners_16(10))
    for (const std::uint64_t b : corners_16(10))
      expect_as_reference<std::uint16_t>(DType::kFloat16, reference::DType::kFloat16, a, b);
  for (const std::uint64_t a : corners_16(7))
    for (const std::uint64_t b : corners_16(7))
      expect_as_reference<std::uint16_t>(DType::kBFloat16, reference::DType::kBFloat16, a, b);
}

TEST(SimulatedSums, AnyBitsAreSummedAsTheReferenceSums) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 300'000; ++i) {
    const std::uint64_t a = random();
    // Half of the time the same sign and exponent but for the last bits, so that rounding matters.
    const std::uint64_t b = i % 2 == 0 ? random() : a ^ (random() & 0x00ff'00ff'00ff'00ffU);
    expect_as_reference<std::uint16_t>(DType::kFloat16, reference::DType::kFloat16, a & 0xffff,
                                       b & 0xffff);
    expect_as_reference<std::uint16_t>(DType::kBFloat16, reference::DType::kBFloat16, a & 0xffff,
                                       b & 0xffff);
    expect_as_reference<std::uint32_t>(DType::kFloat32, reference::DType::kFloat32, a & 0xffff'ffff,
                                       b & 0xffff'ffff);
    expect_as_reference<std::uint64_t>(DType::kFloat64, reference::DType::kFloat64, a, b);
  }
}

TEST(SimulatedSums, IntegersWrapAround) {
  EXPECT_EQ(sum_of<std::int32_t>(DType::kInt32, 5, -7), -2);
  EXPECT_EQ(sum_of<std::int32_t>(DType::kInt32, 0x7fff'ffff, 1),
            static_cast<std::int32_t>(0x8000'0000));
}

TEST(SimulatedSums, OnlyBytesHaveNoSum) {
  for (const DType dtype :
       {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32})
    EXPECT_TRUE(can_sum(dtype));
  EXPECT_FALSE(can_sum(DType::kByte));
}

}  // namespace
}  // namespace lockstep::simulated
