#include "reducer/base/float_environment.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cstdint>
#include <cstring>

namespace lockstep {
namespace {

// The operands go through memory, so that the compiler adds at this point.
float sum_of(float a, float b) {
  volatile float left = a;
  volatile float right = b;
  volatile float sum = left + right;
  return sum;
}

TEST(DefaultFloats, RoundToNearestWhateverIsSetAndGiveBackWhatWas) {
  const float half_an_ulp = 0x1p-24f;
  ASSERT_EQ(sum_of(1.0f, half_an_ulp), 1.0f);
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const float before = sum_of(1.0f, half_an_ulp);
  float inside = 0;
  {
    const DefaultFloats floats;
    inside = sum_of(1.0f, half_an_ulp);
  }
  const float after = sum_of(1.0f, half_an_ulp);
  const int mode = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_GT(before, 1.0f);
  EXPECT_EQ(inside, 1.0f);
  EXPECT_EQ(after, before);
  EXPECT_EQ(mode, FE_UPWARD);
}

#if defined(__x86_64__)
TEST(DefaultFloats, KeepSubnormalsAndGiveBackWhatWas) {
  constexpr unsigned kFlushAndZero = 0x8040;
  const float subnormal = 0x1p-140f;
  const unsigned usual = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(usual | kFlushAndZero);
  const float before = sum_of(subnormal, 0);
  float inside = 0;
  {
    const DefaultFloats floats;
    inside = sum_of(subnormal, subnormal);
  }
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(usual);
  EXPECT_EQ(before, 0.0f);
  EXPECT_EQ(inside, 0x1p-139f);
  EXPECT_EQ(after & kFlushAndZero, kFlushAndZero);
}
#endif

}  // namespace
}  // namespace lockstep
