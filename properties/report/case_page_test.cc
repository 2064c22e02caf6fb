#include "properties/report/case_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two ranks; rank 1 exits in step 1, so it has no events there.
FailureReport example_failure() {
  FailureReport report;
  report.lane = "sim";
  report.subject = "reducer";
  report.program = "lockstep";
  report.case_file = "some case.json";
  report.value.program.world = 2;
  report.value.faults.faults.push_back({faults::Kind::kRankExit, 1, 1});
  report.outcome.verdict = {Failing::kWrongBits, "bits", "rank 0, step 1, parameter p0: <bits>"};
  report.outcome.events = {{0, 0, "step 0", 5000, 7000, kNone, 0, "p1, p0"},
                           {0, 0, "all_reduce bucket 0", 5000, 6000, 0, 0},
                           {1, 0, "step 0", 5000, 7000, kNone, 0},
                           {0, 1, "step 1", 8000, 9000, kNone, 0}};
  return report;
}

TEST(CasePage, FirstDifferenceIsMarkedAndFaultsAreShaded) {
  const Result<std::string> page = case_page(example_failure());
  if (!page) GTEST_SKIP() << page.error().failure().detail;
  EXPECT_THAT(*page, HasSubstr("<td class=\" bad\">step 1; the first difference is here</td>"));
  EXPECT_THAT(*page, HasSubstr("<td class=\" shaded\">fault: rank_exit</td>"));
  const std::size_t hooks = page->find("<td class=\"\">p1, p0</td>");
  EXPECT_LT(page->find("<td class=\"\">step 0</td>"), hooks);
  EXPECT_LT(hooks, page->find("<td class=\"\">all_reduce bucket 0</td>"));
  EXPECT_THAT(*page, HasSubstr("lockstep replay 'some case.json' --lane sim"));
  EXPECT_THAT(*page, HasSubstr("&lt;bits&gt;"));
  EXPECT_THAT(*page, HasSubstr(R"("x":[0.0,2.0],"y":"rank 0 steps")"));  // from the first event on
}

TEST(CasePage, AWrongRankInTheMessageMarksNothing) {
  FailureReport report = example_failure();
  report.outcome.verdict.message = "no place is named";
  const Result<std::string> page = case_page(report);
  if (!page) GTEST_SKIP() << page.error().failure().detail;
  EXPECT_THAT(*page, Not(HasSubstr("the first difference is here")));
}

TEST(CasePage, ARunWithoutTimesHasNoTimeline) {
  FailureReport report = example_failure();
  for (TraceEvent& event : report.outcome.events) event.end_us = event.begin_us;
  const Result<std::string> page = case_page(report);
  ASSERT_TRUE(page.has_value());
  EXPECT_THAT(*page, Not(HasSubstr("<canvas")));
}

TEST(CasePage, APassingCaseSaysSo) {
  FailureReport report = example_failure();
  report.outcome.verdict = {};
  report.outcome.events.clear();
  const Result<std::string> page = case_page(report);
  ASSERT_TRUE(page.has_value());
  EXPECT_THAT(*page, HasSubstr("A case that passes"));
  EXPECT_THAT(*page, Not(HasSubstr("What is wrong")));
}

}  // namespace
}  // namespace lockstep::properties
