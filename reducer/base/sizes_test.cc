#include "reducer/base/sizes.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr std::int64_t k32 = std::int64_t{1} << 32;

TEST(Sizes, WhatDoesNotFitIsTooLargeAndStaysSo) {
  EXPECT_EQ(multiply_sizes(k32, k32), kTooLarge);
  EXPECT_EQ(multiply_sizes(multiply_sizes(k32, k32), 1), kTooLarge);
  EXPECT_EQ(multiply_sizes(1, kTooLarge), kTooLarge);
  EXPECT_EQ(add_sizes(kTooLarge, 1), kTooLarge);
  EXPECT_EQ(add_sizes(kTooLarge - 1, 1), kTooLarge);
  EXPECT_EQ(round_up_size(kTooLarge - 5, 16), kTooLarge);
  EXPECT_TRUE(is_too_large(~std::size_t{0}));
}

TEST(Sizes, WhatFitsIsExact) {
  EXPECT_EQ(multiply_sizes(k32, k32 / 4), k32 * (k32 / 4));
  EXPECT_EQ(multiply_sizes(kTooLarge, 0), 0);
  EXPECT_EQ(add_sizes(3, 4), 7);
  EXPECT_EQ(round_up_size(17, 16), 32);
  EXPECT_EQ(round_up_size(0, 16), 0);
  EXPECT_FALSE(is_too_large(1u << 30));
}

}  // namespace
}  // namespace lockstep
