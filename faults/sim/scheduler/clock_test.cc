#include "faults/sim/scheduler/clock.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::simulation {
namespace {

std::vector<std::uint32_t> expired_at_next(Clock& clock) {
  std::vector<std::uint32_t> out;
  clock.advance([&](std::uint32_t timer) { out.push_back(timer); });
  return out;
}

TEST(Clock, GoesToTheEarliestTimerAndNoFurther) {
  Clock clock;
  clock.arm(7, Duration(300));
  clock.arm(2, Duration(100));
  clock.arm(300, Duration(200));
  EXPECT_EQ(expired_at_next(clock), std::vector<std::uint32_t>{2});
  EXPECT_EQ(clock.now(), Duration(100));
  EXPECT_EQ(expired_at_next(clock), std::vector<std::uint32_t>{300});
  EXPECT_EQ(clock.now(), Duration(200));
  EXPECT_EQ(expired_at_next(clock), std::vector<std::uint32_t>{7});
  EXPECT_TRUE(clock.idle());
}

TEST(Clock, TimersOfOneTimeExpireTogetherInAscendingOrder) {
  Clock clock;
  for (const std::uint32_t timer : {9U, 1U, 200U}) clock.arm(timer, Duration(5));
  EXPECT_EQ(expired_at_next(clock), (std::vector<std::uint32_t>{1, 9, 200}));
}

TEST(Clock, ACancelledTimerNeverExpires) {
  Clock clock;
  clock.arm(1, Duration(5));
  clock.arm(2, Duration(6));
  clock.cancel(1);
  EXPECT_FALSE(clock.is_armed(1));
  EXPECT_EQ(expired_at_next(clock), std::vector<std::uint32_t>{2});
}

TEST(Clock, TimeNeverGoesBack) {
  Clock clock;
  clock.arm(1, Duration(50));
  static_cast<void>(expired_at_next(clock));
  clock.arm(2, Duration(10));
  EXPECT_EQ(expired_at_next(clock), std::vector<std::uint32_t>{2});
  EXPECT_EQ(clock.now(), Duration(50));
}

}  // namespace
}  // namespace lockstep::simulation
