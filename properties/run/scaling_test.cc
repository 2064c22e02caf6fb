// Claim: what a rank sends, the calls it makes of the store and the virtual time of each phase grow
// no faster than the number of ranks, and the time until every rank knows that one has exited does
// not grow with it at all. A failure means that a part of the reducer is quadratic in the number of
// ranks.
#include "properties/lane/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::scaling {
namespace {

constexpr double kLinear = 1.1;  // a chain of W - 1 messages grows a little faster than W

Point of(const scaling::Run& run, Phase phase) {
  return run.points.at(static_cast<std::size_t>(phase));
}

TEST(Scaling, NothingGrowsFasterThanTheNumberOfRanks) {
  const scaling::Run small = measure(16);
  const scaling::Run large = measure(64);
  ASSERT_EQ(small.problem, "");
  ASSERT_EQ(large.problem, "");
  ASSERT_EQ(small.points.size(), static_cast<std::size_t>(kPhases));
  ASSERT_EQ(large.points.size(), small.points.size());
  for (std::size_t i = 0; i < small.points.size(); ++i) {
    const Point& from = small.points[i];
    const Point& to = large.points[i];
    SCOPED_TRACE(name_of(from.phase));
    EXPECT_LE(growth(from.virtual_us, to.virtual_us, 16, 64), kLinear);
    EXPECT_LE(growth(from.messages, to.messages, 16, 64), kLinear);
    EXPECT_LE(growth(from.bytes, to.bytes, 16, 64), kLinear);
    EXPECT_LE(growth(from.store, to.store, 16, 64), kLinear);
  }
}

// The figures are those of the algorithms: four buckets of 2,048 floats go around a ring twice,
// and before each of them a rank sends its header to its neighbour.
TEST(Scaling, APassSendsWhatFourRingsSend) {
  const scaling::Run run = measure(8);
  ASSERT_EQ(run.problem, "");
  const Point pass = of(run, Phase::kPass);
  EXPECT_EQ(pass.virtual_us, 4 * 2 * 7 * kHopUs + 4 * kHopUs);
  EXPECT_GE(pass.bytes, 4 * 2 * 7 * 2048 * 4 / 8);
  EXPECT_EQ(pass.store, 0);
}

TEST(Scaling, TheExitOfARankIsKnownAtOnce) {
  const scaling::Run small = measure(32);
  const scaling::Run large = measure(128);
  ASSERT_EQ(small.problem, "");
  ASSERT_EQ(large.problem, "");
  EXPECT_EQ(of(small, Phase::kExitOfARank).virtual_us, of(large, Phase::kExitOfARank).virtual_us);
}

TEST(Scaling, ALargestJobEnds) {
  const scaling::Run run = measure(kMaxRanks);
  EXPECT_EQ(run.problem, "");
}

TEST(Growth, IsTheExponentOfTheNumberOfRanks) {
  EXPECT_NEAR(growth(10, 40, 8, 16), 2, 1e-9);
  EXPECT_NEAR(growth(10, 20, 8, 16), 1, 1e-9);
  EXPECT_EQ(growth(10, 10, 8, 16), 0);
  EXPECT_EQ(growth(10, 5, 8, 16), 0);
  EXPECT_EQ(growth(0, 5, 8, 16), 0);
}

}  // namespace
}  // namespace lockstep::scaling
