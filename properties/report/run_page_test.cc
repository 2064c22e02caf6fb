#include "properties/report/run_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::properties {
namespace {

using testing::HasSubstr;
using testing::Not;

RunReport example_run() {
  RunReport report;
  report.lane = "sim";
  report.subject = "reducer";
  report.seed = 7;
  report.seconds = 10;
  report.counts.cases = 3000;
  report.counts.ok = 3000;
  report.coverage.cases = 200;
  report.coverage.features = {{"manual sync", 30}, {"rare", 1}};
  report.coverage.by_fault["manual sync"]["rank_exit"] = 4;
  report.coverage.faults_fired = {{"rank_exit", 9}};
  report.coverage.progress = {{1, 300, 1}, {4, 1200, 2}, {10, 3000, 2}};
  return report;
}

TEST(RunPage, RareFeaturesComeFirstAndUnseenPairsAreShaded) {
  const Result<std::string> page = run_page(example_run());
  if (!page) GTEST_SKIP() << page.error().failure().detail;
  const std::size_t rare = page->find("rare</td>");
  ASSERT_NE(rare, std::string::npos);
  EXPECT_LT(rare, page->find("manual sync</td>"));
  EXPECT_THAT(*page, HasSubstr("<td class=\"number shaded\">0</td>"));
  EXPECT_THAT(*page, HasSubstr("<td class=\"number\">4</td>"));
  EXPECT_THAT(*page, HasSubstr("A fuzz run without a failure"));
}

TEST(RunPage, FailuresStandInIt) {
  RunReport report = example_run();
  report.failures.emplace_back();
  report.failures[0].outcome.verdict = {Failing::kWrongBits, "bits", "rank 0, step 2: <wrong>"};
  const Result<std::string> page = run_page(report);
  if (!page) GTEST_SKIP() << page.error().failure().detail;
  EXPECT_THAT(*page, HasSubstr("A fuzz run with 1 failure<"));
  EXPECT_THAT(*page, HasSubstr("FAIL: wrong bits"));
  EXPECT_THAT(*page, HasSubstr("&lt;wrong&gt;"));
}

// What proves less than it should is green nowhere.
TEST(RunPage, ARunThatWasInterruptedOrIsInconclusiveIsNotGreen) {
  EXPECT_TRUE(example_run().is_green());
  EXPECT_THAT(junit_report(example_run()), HasSubstr("errors=\"0\""));
  RunReport cut = example_run();
  cut.was_interrupted = true;
  RunReport unproven = example_run();
  unproven.inconclusive = {"4 of the cases passed, and fewer than 50 say <little>"};
  for (const RunReport& report : {cut, unproven}) {
    EXPECT_FALSE(report.is_green());
    EXPECT_THAT(junit_report(report), HasSubstr("errors=\"1\""));
    EXPECT_THAT(junit_report(report), HasSubstr("<error message="));
    const Result<std::string> page = run_page(report);
    if (!page) GTEST_SKIP() << page.error().failure().detail;
    EXPECT_THAT(*page, Not(HasSubstr("A fuzz run without a failure")));
  }
  EXPECT_THAT(junit_report(cut), HasSubstr("interrupted"));
  EXPECT_THAT(summary(cut, ""), HasSubstr("interrupted before its end"));
  EXPECT_THAT(junit_report(unproven), HasSubstr("fewer than 50 say &lt;little&gt;"));
}

// A failure is named by what its oracle has seen.
TEST(FailureBlock, HasATitleOfItsOracle) {
  const auto title = [](Failing failing, const char* oracle, bool might_succeed = false) {
    Verdict verdict{failing, oracle, ""};
    verdict.might_succeed = might_succeed;
    return title_of(verdict);
  };
  EXPECT_EQ(title(Failing::kWrongBits, "bits"), "wrong bits");
  EXPECT_EQ(title(Failing::kWrongBits, "trace"), "wrong collectives");
  EXPECT_EQ(title(Failing::kWrongBits, "definedness"), "a gradient is missing, or one too many");
  EXPECT_EQ(title(Failing::kWrongError, "error"), "wrong or missing error");
  EXPECT_EQ(title(Failing::kWrongError, "error", true), "an error without a reason");
  EXPECT_EQ(title(Failing::kWrongBits, "same with views"), "other results with views");
  EXPECT_EQ(title(Failing::kDeadlock, "progress"), "deadlock");
  FailureReport report;
  report.outcome.verdict = {Failing::kWrongBits, "trace", ""};
  EXPECT_THAT(failure_block(report),
              HasSubstr("FAIL: wrong collectives (oracle: trace, exit code 65)"));
}

// What a file keeps of a case is what its replay takes.
TEST(FailureBlock, HasACommandAndARecordThatSayTheSame) {
  FailureReport report;
  report.program = "lockstep";
  report.case_file = "c.json";
  report.lane = "sim";
  report.subject = "./libmine.so";
  report.contract = "lockstep";
  report.values = "exact";
  EXPECT_EQ(replay_line(report),
            "lockstep replay c.json --lane sim --subject ./libmine.so --contract lockstep --values "
            "exact");
  EXPECT_EQ(found_with(report), (FoundWith{"./libmine.so", "sim", "", "lockstep", "exact", ""}));
}

TEST(StoppingRule, SaysWhatIsExcludedAndSinceWhenNothingWasNew) {
  // 3000 cases: 1 - 0.05^(1/3000) = 1/1001.9.
  EXPECT_THAT(stopping_line(example_run()), HasSubstr("fails one of 1001 such cases or more"));
  EXPECT_THAT(stopping_line(example_run()), HasSubstr("no new feature for 6 s and 1800 cases"));
  EXPECT_THAT(summary(example_run(), ""), HasSubstr(stopping_line(example_run())));
}

TEST(Summary, SaysWhichPoliciesTheCountedCasesHad) {
  RunReport report = example_run();
  report.coverage.features["policy pos"] = 50;
  report.coverage.features["policy random_walk"] = 150;
  EXPECT_THAT(whole_summary(report),
              HasSubstr("schedules by policy, in 200 cases: random_walk 75 %, pos 25 %\n"));
  report.lane = "gloo";  // real threads follow no policy
  EXPECT_THAT(whole_summary(report), Not(HasSubstr("by policy")));
}

TEST(Summary, HasFourLinesAndTheWholeOneHasTheRest) {
  RunReport report = example_run();
  report.counts.unspecified["a reason"] = 3;
  const std::string text = summary(report, "");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_THAT(text, Not(HasSubstr("a reason")));
  EXPECT_THAT(whole_summary(report), HasSubstr("a reason 3"));
  EXPECT_THAT(text, HasSubstr("more of it: --verbose"));
  EXPECT_THAT(summary(report, "run.html"), HasSubstr("more of it: run.html\n"));
}

TEST(Summary, SaysWhyARunProvesLess) {
  RunReport report = example_run();
  report.inconclusive = {"no answer"};
  report.earlier = {2, 1};
  const std::string text = summary(report, "");
  EXPECT_THAT(text, HasSubstr("inconclusive: no answer\n"));
  EXPECT_THAT(text, HasSubstr("run first: 2 cases that failed in earlier runs, 1 failing\n"));
}

TEST(FailureBlock, HasACommandThatAShellReadsAsItIsMeant) {
  FailureReport report;
  report.program = "build/release/lockstep";
  report.case_file = "my cases/it's.json";
  report.lane = "sim";
  report.subject = "./libmine.so";
  EXPECT_EQ(replay_line(report),
            "build/release/lockstep replay 'my cases/it'\\''s.json' --lane sim --subject "
            "./libmine.so");
}

TEST(FailureBlock, SaysWhereTheCaseMayNotBeSmall) {
  FailureReport report;
  report.shrink_executions = 9;
  EXPECT_THAT(failure_block(report), HasSubstr("made small in 9 executions; "));
  report.shrink_was_cut_off = true;
  EXPECT_THAT(failure_block(report), HasSubstr("made smaller in 9 executions, then cut off"));
}

TEST(StoppingRule, SaysNothingAfterAFailureOrWithoutACaseThatPassed) {
  RunReport failed = example_run();
  failed.failures.emplace_back();
  EXPECT_EQ(stopping_line(failed), "");
  RunReport none = example_run();
  none.counts.ok = 0;
  EXPECT_EQ(stopping_line(none), "");
}

}  // namespace
}  // namespace lockstep::properties
