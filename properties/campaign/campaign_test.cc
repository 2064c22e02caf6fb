// Claim: a log can be cut off anywhere and loses what was not whole, and nothing else; every case
// counts once; failures are counted by how they end.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "properties/campaign/part_log.h"
#include "properties/campaign/plan.h"
#include "properties/campaign/summary.h"

namespace lockstep::properties {
namespace {

BlockRecord block(std::uint64_t begin, std::uint64_t end) {
  BlockRecord record;
  record.begin = begin;
  record.end = end;
  record.at = 1'000 + static_cast<std::int64_t>(end);
  record.run.counts.cases = record.run.counts.ok = end - begin;
  record.run.seconds = 1;
  record.run.coverage.features = {{"ranks 2", end - begin}};
  record.smallest = {{"ranks 2", {begin, {.ranks = 2, .steps = 1 + begin}}}};
  return record;
}

FailureRecord failure(std::uint64_t index) {
  return {index, 2'000, Failing::kWrongBits, "bits", "rank 0 \xff differs", {"node_throws"}};
}

std::string whole_log() {
  return to_line(CampaignPart{1, 3}) + to_line(StartRecord{1'000, "a", 7, 2, 30}) +
         to_line(block(0, 4)) + to_line(failure(13)) +
         to_line(ShrunkRecord{13, true, "part-0001/13.json"}) + to_line(block(4, 10)) +
         to_line(EndRecord{1'100, "the time was over"});
}

PartHistory read(const std::string& text, std::size_t* whole = nullptr) {
  std::size_t bytes = 0;
  Result<PartHistory> history = history_of(text, "log", bytes);
  EXPECT_TRUE(history) << history.error().failure().detail;
  if (whole != nullptr) *whole = bytes;
  return history ? *history : PartHistory();
}

std::uint64_t cases_in(const PartHistory& history) {
  std::uint64_t cases = 0;
  for (const BlockRecord& each : history.blocks) cases += each.end - each.begin;
  return cases;
}

CampaignPlan plan_of_three() {
  CampaignPlan plan;
  plan.parts = 3;
  plan.lane = "sim";
  plan.subject = "reducer";
  plan.faults = "swarm";
  return plan;
}

TEST(PartLog, SaysWhatWasWritten) {
  const PartHistory history = read(whole_log());
  EXPECT_EQ(history.part.number, 1u);
  EXPECT_EQ(history.part.count, 3u);
  ASSERT_EQ(history.starts.size(), 1u);
  EXPECT_EQ(history.starts[0].cases, 30u);
  EXPECT_EQ(cases_in(history), 10u);
  EXPECT_EQ(history.blocks[1].run.coverage.features.at("ranks 2"), 6u);
  EXPECT_EQ(history.blocks[1].smallest.at("ranks 2").size.steps, 5u);
  ASSERT_TRUE(history.failures.contains(13));
  EXPECT_EQ(history.failures.at(13).fired, std::vector<std::string>{"node_throws"});
  EXPECT_TRUE(history.shrunk.at(13).reproduced);
  ASSERT_TRUE(history.end.has_value());
  EXPECT_TRUE(history.dropped_lines.empty());
}

TEST(PartLog, LosesOnlyTheTornLineWhereverItIsCutOff) {
  const std::string log = whole_log();
  for (std::size_t cut = 0; cut <= log.size(); ++cut) {
    std::size_t whole = 0;
    const std::string text = log.substr(0, cut);
    const PartHistory history = read(text, &whole);
    const std::size_t end = text.rfind('\n');
    EXPECT_EQ(whole, end == std::string::npos ? 0 : end + 1);
    EXPECT_TRUE(history.dropped_lines.empty());
    const auto lines = std::count(text.begin(), text.end(), '\n');
    EXPECT_EQ(cases_in(history), lines >= 6 ? 10u : lines >= 3 ? 4u : 0u);
    EXPECT_EQ(history.failures.size(), lines >= 4 ? 1u : 0u);
  }
}

TEST(PartLog, ALineInTheMiddleThatIsNotWholeIsDroppedAndRunsAgain) {
  std::string log = to_line(CampaignPart{0, 1}) + to_line(block(0, 4));
  const std::string torn = to_line(block(4, 8));
  log += torn.substr(0, torn.size() / 2) + "\n" + to_line(block(8, 12));
  const PartHistory history = read(log);
  EXPECT_EQ(history.dropped_lines, std::vector<std::size_t>{3});
  EXPECT_EQ(cases_in(history), 8u);
  const OpenRange range = first_open_range(history.blocks);
  EXPECT_EQ(range.begin, 4u);
  EXPECT_EQ(range.end, std::optional<std::uint64_t>(8));
}

TEST(PartLog, RecordsOfOtherKindsAreDropped) {
  const std::string log = to_line(CampaignPart{0, 1}) +
                          "{\"block\":{\"begin\":0}}\n[1]\n{\"x\":1}\n\n" + to_line(block(0, 2));
  const PartHistory history = read(log);
  EXPECT_EQ(history.dropped_lines, (std::vector<std::size_t>{2, 3, 4, 5}));
  EXPECT_EQ(cases_in(history), 2u);
}

TEST(PartLog, AFileOfAnotherKindIsRefused) {
  for (const char* text :
       {"hello\n", "{}\n", "{\"lockstep_part\":2}\n", "{\"lockstep_part\":1}\n"}) {
    std::size_t whole = 0;
    const Result<PartHistory> history = history_of(text, "some.log", whole);
    ASSERT_FALSE(history) << text;
    EXPECT_NE(history.error().failure().detail.find("some.log is not the log of a part"),
              std::string::npos);
  }
}

TEST(PartLog, CasesThatRanTwiceCountOnce) {
  const PartHistory history = read(to_line(CampaignPart{0, 1}) + to_line(block(0, 4)) +
                                   to_line(block(2, 6)) + to_line(block(4, 6)));
  EXPECT_EQ(cases_in(history), 6u);
  EXPECT_EQ(history.repeated_cases, 4u);
}

TEST(PartLog, PositionsOfAllPartsAreAllCases) {
  for (std::uint64_t parts : {1u, 2u, 3u, 7u})
    for (std::uint64_t cases : {0u, 1u, 2u, 20u, 21u}) {
      std::uint64_t sum = 0;
      for (std::uint64_t s = 0; s < parts; ++s) sum += positions_of({s, parts}, cases);
      EXPECT_EQ(sum, cases) << parts;
    }
}

TEST(CampaignPlan, AnotherRunIsRefusedWithTheDifference) {
  const CampaignPlan plan = plan_of_three();
  EXPECT_EQ(plan_difference(plan, plan, "dir"), "");
  const auto difference = [&plan](auto change) {
    CampaignPlan other = plan;
    change(other);
    return plan_difference(plan, other, "dir");
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(difference([](CampaignPlan& p) { p.commit = "abc"; }), "begin another folder");
  has(difference([](CampaignPlan& p) { p.program = "9"; }), "begin another folder");
  has(difference([](CampaignPlan& p) { p.seed = 2; }), "has seed 1, and this run 2");
  has(difference([](CampaignPlan& p) { p.parts = 4; }), "has parts 3, and this run 4");
  has(difference([](CampaignPlan& p) { p.lane = "gloo"; }), "has lane sim, and this run gloo");
  has(difference([](CampaignPlan& p) { p.subject = "x"; }), "has subject reducer");
  has(difference([](CampaignPlan& p) { p.faults = "none"; }), "has --faults swarm");
  has(difference([](CampaignPlan& p) { p.features = {"x"}; }), "counts other features");
  const Result<CampaignPlan> again = plan_from_json(to_json(plan), "file");
  ASSERT_TRUE(again);
  EXPECT_EQ(plan_difference(plan, *again, "dir"), "");
  const auto of_earlier = plan_from_json("{\"lockstep_campaign\": 1}", "file");
  ASSERT_FALSE(of_earlier);
  EXPECT_NE(of_earlier.error().failure().detail.find("use the lockstep that began it"),
            std::string::npos);
  EXPECT_FALSE(plan_from_json("{\"lockstep_cam", "file"));
}

TEST(CampaignSummary, AddsAllPartsUp) {
  const PartHistory empty =
      read(to_line(CampaignPart{0, 3}) + to_line(StartRecord{900, "b", 8, 1, 30}));
  CampaignSummary summary = summarize(plan_of_three(), {empty, read(whole_log())}, {0});
  ASSERT_EQ(summary.parts.size(), 3u);
  EXPECT_EQ(summary.parts[0].state, "running");
  EXPECT_EQ(summary.parts[1].state, "complete");
  EXPECT_EQ(summary.parts[2].state, "has not begun");
  EXPECT_EQ(summary.total.counts.cases, 10u);
  EXPECT_EQ(summary.total.coverage.features.at("ranks 2"), 10u);
  EXPECT_EQ(summary.smallest.at("ranks 2").index, 0u);
  EXPECT_EQ(summary.failures.size(), 1u);
  EXPECT_NE(to_text(summary).find("cases: 10 of 30 (33 %)"), std::string::npos) << to_text(summary);
  // (1 - p)^10 = 0.05 for p = 0.2589
  EXPECT_NE(excluded_line(summary).find("a further bug that fails one of 3 such cases"),
            std::string::npos)
      << excluded_line(summary);
}

TEST(CampaignSummary, WithoutACaseNothingIsExcluded) {
  const CampaignSummary summary = summarize(plan_of_three(), {}, {});
  EXPECT_EQ(excluded_line(summary), "");
  EXPECT_NE(to_text(summary).find("has not begun"), std::string::npos);
  EXPECT_NE(to_json(summary).find("\"cases\": 0"), std::string::npos);
}

TEST(CampaignSummary, CountsFailuresByHowTheyEnd) {
  CampaignSummary summary = summarize(plan_of_three(), {}, {});
  const auto add = [&summary](std::uint64_t index, Failing failing, bool reproduced) {
    CampaignFailure each{0, failure(index), ShrunkRecord{index, reproduced, "s/a"}};
    each.found.failing = failing;
    summary.failures.push_back(each);
  };
  add(1, Failing::kDeadlock, false);
  add(2, Failing::kWrongBits, false);
  add(3, Failing::kWrongBits, true);
  const std::vector<Ending> endings = endings_of(summary);
  ASSERT_EQ(endings.size(), 2u);
  EXPECT_EQ(endings[0].exit_code, static_cast<int>(Failing::kWrongBits));
  EXPECT_EQ(endings[0].indices, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(endings[0].case_files, std::vector<std::string>{"s/a"});
  const std::string text = failures_text(summary, "a dir", "lockstep");
  EXPECT_NE(text.find("2 failing cases with exit code 65 (oracle: bits), 1 of them small:\n"
                      "  lockstep replay 'a dir/s/a'\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1 failing case with exit code 66 (oracle: bits), none of them small; the "
                      "first: lockstep generate 1 1"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace lockstep::properties
