#include "properties/cli/status_line.h"

#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

RunStatus of_a_run() {
  RunStatus status;
  status.lane = "sim";
  status.subject = "reducer";
  status.seed = 7;
  status.seconds = 20;
  status.cases = 18'400;
  status.ok = 11'000;
  status.faulted_ok = 7'400;
  status.features = 383;
  status.seconds_since_feature = 12.5;
  status.seconds_left = 100;
  return status;
}

TEST(StatusLine, TheLiveLineSaysWhatMattersMostFirst) {
  EXPECT_EQ(live_line(of_a_run(), 200, true),
            "sim reducer  no failure  18.4k cases, 920/s  1:40 min left  383 features, the last "
            "new one 12 s ago");
}

TEST(StatusLine, TheTimeLeftOfARunByCasesFollowsFromItsRate) {
  RunStatus status = of_a_run();
  status.seconds_left.reset();
  status.cases_left = 9'200;
  EXPECT_NE(live_line(status, 200, true).find("  10 s left"), std::string::npos);
}

TEST(StatusLine, FailuresAreRedUnlessColorsAreOff) {
  RunStatus status = of_a_run();
  status.failures = 2;
  status.last_failure = "wrong bits";
  EXPECT_EQ(live_line(status, 200, true)
                .find("sim reducer  \033[1;31m2 FAILED, last: wrong bits\033[0m  "),
            0u);
  EXPECT_EQ(live_line(status, 200, false).find('\033'), std::string::npos);
}

// A line that fills the last column would begin another one.
TEST(StatusLine, TheLiveLineIsNarrowerThanTheTerminal) {
  RunStatus status = of_a_run();
  status.failures = 1;
  status.last_failure = "deadlock";
  for (std::size_t width = 1; width < 120; ++width) {
    EXPECT_LT(live_line(status, width, false).size(), width);
    const std::string text = live_line(status, width, true);
    const std::size_t begin = text.find("\033[1;31m");
    const bool is_closed = begin == std::string::npos || text.find("\033[0m") != std::string::npos;
    EXPECT_TRUE(is_closed) << width;
  }
}

TEST(StatusLine, ANarrowTerminalHasNoHalfOfAPart) {
  EXPECT_EQ(live_line(of_a_run(), 80, true),
            "sim reducer  no failure  18.4k cases, 920/s  1:40 min left  383 features");
  EXPECT_EQ(live_line(of_a_run(), 50, true), "sim reducer  no failure  18.4k cases, 920/s");
  EXPECT_EQ(live_line(of_a_run(), 40, true), "sim reducer  no failure");
}

TEST(StatusLine, ThePlainLineHasTheSeed) {
  EXPECT_EQ(
      plain_line(of_a_run()),
      "sim reducer  18400 cases  920/s  ok 11000  with faults 7400  FAIL 0  features 383  seed 7");
}

}  // namespace
}  // namespace lockstep::properties
