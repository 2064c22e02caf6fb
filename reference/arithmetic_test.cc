#include "reference/arithmetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "reference/test_arithmetic.h"

namespace lockstep::reference {
namespace {

constexpr DType kAll[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
constexpr DType kNarrow[] = {DType::kFloat16, DType::kBFloat16};

// The definition of a 16-bit format, told slowly: sign, exponent field, mantissa field.
double defined_value(int mantissa_bits, int bias, std::uint64_t bits) {
  const int mantissa = static_cast<int>(bits & ((1U << mantissa_bits) - 1));
  const int field = static_cast<int>((bits & 0x7fff) >> mantissa_bits);
  const int top = 0x7fff >> mantissa_bits;
  double magnitude = 0;
  if (field == top) {
    magnitude = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (field == 0) {
    magnitude = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    magnitude = std::ldexp(mantissa + (1 << mantissa_bits), field - bias - mantissa_bits);
  }
  return bits & 0x8000 ? -magnitude : magnitude;
}

// All magnitudes of a 16-bit format, ascending: position = bits. The one after the largest finite
// value is the power of two that takes infinity's place when distances are compared.
class Table {
 public:
  explicit Table(DType dtype)
      : mantissa_bits_(dtype == DType::kFloat16 ? 10 : 7),
        bias_(dtype == DType::kFloat16 ? 15 : 127) {
    infinity_ = 0x7fffU >> mantissa_bits_ << mantissa_bits_;
    for (std::uint64_t bits = 0; bits < infinity_; ++bits) values_.push_back(value(bits));
    values_.push_back(std::ldexp(1.0, bias_ + 1));
  }
  double value(std::uint64_t bits) const { return defined_value(mantissa_bits_, bias_, bits); }
  std::uint64_t infinity() const { return infinity_; }

  // The bits nearest to sum + error, where the error is so small that it decides ties alone.
  std::uint64_t nearest_bits(double sum, double error = 0) const {
    const std::uint64_t sign = std::signbit(sum) ? 0x8000 : 0;
    const double x = std::fabs(sum);
    const double rest = std::signbit(sum) ? -error : error;
    if (x >= values_.back()) return sign | infinity_;
    const auto above = std::upper_bound(values_.begin(), values_.end(), x);
    const auto low = static_cast<std::uint64_t>(above - values_.begin()) - 1;
    const double middle = values_[low] + (values_[low + 1] - values_[low]) / 2;  // exact
    if (x != middle) return sign | (x < middle ? low : low + 1);
    if (rest != 0) return sign | (rest < 0 ? low : low + 1);
    return sign | (low % 2 == 0 ? low : low + 1);
  }

 private:
  int mantissa_bits_;
  int bias_;
  std::uint64_t infinity_ = 0;
  std::vector<double> values_;
};

TEST(Arithmetic, EveryBitPatternOfTheNarrowTypesHasItsDefinedValue) {
  for (const DType dtype : kNarrow) {
    const Table table(dtype);
    for (std::uint64_t bits = 0; bits <= 0xffff; ++bits) {
      const double expected = table.value(bits);
      const double actual = to_double(dtype, bits);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(actual)) << bits;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint64_t>(actual), std::bit_cast<std::uint64_t>(expected));
      }
    }
  }
}

TEST(Arithmetic, EveryNarrowValueConvertsToItself) {
  for (const DType dtype : kNarrow) {
    for (std::uint64_t bits = 0; bits <= 0xffff; ++bits) {
      const double value = to_double(dtype, bits);
      ASSERT_TRUE(same_bits(dtype, round_from_double(dtype, value), bits)) << bits;
      ASSERT_TRUE(std::isnan(value) || round_from_double(dtype, value) == bits) << bits;
      ASSERT_TRUE(same_bits(DType::kFloat64, std::bit_cast<std::uint64_t>(nearest(dtype, value)),
                            std::bit_cast<std::uint64_t>(value)));
    }
  }
}

// Between every two neighbours: the middle, and the doubles next to it, both signs.
TEST(Arithmetic, EveryMiddleOfTwoNarrowValuesRoundsToEvenAndItsNeighboursAway) {
  for (const DType dtype : kNarrow) {
    const Table table(dtype);
    for (std::uint64_t low = 0; low < table.infinity(); ++low) {
      const double below = table.value(low);
      const double above = low + 1 < table.infinity()
                               ? table.value(low + 1)
                               : std::ldexp(1.0, dtype == DType::kFloat16 ? 16 : 128);
      const double middle = below + (above - below) / 2;
      const std::uint64_t even = low % 2 == 0 ? low : low + 1;
      ASSERT_EQ(round_from_double(dtype, middle), even) << low;
      ASSERT_EQ(round_from_double(dtype, -middle), even | 0x8000) << low;
      ASSERT_EQ(round_from_double(dtype, std::nextafter(middle, 0)), low) << low;
      ASSERT_EQ(round_from_double(dtype, std::nextafter(middle, HUGE_VAL)), low + 1) << low;
      ASSERT_EQ(round_from_double(dtype, -std::nextafter(middle, HUGE_VAL)), (low + 1) | 0x8000);
    }
  }
}

TEST(Arithmetic, RandomDoublesRoundToTheNearestNarrowValueFoundBySearch) {
  std::mt19937_64 random(1);
  for (const DType dtype : kNarrow) {
    const Table table(dtype);
    const int range = dtype == DType::kFloat16 ? 50 : 280;
    for (int i = 0; i < 300'000; ++i) {
      const double mantissa = 1 + static_cast<double>(random() >> 12) * 0x1p-52;
      const int exponent = static_cast<int>(random() % static_cast<unsigned>(range)) - range / 2;
      const double x = std::ldexp(random() % 2 ? mantissa : -mantissa, exponent);
      ASSERT_EQ(round_from_double(dtype, x), table.nearest_bits(x)) << x;
      ASSERT_EQ(nearest(dtype, x), to_double(dtype, table.nearest_bits(x))) << x;
    }
  }
}

TEST(Arithmetic, BoundaryCasesOfTheNarrowTypes) {
  const double tiniest = std::numeric_limits<double>::denorm_min();
  for (const DType dtype : kNarrow) {
    const std::uint64_t infinity = dtype == DType::kFloat16 ? 0x7c00 : 0x7f80;
    EXPECT_EQ(round_from_double(dtype, 0.0), 0U);
    EXPECT_EQ(round_from_double(dtype, -0.0), 0x8000U);
    EXPECT_EQ(round_from_double(dtype, tiniest), 0U);
    EXPECT_EQ(round_from_double(dtype, -tiniest), 0x8000U);
    EXPECT_EQ(round_from_double(dtype, HUGE_VAL), infinity);
    EXPECT_EQ(round_from_double(dtype, -HUGE_VAL), infinity | 0x8000);
    EXPECT_EQ(round_from_double(dtype, 1e300), infinity);
    EXPECT_TRUE(std::isnan(to_double(dtype, round_from_double(dtype, -std::nan("")))));
    EXPECT_TRUE(std::signbit(nearest(dtype, -0.0)));
    EXPECT_TRUE(std::signbit(nearest(dtype, -tiniest)));
  }
  EXPECT_EQ(round_from_double(DType::kFloat16, 65519.999), 0x7bffU);
  EXPECT_EQ(round_from_double(DType::kFloat16, 65520.0), 0x7c00U);
  EXPECT_EQ(round_from_double(DType::kFloat16, 0x1p-25), 0U);
  EXPECT_EQ(round_from_double(DType::kFloat16, 0x1.8p-25), 1U);
  EXPECT_EQ(round_from_double(DType::kBFloat16, 1.0), 0x3f80U);
  EXPECT_EQ(round_from_double(DType::kBFloat16, 0x1p-133), 1U);
}

// A float is right if neither neighbour is nearer; distances of a double to floats are exact in
// long double here, because both have at most 53 bits within 2^11 of each other.
TEST(Arithmetic, DoublesRoundToTheNearestFloat) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 300'000; ++i) {
    const double mantissa = 1 + static_cast<double>(random() >> 12) * 0x1p-52;
    const double x = std::ldexp(mantissa, static_cast<int>(random() % 280) - 152);
    const auto bits = static_cast<std::uint32_t>(round_from_double(DType::kFloat32, x));
    const float rounded = std::bit_cast<float>(bits);
    if (std::isinf(rounded)) {
      ASSERT_GE(x, 0x1.ffffffp127);
      continue;
    }
    const auto distance = [&](float f) { return std::fabs(static_cast<long double>(x) - f); };
    const float down = std::nextafter(rounded, -HUGE_VALF);
    const float up = std::nextafter(rounded, HUGE_VALF);
    ASSERT_LE(distance(rounded), distance(down));
    ASSERT_LE(distance(rounded), distance(up));
    const bool is_tie = distance(rounded) == distance(down) || distance(rounded) == distance(up);
    ASSERT_TRUE(!is_tie || bits % 2 == 0);
  }
}

TEST(Arithmetic, FloatAndDoubleBitsAreThoseOfTheProcessor) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t bits = random();
    const auto half = static_cast<std::uint32_t>(bits);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(to_double(DType::kFloat64, bits)), bits);
    if (std::isnan(std::bit_cast<float>(half))) continue;
    ASSERT_EQ(round_from_double(DType::kFloat32, to_double(DType::kFloat32, half)), half);
  }
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(to_double(DType::kFloat32, 1), static_cast<double>(tiny));
  EXPECT_EQ(round_from_double(DType::kFloat64, -0.0), std::uint64_t{1} << 63);
}

// TwoSum: s + error is the sum exactly, for finite results.
double error_of_sum(double a, double b, double s) {
  const double b_part = s - a;
  return (a - (s - b_part)) + (b - b_part);
}

TEST(Arithmetic, NarrowSumsAreTheExactSumRoundedOnce) {
  std::mt19937_64 random(4);
  for (const DType dtype : kNarrow) {
    const Table table(dtype);
    for (int i = 0; i < 1'000'000; ++i) {
      const std::uint64_t a = random() & 0xffff;
      std::uint64_t b = random() & 0xffff;
      if (i % 4 == 1) b = (a + random() % 5) & 0xffff;                  // near a
      if (i % 4 == 2) b = ((a ^ 0x8000) + random() % 3) & 0xffff;       // cancels
      if (i % 4 == 3) b &= dtype == DType::kFloat16 ? 0x87ff : 0x81ff;  // subnormal, or nearly
      const double x = table.value(a);
      const double y = table.value(b);
      const double sum = x + y;
      const std::uint64_t actual = add(dtype, a, b);
      if (!std::isfinite(sum)) {
        ASSERT_TRUE(same_bits(dtype, actual, round_from_double(dtype, sum)));
        continue;
      }
      ASSERT_EQ(actual, table.nearest_bits(sum, error_of_sum(x, y, sum))) << x << " + " << y;
    }
  }
}

// The sums that two roundings could get wrong: a large value with half a step added to it or taken
// away, and far below that a little more.
TEST(Arithmetic, AWholeTableOfNarrowValuesTakesSummandsOfEverySizeRightly) {
  for (const DType dtype : kNarrow) {
    const Table table(dtype);
    for (std::uint64_t a = 0; a < table.infinity(); a += 7) {
      for (std::uint64_t b = 0; b < table.infinity(); b += 61) {
        const double x = table.value(a);
        const double y = -table.value(b);
        const double sum = x + y;
        ASSERT_EQ(add(dtype, a, b | 0x8000), table.nearest_bits(sum, error_of_sum(x, y, sum)));
      }
    }
  }
}

TEST(Arithmetic, FloatSumsAreThoseOfTheProcessor) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2'000'000; ++i) {
    auto a = static_cast<std::uint32_t>(random());
    auto b = static_cast<std::uint32_t>(random());
    if (i % 2) b = (b & 0x807fffff) | ((a & 0x7f800000) ^ (b & 0x0f000000 & -(b >> 31)));
    if (i % 16 == 3) a &= 0x80ffffff;
    if (i % 16 == 3) b &= 0x80ffffff;
    const float expected = std::bit_cast<float>(a) + std::bit_cast<float>(b);
    ASSERT_TRUE(same_bits(DType::kFloat32, add(DType::kFloat32, a, b),
                          std::bit_cast<std::uint32_t>(expected)));
  }
  EXPECT_EQ(add(DType::kFloat64, std::bit_cast<std::uint64_t>(1.0),
                std::bit_cast<std::uint64_t>(0x1p-60)),
            std::bit_cast<std::uint64_t>(1.0));
}

TEST(Arithmetic, MinusZeroPlusZeroIsZeroInEveryType) {
  for (const DType dtype : kAll) {
    const std::uint64_t minus = round_from_double(dtype, -0.0);
    EXPECT_NE(minus, 0U);
    EXPECT_EQ(add(dtype, minus, 0), 0U);
    EXPECT_EQ(add(dtype, 0, minus), 0U);
    EXPECT_EQ(add(dtype, minus, minus), minus);
    EXPECT_EQ(scale(dtype, minus, 3), minus);
  }
}

TEST(Arithmetic, ScalingMultipliesInTheComputeTypeAndThenRounds) {
  std::mt19937_64 random(6);
  for (std::uint32_t n = 1; n <= kMaxWorld; n += n < 9 ? 1 : 11) {
    const float k = 1.0F / static_cast<float>(n);
    for (const DType dtype : kNarrow) {
      const Table table(dtype);
      for (std::uint64_t bits = 0; bits <= 0xffff; ++bits) {
        const float product = static_cast<float>(table.value(bits)) * k;
        if (std::isnan(product)) {
          ASSERT_TRUE(std::isnan(to_double(dtype, scale(dtype, bits, n))));
        } else {
          ASSERT_EQ(scale(dtype, bits, n), table.nearest_bits(static_cast<double>(product)));
        }
      }
    }
    for (int i = 0; i < 100'000; ++i) {
      const std::uint64_t bits = random();
      const float narrow = std::bit_cast<float>(static_cast<std::uint32_t>(bits)) * k;
      ASSERT_TRUE(same_bits(DType::kFloat32, scale(DType::kFloat32, bits & 0xffffffff, n),
                            std::bit_cast<std::uint32_t>(narrow)));
      const double wide = std::bit_cast<double>(bits) * (1.0 / n);
      ASSERT_TRUE(same_bits(DType::kFloat64, scale(DType::kFloat64, bits, n),
                            std::bit_cast<std::uint64_t>(wide)));
    }
  }
}

TEST(Arithmetic, ScalingIsNotDivision) {
  int differ = 0;
  for (int i = 1; i <= 1000; ++i) {
    const float x = 1.0F + static_cast<float>(i) * 0x1p-20F;
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto divided = std::bit_cast<std::uint32_t>(x / 3.0F);
    differ += scale(DType::kFloat32, bits, 3) != divided;
  }
  EXPECT_GT(differ, 100);
}

TEST(Arithmetic, ArraysAreTreatedAsTheirElements) {
  std::mt19937_64 random(7);
  for (const DType dtype : kAll) {
    const std::uint64_t mask = ~std::uint64_t{0} >> (64 - 8 * size_of(dtype));
    std::vector<double> a, b;
    for (int i = 0; i < 1000; ++i) {
      a.push_back(to_double(dtype, random() & mask));
      b.push_back(to_double(dtype, random() & mask));
    }
    std::vector<double> sum = a, scaled_by_3(a.size()), tripled = a;
    add_values(dtype, sum.data(), b.data(), a.size());
    scale_values(dtype, scaled_by_3.data(), a.data(), scale_factor(dtype, 3), a.size());
    multiply_values(dtype, tripled.data(), 3, a.size());
    std::vector<std::byte> stored(a.size() * size_of(dtype));
    store_values(dtype, stored.data(), a.data(), 3, a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::uint64_t x = round_from_double(dtype, a[i]);
      const std::uint64_t y = round_from_double(dtype, b[i]);
      ASSERT_TRUE(same_bits(dtype, round_from_double(dtype, sum[i]), add(dtype, x, y)));
      ASSERT_TRUE(same_bits(dtype, round_from_double(dtype, scaled_by_3[i]), scale(dtype, x, 3)));
      ASSERT_TRUE(same_bits(dtype, round_from_double(dtype, tripled[i]),
                            round_from_double(dtype, 3 * a[i])));
      std::uint64_t bits = 0;
      std::memcpy(&bits, stored.data() + i * size_of(dtype), size_of(dtype));
      ASSERT_EQ(bits, round_from_double(dtype, 3 * a[i]));
    }
  }
}

TEST(Arithmetic, AnyNanEqualsAnyNanAndZerosDiffer) {
  EXPECT_TRUE(same_bits(DType::kFloat16, 0x7c01, 0xfe00));
  EXPECT_FALSE(same_bits(DType::kFloat16, 0x7c00, 0x7c01));
  EXPECT_FALSE(same_bits(DType::kBFloat16, 0x0000, 0x8000));
  EXPECT_TRUE(same_bits(DType::kBFloat16, 0x7f81, 0xffff));
  EXPECT_TRUE(same_bits(DType::kFloat32, 0x7f800001, 0xffc00000));
  EXPECT_FALSE(same_bits(DType::kFloat32, 0x7f800000, 0xff800000));
  EXPECT_TRUE(same_bits(DType::kFloat64, 0x7ff0000000000001, 0xfff8000000000000));
  EXPECT_FALSE(same_bits(DType::kFloat64, 0, 1));
}

}  // namespace
}  // namespace lockstep::reference
