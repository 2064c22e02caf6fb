#include "reducer/comm/reduce_functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace lockstep {
namespace {

// Computes the value of a binary16 or bfloat16 by its definition, in double, which holds it
// exactly.
double value_of_16(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  const int hidden = exponent == 0 ? 0 : 1 << fraction_bits;
  return sign * std::ldexp(fraction + hidden, std::max(exponent, 1) - bias - fraction_bits);
}

// The exact sum of two such values fits into a double of 53 bits only for near exponents. When it
// does not, the smaller operand is below half a last place of the larger, and long double decides.
std::uint16_t nearest_16(long double exact, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int infinity = ((1 << exponent_bits) - 1) << fraction_bits;
  const bool is_negative = std::signbit(exact);
  const long double magnitude = std::fabs(exact);
  int low = 0;
  int high = infinity;
  while (high - low > 1) {  // Finds the largest finite pattern that is not above the magnitude.
    const int middle = (low + high) / 2;
    (value_of_16(static_cast<std::uint16_t>(middle), exponent_bits) <= magnitude ? low : high) =
        middle;
  }
  // Above the largest finite value the next step is where the exponent would continue.
  const long double below = value_of_16(static_cast<std::uint16_t>(low), exponent_bits);
  const long double step =
      below - value_of_16(static_cast<std::uint16_t>(low == 0 ? 0 : low - 1), exponent_bits);
  const long double above = low + 1 == infinity
                                ? below + step
                                : value_of_16(static_cast<std::uint16_t>(low + 1), exponent_bits);
  const long double left = magnitude - below;
  const long double right = above - magnitude;
  const int pattern = left < right || (left == right && low % 2 == 0) ? low : low + 1;
  return static_cast<std::uint16_t>(pattern | (is_negative ? 0x8000 : 0));
}

void expect_rounded_sum(std::uint16_t a, std::uint16_t b, std::uint16_t got, int exponent_bits) {
  const double left = value_of_16(a, exponent_bits);
  const double right = value_of_16(b, exponent_bits);
  if (std::isnan(left + right)) {
    EXPECT_TRUE(std::isnan(value_of_16(got, exponent_bits))) << a << " + " << b;
  } else if (std::isinf(left + right)) {
    EXPECT_EQ(value_of_16(got, exponent_bits), left + right) << a << " + " << b;
  } else {
    const long double exact = static_cast<long double>(left) + right;
    EXPECT_EQ(got, nearest_16(exact, exponent_bits)) << a << " + " << b;
  }
}

class Sum16 : public ::testing::TestWithParam<DType> {
 protected:
  int exponent_bits() const { return GetParam() == DType::kFloat16 ? 5 : 8; }
  // bfloat16 spans 2^-133 to 2^127, so only sums of near exponents are exact in long double.
  bool is_exact_in_long_double(std::uint16_t a, std::uint16_t b) const {
    if (GetParam() == DType::kFloat16) return true;
    const double left = std::fabs(value_of_16(a, 8));
    const double right = std::fabs(value_of_16(b, 8));
    if (left == 0 || right == 0 || !std::isfinite(left + right)) return true;
    return std::abs(std::ilogb(left) - std::ilogb(right)) < 50;
  }
};

TEST_P(Sum16, EveryValuePlusSpecialValuesIsRoundedOnce) {
  const SumFunction sum = sum_function(GetParam());
  const std::uint16_t infinity = GetParam() == DType::kFloat16 ? 0x7c00 : 0x7f80;
  const std::uint16_t others[] = {0,
                                  0x8000,
                                  1,
                                  0x8001,
                                  infinity,
                                  static_cast<std::uint16_t>(infinity | 0x8000),
                                  static_cast<std::uint16_t>(infinity + 1),
                                  static_cast<std::uint16_t>(infinity - 1),
                                  static_cast<std::uint16_t>((infinity - 1) | 0x8000),
                                  0x0400,
                                  0x3c00,
                                  0xbc01,
                                  0x03ff,
                                  0x5555};
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const std::uint16_t other : others) {
    const std::vector<std::uint16_t> right(all.size(), other);
    std::vector<std::uint16_t> out(all.size());
    sum(out.data(), all.data(), right.data(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      if (is_exact_in_long_double(all[i], other))
        expect_rounded_sum(all[i], other, out[i], exponent_bits());
    if (HasFailure()) return;
  }
}

TEST_P(Sum16, RandomPairsAreRoundedOnce) {
  const SumFunction sum = sum_function(GetParam());
  std::mt19937 random(7);
  std::vector<std::uint16_t> left(200'003);
  std::vector<std::uint16_t> right(left.size());
  for (auto& bits : left) bits = static_cast<std::uint16_t>(random());
  for (auto& bits : right) bits = static_cast<std::uint16_t>(random());
  std::vector<std::uint16_t> out = left;
  sum(out.data(), out.data(), right.data(), out.size());  // The sum is in place, as in the ring.
  for (std::size_t i = 0; i < out.size(); ++i)
    if (is_exact_in_long_double(left[i], right[i]))
      expect_rounded_sum(left[i], right[i], out[i], exponent_bits());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Sum16, ::testing::Values(DType::kFloat16, DType::kBFloat16),
                         [](const auto& parameter) {
                           return std::string(name_of(parameter.param));
                         });

TEST(Sum, PortableAndFastFloat16Agree) {
  std::mt19937 random(11);
  std::vector<std::uint16_t> left(1'000'003);
  std::vector<std::uint16_t> right(left.size());
  for (auto& bits : left) bits = static_cast<std::uint16_t>(random());
  for (auto& bits : right) bits = static_cast<std::uint16_t>(random());
  std::vector<std::uint16_t> fast(left.size());
  std::vector<std::uint16_t> portable(left.size());
  sum_function(DType::kFloat16)(fast.data(), left.data(), right.data(), left.size());
  sum_float16_portable(portable.data(), left.data(), right.data(), left.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    const bool both_nan = (fast[i] & 0x7fff) > 0x7c00 && (portable[i] & 0x7fff) > 0x7c00;
    if (both_nan) continue;
    ASSERT_EQ(fast[i], portable[i]) << left[i] << " + " << right[i];
  }
}

template <typename T>
void expect_plain_sums(DType dtype, const std::vector<T>& values) {
  for (std::size_t count : {0u, 1u, 3u, 7u, 8u, 9u, 31u, 64u, 65u}) {
    for (std::size_t shift : {0u, 1u}) {  // No alignment is promised.
      std::vector<std::byte> left((count + 1) * sizeof(T) + 1);
      std::vector<std::byte> right(left.size());
      std::vector<std::byte> out(left.size(), std::byte{0xa5});
      for (std::size_t i = 0; i < count; ++i) {
        const T a = values[i % values.size()];
        const T b = values[(i * 5 + 1) % values.size()];
        std::memcpy(left.data() + shift + i * sizeof(T), &a, sizeof(T));
        std::memcpy(right.data() + shift + i * sizeof(T), &b, sizeof(T));
      }
      sum_function(dtype)(out.data() + shift, left.data() + shift, right.data() + shift, count);
      for (std::size_t i = 0; i < count; ++i) {
        T a;
        T b;
        T got;
        std::memcpy(&a, left.data() + shift + i * sizeof(T), sizeof(T));
        std::memcpy(&b, right.data() + shift + i * sizeof(T), sizeof(T));
        std::memcpy(&got, out.data() + shift + i * sizeof(T), sizeof(T));
        const T want = static_cast<T>(a + b);
        EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : std::memcmp(&got, &want, sizeof(T)) == 0)
            << a << " + " << b << " gave " << got;
      }
      for (std::size_t i = shift + count * sizeof(T); i < out.size(); ++i)
        EXPECT_EQ(out[i], std::byte{0xa5});  // Nothing beyond the elements is written.
    }
  }
}

TEST(Sum, FloatsAddByIeee) {
  const float inf = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::denorm_min();
  expect_plain_sums<float>(DType::kFloat32,
                           {1.5f, -0.0f, inf, -inf, std::nanf(""), tiny, -tiny, 3e38f, 1e-38f});
  expect_plain_sums<double>(DType::kFloat64, {1.5, -0.0, HUGE_VAL, -HUGE_VAL, std::nan(""),
                                              std::numeric_limits<double>::denorm_min(), 1e308});
}

// Whichever operand is scaled, the product is rounded before it is added.
template <typename T>
void expect_scaled_sums(DType dtype, const std::vector<T>& values) {
  const T factor = static_cast<T>(1) / static_cast<T>(3);
  for (const Scaled scaled : {Scaled::kBoth, Scaled::kLocal, Scaled::kIncoming}) {
    const T of_left = scaled == Scaled::kIncoming ? T{1} : factor;
    const T of_right = scaled == Scaled::kLocal ? T{1} : factor;
    for (const std::size_t count : {0u, 1u, 7u, 8u, 9u, 65u}) {
      std::vector<T> left;
      std::vector<T> right;
      for (std::size_t i = 0; i < count; ++i) left.push_back(values[i % values.size()]);
      for (std::size_t i = 0; i < count; ++i) right.push_back(values[(i * 5 + 1) % values.size()]);
      std::vector<T> out(count + 1, T{7});
      scaled_sum_function(dtype)(out.data(), left.data(), right.data(), count, factor, scaled);
      EXPECT_EQ(out[count], T{7});
      for (std::size_t i = 0; i < count; ++i) {
        volatile T a = left[i] * of_left;
        volatile T b = right[i] * of_right;
        const T want = a + b;
        EXPECT_TRUE(want != want ? out[i] != out[i] : std::memcmp(&out[i], &want, sizeof(T)) == 0)
            << left[i] << ", " << right[i] << " gave " << out[i];
      }
    }
  }
}

TEST(Sum, ScaledFloatsAreRoundedBeforeTheyAreAdded) {
  expect_scaled_sums<float>(DType::kFloat32, {1.5f, -0.1f, 3e38f, -1e-38f, 0.7f, -0.0f, 1e-40f});
  expect_scaled_sums<double>(DType::kFloat64, {1.5, -0.1, 1e308, -1e-308, 0.7, -0.0, 5e-324});
  EXPECT_EQ(scaled_sum_function(DType::kFloat16), nullptr);
  EXPECT_EQ(scaled_sum_function(DType::kInt32), nullptr);
}

TEST(Sum, IntegersWrap) {
  const std::int32_t max = std::numeric_limits<std::int32_t>::max();
  const std::int32_t left[] = {max, -5, 7};
  const std::int32_t right[] = {1, 3, -7};
  std::int32_t out[3];
  sum_function(DType::kInt32)(out, left, right, 3);
  EXPECT_EQ(out[0], std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(out[1], -2);
  EXPECT_EQ(out[2], 0);
}

TEST(Sum, BytesHaveNoSum) { EXPECT_EQ(sum_function(DType::kByte), nullptr); }

}  // namespace
}  // namespace lockstep
