#include "reducer/diagnosis/diagnosis.h"

#include <gtest/gtest.h>

#include <functional>

#include "properties/oracle/oracles.h"
#include "properties/oracle/test_observed.h"

namespace lockstep::properties {
namespace {

// Three ranks, two parameters in one bucket each, two steps. The flight records come from the
// simulator. Each test corrupts one part of them, or of the joined diagnosis.
class DiagnosisOracleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    reference::Program& program = case_.program;
    program.world = 3;
    program.options.first_bucket_bytes = program.options.bucket_bytes = 1;
    program.parameters.resize(2);
    program.steps.resize(2);
    for (reference::Step& step : program.steps) step.variants = {pass_of({0, 1})};
  }

  // In step 1 the transport of rank 1 fails at its first collective.
  void fail_on_rank_1(faults::Kind kind = faults::Kind::kOperationError) {
    case_.faults.faults = {{kind, 1, 1, 0, 0}};
    case_.timeout_ms = 1000;
  }

  void observe() {
    normalize(case_);
    CaseRunner runner(LaneKind::kSim, Subject{});
    runner.set_detailed(true);
    const Verdict verdict = runner.run(case_);
    ASSERT_TRUE(verdict.ok()) << verdict.message;
    observation_ = runner.observation();
    expectation_ =
        reference::run(case_.program, reference::Contract::lockstep(), observation_.recoveries, {});
    Result<Diagnosis> joined = diagnose(observation_.flight_records_of(0, 0));
    ASSERT_TRUE(joined.has_value());
    right_ = std::move(*joined);
    EXPECT_TRUE(judge(right_).ok()) << judge(right_).message;
  }

  Verdict judge(const Diagnosis& diagnosis) const {
    UnspecifiedCounts counts;
    return judge_diagnosis(case_, expectation_, observation_, 0, 0, diagnosis, counts);
  }

  void expect_wrong(const std::function<void(Diagnosis&)>& spoil) const {
    Diagnosis spoilt = right_;
    spoil(spoilt);
    EXPECT_EQ(judge(spoilt).failing, Failing::kWrongError) << spoilt.to_string();
    EXPECT_EQ(judge(spoilt).oracle, "diagnosis");
  }

  Case case_;
  reference::Expectation expectation_;
  Observation observation_;
  Diagnosis right_;
};

TEST_F(DiagnosisOracleTest, F6AnotherRankThanTheOneAtFaultIsSeen) {
  fail_on_rank_1();
  observe();
  ASSERT_EQ(right_.suspects, std::vector<int>{1});
  expect_wrong([](Diagnosis& d) { d.suspects = {2}; });
  Diagnosis other = right_;
  other.suspects = {2};
  EXPECT_NE(judge(other).message.find("it suspects rank 2; allowed: rank 1 of the program\n"),
            std::string::npos)
      << judge(other).message;
  expect_wrong([](Diagnosis& d) { d.suspects = {0, 1}; });
  expect_wrong([](Diagnosis& d) { d.suspects.clear(); });
}

// Nobody knows who is silent, so the diagnosis must not name a rank, and in particular no wrong
// one.
TEST_F(DiagnosisOracleTest, F6OfASilentTransportNobodyMayBeNamedButNoOther) {
  fail_on_rank_1(faults::Kind::kOperationStall);
  observe();
  for (const std::vector<int>& odd : {std::vector<int>{}, std::vector<int>{1}}) {
    Diagnosis other = right_;
    other.suspects = odd;
    EXPECT_TRUE(judge(other).ok()) << judge(other).message;
  }
  expect_wrong([](Diagnosis& d) { d.suspects = {0}; });
}

TEST_F(DiagnosisOracleTest, T1WhoWaitsForARankThatHasComeIsSeen) {
  fail_on_rank_1();
  observe();
  ASSERT_FALSE(right_.waits.empty());
  expect_wrong([](Diagnosis& d) { d.waits[0].ranks = {d.waits[0].rank}; });
  expect_wrong([](Diagnosis& d) { d.waits[0].sequence = 0; });
  expect_wrong([](Diagnosis& d) { d.waits[0].sequence = 1000; });
}

TEST_F(DiagnosisOracleTest, T1AnAccountThatIsNotWhatHappenedIsSeen) {
  fail_on_rank_1();
  observe();
  expect_wrong([](Diagnosis& d) { ++d.records[1].pass; });
  expect_wrong([](Diagnosis& d) { ++d.records[1].size; });
  expect_wrong([](Diagnosis& d) { d.records[1].failure.reset(); });
  expect_wrong([](Diagnosis& d) { d.records[1].failure->code = Code::kMismatch; });
  expect_wrong([](Diagnosis& d) { d.records[1].failure->rank = 2; });
  expect_wrong([](Diagnosis& d) { d.records[1].collectives.clear(); });
  const auto spoil_first = [&](const std::function<void(RecordedCollective&)>& spoil) {
    expect_wrong([&](Diagnosis& d) { spoil(d.records[2].collectives[0]); });
  };
  spoil_first([](RecordedCollective& c) { c.state = RecordedCollective::State::kFailed; });
  spoil_first([](RecordedCollective& c) { ++c.count; });
  spoil_first([](RecordedCollective& c) { c.bucket = 1 - c.bucket; });
  spoil_first([](RecordedCollective& c) { c.dtype = "float16"; });
  spoil_first([](RecordedCollective& c) { ++c.pass; });
  spoil_first([](RecordedCollective& c) { ++c.sequence; });
  spoil_first([](RecordedCollective& c) { ++c.layout_hash; });
  spoil_first([](RecordedCollective& c) { c.layout_hash = 0; });
  spoil_first([](RecordedCollective& c) { c.parameters = {}; });
}

// Gloo's group runs two collectives at once, so the later one may be complete when the earlier one
// fails. In the simulator's group, and where a GPU's memory is copied, they complete in order.
TEST_F(DiagnosisOracleTest, F6ACollectiveThatCompletesAfterOneThatFailedIsSeenWhereTheyAreInOrder) {
  const auto fail_the_first = [this] {
    Diagnosis late = right_;
    late.records[0].collectives[0].state = RecordedCollective::State::kFailed;
    return judge(late).message;
  };
  const std::string told = "completed #1 after a collective had failed";
  fail_on_rank_1();
  observe();
  EXPECT_NE(fail_the_first().find(told), std::string::npos) << fail_the_first();
  observation_.closes_silently = false;  // as over Gloo
  EXPECT_EQ(fail_the_first().find(told), std::string::npos) << fail_the_first();
  case_.program.options.transport = reference::Transport::kStaged;
  observe();
  EXPECT_NE(fail_the_first().find(told), std::string::npos) << fail_the_first();
}

TEST_F(DiagnosisOracleTest, F6RanksThatDifferOrStandOnNoSideAreSeen) {
  fail_on_rank_1();
  observe();
  Diagnosis::Difference difference;
  difference.sides = {{{0, 2}, right_.records[0].collectives[0]}, {{1}, std::nullopt}};
  Diagnosis other = right_;
  other.difference = difference;
  EXPECT_TRUE(judge(other).ok()) << judge(other).message;
  expect_wrong([&](Diagnosis& d) {
    d.difference = difference;
    d.difference->sides[1].collective = d.records[0].collectives[1];
  });
  expect_wrong([&](Diagnosis& d) {
    d.difference = difference;
    d.difference->sides[0].ranks = {0};
  });
}

// Rank 2 does not use p0.
TEST_F(DiagnosisOracleTest, P5WhatTheNextBucketLacksIsChecked) {
  case_.program.steps[1].variants = {pass_of({0, 1}), pass_of({0, 1}), pass_of({1})};
  observe();
  ASSERT_EQ(right_.suspects, std::vector<int>{2});
  ASSERT_EQ(right_.records[2].missing.first, std::vector<std::string>{"p0"});
  expect_wrong([](Diagnosis& d) { d.records[2].missing.first = {"p1"}; });
  expect_wrong([](Diagnosis& d) { d.records[2].missing = {}; });
  expect_wrong([](Diagnosis& d) { d.records[2].next_bucket = 2; });
  expect_wrong([](Diagnosis& d) { d.records[2].next_bucket = kNone; });
  expect_wrong([](Diagnosis& d) { d.suspects = {0}; });
}

TEST_F(DiagnosisOracleTest, T1WhereAllIsWellNothingMayBeTold) {
  observe();
  ASSERT_TRUE(right_.clean());
  expect_wrong([](Diagnosis& d) { d.suspects = {0}; });
  expect_wrong([](Diagnosis& d) { d.silent = {1}; });
  expect_wrong([](Diagnosis& d) { --d.records[0].pass; });
}

// A rank that was replaced joins behind those that stay (F4): after that, rank 1 of the group is
// another one than rank 1 of the program.
TEST_F(DiagnosisOracleTest, F4RanksAreThoseOfTheGroupAfterARecovery) {
  case_.program.steps.resize(3, case_.program.steps[0]);
  case_.faults.faults = {{faults::Kind::kNodeThrows, 0, 1, 0, 0}};
  observe();
  ASSERT_EQ(observation_.recoveries.size(), 1u);
  Result<Diagnosis> later = diagnose(observation_.flight_records_of(1, 0));
  ASSERT_TRUE(later.has_value());
  const auto failing = [&] {
    UnspecifiedCounts counts;
    return judge_diagnosis(case_, expectation_, observation_, 1, 0, *later, counts).failing;
  };
  // What rank 1 does takes place a microsecond later than what the others do.
  for (RecordedCollective& each : later->records[1].collectives) ++each.launched_us;
  EXPECT_EQ(failing(), Failing::kWrongError);
  for (ObservedStep& step : observation_.ranks[1].steps)
    for (ObservedCollective& each : step.collectives) ++each.launched_us;
  EXPECT_EQ(failing(), Failing::kNothing);
  // Rank 2 of the program was the second in its group, and so is what it recorded.
  observation_.recoveries[0].survivors = {0, 2, 1};
  EXPECT_EQ(failing(), Failing::kWrongError);
  std::swap(observation_.ranks[1], observation_.ranks[2]);
  EXPECT_EQ(failing(), Failing::kNothing);
}

}  // namespace
}  // namespace lockstep::properties
