#include "properties/compare/benchmark_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/report/page.h"

namespace lockstep::properties {
namespace {

using ::testing::HasSubstr;

constexpr const char* kReducer = R"({"benchmark": "reducer", "commit": "0123456789abcdef",
 "machine": {"processor": "P", "processors": 2}, "rows": [
 {"workload": "tiny", "ranks": 2, "mode": "flat", "ms": 2, "base": "flat", "wrong": 0,
  "each_ms": [2, 2, 2, 2, 2, 2]},
 {"workload": "tiny", "ranks": 2, "mode": "view", "ms": 3, "base": "flat", "wrong": 4,
  "each_ms": [3, 3.1, 2.9, 3, 3, 3]}], "overlap": []})";

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string problem_of(const std::string& text) {
  const auto results = benchmark_from_json(text);
  return results ? std::string("none") : results.error().failure().detail;
}

NamedRun run(const std::string& file, const std::string& text) {
  const auto results = benchmark_from_json(text);
  EXPECT_TRUE(results.has_value());
  return {file, results.value_or(BenchmarkResults())};
}

TEST(BenchmarkPage, RatiosAreThoseOfTheRepetitionsToTheirBase) {
  const auto results = benchmark_from_json(kReducer);
  ASSERT_TRUE(results.has_value()) << results.error().to_string();
  ASSERT_EQ(results->figures.size(), 2);
  EXPECT_FALSE(results->figures[0].ratio.has_value());
  const Figure& view = results->figures[1];
  EXPECT_EQ(view.group, "tiny, 2 ranks, beside flat");
  ASSERT_TRUE(view.ratio.has_value());
  EXPECT_DOUBLE_EQ(view.ratio->middle, 1.5);
  EXPECT_DOUBLE_EQ(view.ratio->low, 1.45);
  EXPECT_DOUBLE_EQ(view.ratio->high, 1.55);
  EXPECT_EQ(view.wrong, 4);
}

TEST(BenchmarkPage, FilesOfEveryBenchmarkAreRead) {
  const auto torch = benchmark_from_json(R"({"benchmark": "torch", "commit": "c",
    "machine": {"processor": "P", "processors": 2}, "rows": [{"workload": "tiny", "ranks": 2,
    "mode": "copying", "ms": 2, "each_ms": [2, 2], "torch_each_ms": [1, 4], "wrong": 0}]})");
  ASSERT_TRUE(torch.has_value()) << torch.error().to_string();
  EXPECT_DOUBLE_EQ(torch->figures.front().ratio->middle, 1.25);
  const auto hooks = benchmark_from_json(R"({"context": {"num_cpus": 2, "processor": "P",
    "commit": "c"}, "benchmarks": [
    {"name": "Hook/elements:1/manual_time", "run_type": "iteration", "real_time": 70,
     "time_unit": "us", "hook_ns": 10, "copy_ns": 2},
    {"name": "Hook/elements:1/manual_time", "run_type": "iteration", "real_time": 70,
     "time_unit": "us", "hook_ns": 12, "copy_ns": 2},
    {"name": "Hook/elements:1/manual_time_median", "run_type": "aggregate", "real_time": 70,
     "time_unit": "us"}]})");
  ASSERT_TRUE(hooks.has_value()) << hooks.error().to_string();
  ASSERT_EQ(hooks->figures.size(), 1);
  EXPECT_EQ(hooks->commit, "c");
  const Figure& hook = hooks->figures.front();
  EXPECT_EQ(hook.group, "Hook");
  EXPECT_EQ(hook.name, "elements:1");
  EXPECT_DOUBLE_EQ(hook.value, 11);
  EXPECT_DOUBLE_EQ(hook.ratio->middle, 5.5);
}

TEST(BenchmarkPage, WhatNoBenchmarkWroteIsRefused) {
  EXPECT_THAT(problem_of(" \n"), HasSubstr("it is empty"));
  EXPECT_THAT(problem_of("[]"), HasSubstr("no results of ci/bench"));
  EXPECT_THAT(problem_of(std::string(kReducer).substr(0, 300)), HasSubstr("no whole JSON file"));
  EXPECT_THAT(problem_of(changed(kReducer, "each_ms", "other")), HasSubstr("older ci/bench"));
}

TEST(BenchmarkPage, HistoriesOfTwoMachinesOrBenchmarksAreRefused) {
  const auto problem = [](const std::string& text) {
    const auto page = history_page({run("a.json", kReducer), run("b.json", text)});
    return page ? std::string("none") : page.error().failure().detail;
  };
  EXPECT_THAT(problem(changed(kReducer, "\"P\"", "\"Q\"")),
              HasSubstr("a.json is of a machine with 2 x P, and b.json of one with 2 x Q: times of "
                        "two machines are not compared"));
  EXPECT_THAT(problem(changed(kReducer, "\"processors\": 2", "\"processors\": 4")),
              HasSubstr("two machines"));
  EXPECT_THAT(problem(R"({"context": {"num_cpus": 2, "processor": "P"}, "benchmarks": [
    {"name": "Hook", "real_time": 10}]})"),
              HasSubstr("give those of one benchmark"));
  EXPECT_FALSE(history_page({run("a.json", kReducer)}).has_value());
}

TEST(BenchmarkPage, AHistoryMarksWhatHasBecomeSlower) {
  if (chart_library().empty()) GTEST_SKIP() << "this build has no Chart.js";
  std::string slower = changed(kReducer, "[3, 3.1, 2.9, 3, 3, 3]", "[6, 6.1, 5.9, 6, 6, 6]");
  slower = changed(slower, "0123456789abcdef", "fedcba9876543210");
  const auto page = history_page({run("a.json", kReducer), run("b.json", slower)});
  ASSERT_TRUE(page.has_value()) << page.error().to_string();
  EXPECT_TRUE(page->find("bad\">3.000 [2.950, 3.050]</td>") != std::string::npos);
  ASSERT_TRUE(page->find(">fedcba9876</th>") != std::string::npos);
  EXPECT_LT(page->find(">0123456789</th>"), page->find(">fedcba9876</th>"));
  const auto same = history_page({run("a.json", kReducer), run("b.json", kReducer)});
  ASSERT_TRUE(same.has_value());
  EXPECT_TRUE(same->find("bad\">") == std::string::npos);
}

}  // namespace
}  // namespace lockstep::properties
