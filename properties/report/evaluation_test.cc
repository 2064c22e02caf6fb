#include "properties/report/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

using testing::HasSubstr;

BugTrial trial(const std::string& bug, std::uint64_t seed, std::uint64_t executions, bool found) {
  return {bug, seed, found, executions, 0.5, 3, found ? 1u : 0u, found ? "bits" : "", executions};
}

// R01 is found in all of four trials, R02 in one.
Evaluation example_evaluation(std::uint64_t slower = 1) {
  Evaluation out;
  out.settings = {1000, "sim", "abc", "pos"};
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    out.trials.push_back(trial("R01", seed, 10 * seed * slower, true));
    out.trials.push_back(trial("R02", seed, seed == 2 ? 500 : 1000, seed == 2));
  }
  return out;
}

std::string log_of(const Evaluation& evaluation) {
  std::string text = to_log_line(evaluation.settings);
  for (const BugTrial& each : evaluation.trials) text += to_log_line(each);
  return text;
}

TEST(Evaluation, FiguresAreThoseOfTheTrials) {
  const std::vector<BugFigures> bugs = figures_of(example_evaluation());
  ASSERT_EQ(bugs.size(), 2u);
  EXPECT_EQ(bugs[0].bug, "R01");
  EXPECT_EQ(bugs[0].found, 4u);
  EXPECT_EQ(bugs[0].median, 20);
  EXPECT_DOUBLE_EQ(bugs[0].restricted_mean, 25);
  EXPECT_DOUBLE_EQ(bugs[0].seconds, 0.5);
  EXPECT_EQ(bugs[1].found, 1u);
  EXPECT_EQ(bugs[1].median, std::nullopt);
  EXPECT_DOUBLE_EQ(bugs[1].restricted_mean, 875);
  EXPECT_EQ(bugs[1].reached, 4u);
  EXPECT_EQ(bugs[1].triggered, 1u);
  EXPECT_THAT(bugs[1].oracles, testing::ElementsAre("bits"));
}

TEST(Evaluation, ShrunkSizeIsTheMedianOfThoseThatAreKnown) {
  Evaluation evaluation = example_evaluation();
  EXPECT_EQ(figures_of(evaluation)[0].shrunk, std::nullopt);
  evaluation.trials[0].shrunk = 9;  // the trials of R01 have even numbers
  evaluation.trials[2].shrunk = 12;
  evaluation.trials[4].shrunk = 40;
  EXPECT_EQ(figures_of(evaluation)[0].shrunk, 12);
  EXPECT_EQ(figures_of(evaluation)[1].shrunk, std::nullopt);
  EXPECT_THAT(to_json(evaluation), HasSubstr("\"shrunk\": 12"));
}

TEST(Evaluation, LogIsReadAsItWasWritten) {
  Evaluation evaluation = example_evaluation();
  evaluation.trials[1].shrunk = 7;
  const std::string text = log_of(evaluation);
  std::size_t whole = 0;
  const Result<Evaluation> read = evaluation_from_log(text, whole);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(whole, text.size());
  EXPECT_EQ(log_of(*read), text);
}

TEST(Evaluation, TornLastLineIsDropped) {
  const std::string text = log_of(example_evaluation());
  const std::string torn = text + R"({"bug": "R03", "se)";
  std::size_t whole = 0;
  const Result<Evaluation> read = evaluation_from_log(torn, whole);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(whole, text.size());
  EXPECT_EQ(read->trials.size(), 8u);
}

TEST(Evaluation, OtherFilesAreRefusedWithTheLine) {
  std::size_t whole = 0;
  const std::string first = to_log_line(EvaluationSettings());
  for (const auto& [text, line] :
       std::vector<std::pair<std::string, std::string>>{{"hello\n", "line 1 "},
                                                        {"[]\n", "line 1 "},
                                                        {"{\"lockstep_eval\": 2}\n", "line 1 "},
                                                        {first + "{\"bug\": 3}\n", "line 2 "},
                                                        {first + "\n", "line 2 "}}) {
    const Result<Evaluation> read = evaluation_from_log(text, whole);
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_THAT(read.error().failure().detail, HasSubstr(line));
  }
}

TEST(Evaluation, TableNamesTheBugsThatWereMissed) {
  const std::string table = to_table(example_evaluation());
  EXPECT_THAT(table, HasSubstr("R01  4 of 4      20    25"));
  EXPECT_THAT(table, HasSubstr("R02  1 of 4       -   875"));
  EXPECT_THAT(table, HasSubstr("the bug was found in 5 (62.5 %)"));
  EXPECT_THAT(table, HasSubstr("not found in every trial: R02\n"));
}

TEST(Evaluation, PageHasCurvesAndMarksWhatWasMissed) {
  const Result<std::string> page = to_page(example_evaluation());
  if (!page) {
    EXPECT_THAT(page.error().failure().detail, HasSubstr("libjs-chart.js"));
    return;
  }
  EXPECT_THAT(*page, HasSubstr("<td class=\" bad\">1 of 4</td>"));
  EXPECT_THAT(*page, HasSubstr(R"({"x":20.0,"y":50.0})"));
}

TEST(Evaluation, ComparisonTellsFasterFromSlowerAndFromTheSame) {
  Evaluation many = example_evaluation();
  Evaluation slow = example_evaluation();
  many.trials.clear();
  slow.trials.clear();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    many.trials.push_back(trial("R01", seed, 10 + seed, true));
    slow.trials.push_back(trial("R01", seed, 100 + seed, true));
  }
  const auto text = [](const Evaluation& a, const Evaluation& b) {
    const Result<std::string> out = compare(a, b);
    EXPECT_TRUE(out.has_value());
    return out ? *out : "";
  };
  EXPECT_THAT(text(many, slow), HasSubstr("slower"));
  EXPECT_THAT(text(many, slow), HasSubstr("the second is slower"));
  EXPECT_THAT(text(slow, many), HasSubstr("the second is faster"));
  EXPECT_THAT(text(many, many), HasSubstr("no difference shown"));
}

TEST(Evaluation, WhatCannotBeComparedIsRefused) {
  Evaluation other = example_evaluation();
  other.settings.cases = 5;
  ASSERT_FALSE(compare(example_evaluation(), other).has_value());
  EXPECT_THAT(compare(example_evaluation(), other).error().failure().detail, HasSubstr("--cases"));
  Evaluation apart = example_evaluation();
  for (BugTrial& each : apart.trials) each.bug = "X" + each.bug;
  EXPECT_FALSE(compare(example_evaluation(), apart).has_value());
}

}  // namespace
}  // namespace lockstep::properties
