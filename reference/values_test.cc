#include "reference/values.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "reference/test_arithmetic.h"
#include "reference/test_values.h"

namespace lockstep::reference {
namespace {

constexpr DType kAllOfValues[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                  DType::kBFloat16};

// With more than these, two ranks may get the same value.
constexpr std::uint32_t kFewRanks = 8;

Program program_of(Values values, std::uint32_t world = kFewRanks) {
  Program program;
  program.key = 77;
  program.world = world;
  program.values = values;
  return program;
}

Parameter parameter_of(DType dtype) {
  Parameter parameter;
  parameter.key = 5;
  parameter.dtype = dtype;
  return parameter;
}

double value(const Program& program, const Parameter& parameter, std::uint32_t rank,
             std::uint64_t element) {
  return to_double(parameter.dtype, value_of(program, parameter, rank, 1, 2, element));
}

TEST(Values, EightRanksNeverHaveTheSameElement) {
  for (const Values values : {Values::kExact, Values::kGeneral, Values::kLargest}) {
    for (const DType dtype : kAllOfValues) {
      const Program program = program_of(values);
      for (std::uint64_t element = 0; element < 5000; ++element) {
        std::set<double> seen;
        for (std::uint32_t rank = 0; rank < kFewRanks; ++rank) {
          seen.insert(value(program, parameter_of(dtype), rank, element));
        }
        ASSERT_EQ(seen.size(), kFewRanks) << "element " << element;
      }
    }
  }
}

TEST(Values, ExactOnesAreSmallMultiplesOfTheWorldAndAllOccur) {
  for (const DType dtype : kAllOfValues) {
    for (std::uint32_t world = 1; world <= kFewRanks; ++world) {
      const Program program = program_of(Values::kExact, world);
      std::set<double> seen;
      for (std::uint64_t element = 0; element < 2000; ++element) {
        seen.insert(value(program, parameter_of(dtype), world - 1, element) / world);
      }
      std::set<double> expected;
      for (int magnitude = 1; magnitude <= 8; ++magnitude) {
        expected.insert(magnitude);
        expected.insert(-magnitude);
      }
      EXPECT_EQ(seen, expected);
    }
  }
}

// Sums of up to 15 times the largest magnitude lose nothing when they are scaled by the world they
// were made for. 1/7 as a float is the exception: there the product is one step off for some.
TEST(Values, ExactOnesScaleWithoutRoundingButForFloatsOfSevenRanks) {
  for (const DType dtype : kAllOfValues) {
    for (std::uint32_t world = 1; world <= kFewRanks; ++world) {
      int rounded = 0;
      for (int sum = 0; sum <= 120; ++sum) {
        const double before = static_cast<double>(sum) * world;
        if (nearest(dtype, before) != before) continue;  // bf16 has 8 bits
        rounded += to_double(dtype, scale(dtype, round_from_double(dtype, before), world)) != sum;
      }
      EXPECT_EQ(rounded > 0, dtype == DType::kFloat32 && world == 7);
    }
  }
}

TEST(Values, GeneralOnesUseTheWholeMantissaWithinTheirRange) {
  for (const DType dtype : kAllOfValues) {
    const Program program = program_of(Values::kGeneral);
    std::uint64_t ones = 0;
    std::uint64_t zeros = 0;
    int negative = 0;
    for (std::uint64_t element = 0; element < 4000; ++element) {
      const std::uint64_t bits = value_of(program, parameter_of(dtype), 3, 1, 2, element);
      const double x = to_double(dtype, bits);
      ASSERT_GE(std::fabs(x), 0x1p-4);
      ASSERT_LT(std::fabs(x), 0x1p4);
      ones |= bits;
      zeros |= ~bits;
      negative += x < 0;
    }
    const std::uint64_t mantissa = (std::uint64_t{1} << format_of(dtype).mantissa_bits) - 1;
    EXPECT_EQ(ones & mantissa, mantissa);
    EXPECT_EQ(zeros & mantissa, mantissa);
    EXPECT_GT(negative, 1700);
    EXPECT_LT(negative, 2300);
  }
}

TEST(Values, SpecialOnesHaveEveryKindInEveryType) {
  for (const DType dtype : kAllOfValues) {
    const Format format = format_of(dtype);
    const Program program = program_of(Values::kSpecial);
    int nan = 0, infinite = 0, plus_zero = 0, minus_zero = 0, subnormal = 0, largest = 0, plain = 0;
    for (std::uint64_t element = 0; element < 8000; ++element) {
      const double x = value(program, parameter_of(dtype), 1, element);
      if (std::isnan(x)) {
        ++nan;
      } else if (std::isinf(x)) {
        ++infinite;
      } else if (x == 0) {
        ++(std::signbit(x) ? minus_zero : plus_zero);
      } else if (std::fabs(x) < std::ldexp(1.0, format.min_exponent)) {
        ++subnormal;
      } else if (std::fabs(x) >= std::ldexp(1.0, format.max_exponent)) {
        ++largest;
      } else {
        ++plain;
      }
    }
    for (const int count : {nan, infinite, plus_zero, minus_zero, subnormal, largest}) {
      EXPECT_GE(count, 80);  // one in a hundred
    }
    EXPECT_GT(plain, 5000);
  }
}

TEST(Values, LargestOnesAreFiniteAndWithinAFactorOfFourOfTheLargest) {
  for (const DType dtype : kAllOfValues) {
    const Format format = format_of(dtype);
    for (const std::uint32_t headroom : {0U, 3U, kMaxHeadroom}) {
      Program program = program_of(Values::kLargest);
      program.headroom = headroom;
      const double top = std::ldexp(1.0, format.max_exponent - static_cast<int>(headroom));
      int negative = 0;
      int upper = 0;
      for (std::uint64_t element = 0; element < 4000; ++element) {
        const double x = value(program, parameter_of(dtype), 1, element);
        ASSERT_TRUE(std::isfinite(x));
        ASSERT_GE(std::fabs(x), top / 2);
        ASSERT_LT(std::fabs(x) / 2, top);
        negative += x < 0;
        upper += std::fabs(x) >= top;
      }
      EXPECT_NEAR(negative, 2000, 300);
      EXPECT_NEAR(upper, 2000, 300);
    }
  }
}

TEST(Values, EveryArgumentMatters) {
  Program program = program_of(Values::kGeneral);
  Parameter parameter = parameter_of(DType::kFloat64);
  const std::uint64_t base = value_of(program, parameter, 0, 1, 2, 3);
  EXPECT_EQ(value_of(program, parameter, 0, 1, 2, 3), base);
  EXPECT_NE(value_of(program, parameter, 1, 1, 2, 3), base);
  EXPECT_NE(value_of(program, parameter, 0, 2, 2, 3), base);
  EXPECT_NE(value_of(program, parameter, 0, 2, 1, 3), base);
  EXPECT_NE(value_of(program, parameter, 0, 1, 2, 4), base);
  parameter.key = 6;
  EXPECT_NE(value_of(program, parameter, 0, 1, 2, 3), base);
  parameter.key = 5;
  program.key = 78;
  EXPECT_NE(value_of(program, parameter, 0, 1, 2, 3), base);
}

TEST(Values, EveryElementIsAValueOfItsDtype) {
  for (const Values values :
       {Values::kExact, Values::kGeneral, Values::kSpecial, Values::kLargest}) {
    const Program program = program_of(values);
    for (const DType dtype : kAllOfValues) {
      const Parameter parameter = parameter_of(dtype);
      const UseValues constant(program, parameter, 2, 1, 2);
      for (std::uint64_t e = 0; e < 500; ++e) {
        const double value = constant.at(e);
        const double rounded = nearest(dtype, value);
        ASSERT_TRUE(rounded == value || (std::isnan(rounded) && std::isnan(value))) << e;
      }
    }
  }
}

// One bad number stands at one element, or at all elements as a factor, and nowhere else: not on
// another rank, in another step, or of another parameter.
TEST(Values, ABadNumberIsAlone) {
  Program program = program_of(Values::kGeneral);
  program.parameters = {parameter_of(DType::kFloat32), parameter_of(DType::kFloat32)};
  program.steps.resize(2);
  program.steps[1].key = 1;
  const Program without = program;
  program.bad_number = {BadNumber::Kind::kMinusInfinity, 3, 1, 0, 6};
  const auto check = [&](std::uint32_t parameter, std::uint32_t rank, std::uint32_t step_key,
                         auto is_bad) {
    const UseValues constant(program, program.parameters[parameter], rank, step_key, 2);
    const UseValues usual(without, without.parameters[parameter], rank, step_key, 2);
    std::array<double, 10> all{};
    constant.read(all.data(), all.size());
    for (std::uint64_t e = 0; e < all.size(); ++e) {
      EXPECT_EQ(constant.at(e), is_bad(e) ? -HUGE_VAL : usual.at(e)) << e;
      EXPECT_EQ(all[e], constant.at(e)) << e;
    }
  };
  const auto nowhere = [](std::uint64_t) { return false; };
  check(0, 3, 1, [](std::uint64_t e) { return e == 5; });
  check(1, 3, 1, nowhere);
  check(0, 2, 1, nowhere);
  check(0, 3, 0, nowhere);
  program.bad_number.element = 0;
  check(0, 3, 1, [](std::uint64_t) { return true; });
  program.bad_number.element = 11;
  check(0, 3, 1, nowhere);
  program.bad_number = {BadNumber::Kind::kNaN, 0, 1, 1, 1};
  EXPECT_TRUE(std::isnan(UseValues(program, program.parameters[1], 0, 1, 2).at(0)));
}

}  // namespace
}  // namespace lockstep::reference
