#include "properties/process/case_timer.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep::properties {
namespace {

using std::chrono::milliseconds;

TEST(CaseTimer, ACaseIsOverItsLimitOnlyAfterIt) {
  CaseTimer timer;
  EXPECT_FALSE(timer.running().is_over_limit());
  timer.begin(milliseconds(20));
  EXPECT_EQ(timer.running().limit, milliseconds(20));
  std::this_thread::sleep_for(milliseconds(25));
  EXPECT_TRUE(timer.running().is_over_limit());
  EXPECT_GE(timer.running().taken, milliseconds(20));
  timer.end();
  EXPECT_FALSE(timer.running().is_over_limit());
}

TEST(CaseTimer, ALimitAboveTheLongestIsCutToTheLongest) {
  CaseTimer timer;
  timer.begin(CaseTimer::kLongest * 5);
  EXPECT_EQ(timer.running().limit, CaseTimer::kLongest);
  EXPECT_FALSE(timer.running().is_over_limit());
}

TEST(CaseTimer, ACaseThatBeginsAgainHasItsWholeLimit) {
  CaseTimer timer;
  timer.begin(milliseconds(100));
  std::this_thread::sleep_for(milliseconds(200));
  const milliseconds before = timer.running().taken;
  timer.begin_again();
  EXPECT_LT(timer.running().taken, before);
  EXPECT_EQ(timer.running().limit, milliseconds(100));
}

// The child begins and ends short cases while the parent asks. Two limits alternate, so that the
// test would also notice a start and a limit of two different cases.
TEST(CaseTimer, NoCaseSeemsToBeOverItsLimitBetweenTwoCases) {
  CaseTimer timer;
  std::atomic<bool> stopping{false};
  std::thread child([&] {
    for (int i = 0; !stopping; ++i) {
      timer.begin(milliseconds(i % 2 == 0 ? 60000 : 30000));
      timer.end();
    }
  });
  int over = 0;
  for (int seen = 0; seen < 100000;) {
    const CaseTimer::Running running = timer.running();
    if (running.limit.count() > 0) ++seen;
    if (running.is_over_limit()) ++over;
  }
  stopping = true;
  child.join();
  EXPECT_EQ(over, 0);
}

}  // namespace
}  // namespace lockstep::properties
