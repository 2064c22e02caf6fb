// Claim: the search over all orders of a case finds each planted bug that shows in one of them,
// without luck, and finds nothing in the reducer itself. Method: programs of the planted bugs that
// need a schedule, without the schedule with which they were found.
#include "properties/run/exhaustive_search.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "properties/case/case_json.h"

namespace lockstep::properties {
namespace {

constexpr std::uint64_t kMost = 200'000;

Case parse(const std::string& program) {
  Result<Case> value =
      from_json("{\"schema\": 1, \"program\": " + program + "}", "the test's program");
  EXPECT_TRUE(value.has_value());
  return *value;
}

// One rank; the second node belongs to another worker of the engine.
const char* const kTwoWorkers =
    R"({"world": 1, "parameters": [{"device": 1}], "steps": [{"variants": [{"forwards": [
        {"nodes": [{"kind": "sum"}, {"inputs": [{}]}], "outputs": [{}]}]}]}]})";
const char* const kTwoCopies =
    R"({"world": 1, "parameters": [{"device": 1}, {}], "steps": [{"variants": [{"forwards": [
        {"nodes": [{}, {"parameter": 1, "inputs": [{}]}], "outputs": [{}]}]}]}]})";
const char* const kTwoRanks =
    R"({"world": 2, "parameters": [{}], "steps": [{"variants": [{"forwards": [
        {"nodes": [{}], "outputs": [{}]}]}]}]})";

// Searches to the end, or to the first failure, which it returns.
std::optional<Verdict> search_all(ExhaustiveSearch& search) {
  while (!search.is_over() && search.explorer().counts().executions < kMost)
    if (const Verdict verdict = search.run(); !verdict.ok()) return verdict;
  return std::nullopt;
}

Subject subject_of(const std::string& name) {
  Result<Subject> subject = parse_subject(name);
  EXPECT_TRUE(subject.has_value());
  return *subject;
}

void expect_found(const std::string& bug, const char* program) {
  const Case value = parse(program);
  ExhaustiveSearch search(value, subject_of("seeded:" + bug));
  const std::optional<Verdict> verdict = search_all(search);
  ASSERT_TRUE(verdict.has_value()) << bug << " was not found";
  EXPECT_EQ(verdict->failing, Failing::kDeadlock);
  // The execution is a case: it fails again without the search.
  Case found = value;
  for (const auto& [choice, fiber] : search.observation().deviations)
    found.schedule.deviations.push_back({choice, fiber});
  CaseRunner runner(LaneKind::kSim, subject_of("seeded:" + bug));
  EXPECT_TRUE(runner.run(found).same_failure(*verdict));
}

TEST(ExhaustiveSearch, FindsPlantedBugsThatNeedASchedule) {
  expect_found("X02", kTwoWorkers);
  expect_found("C10", kTwoCopies);
}

TEST(ExhaustiveSearch, CompletesAProgramOfTwoWorkersWithoutAFailure) {
  ExhaustiveSearch search(parse(kTwoWorkers), Subject());
  const std::optional<Verdict> verdict = search_all(search);
  EXPECT_FALSE(verdict.has_value()) << verdict->message;
  EXPECT_TRUE(search.explorer().is_complete()) << search.explorer().anomaly();
  EXPECT_GT(search.explorer().counts().executions, 1u);
  EXPECT_GT(search.explorer().counts().reordered, 0u);
}

TEST(ExhaustiveSearch, GoesOnFromALineOfItsLog) {
  const Case value = parse(kTwoWorkers);
  ExhaustiveSearch whole(value, Subject());
  EXPECT_FALSE(search_all(whole).has_value());
  std::string line;
  {
    ExhaustiveSearch first(value, Subject());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(first.run().ok());
    EXPECT_FALSE(first.is_over());
    line = to_log_line(first.explorer().state());
  }
  Result<simulation::Explorer::State> state = state_from_log_line(line);
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(to_log_line(*state), line);
  ExhaustiveSearch second(value, Subject());
  second.restore(std::move(*state));
  EXPECT_FALSE(search_all(second).has_value());
  EXPECT_TRUE(second.explorer().is_complete());
  EXPECT_EQ(second.explorer().counts().executions, whole.explorer().counts().executions);
  EXPECT_EQ(second.explorer().counts().pruned, whole.explorer().counts().pruned);
}

TEST(ExhaustiveSearch, ALineThatIsNoStateIsRefused) {
  EXPECT_FALSE(state_from_log_line("{\"counts\": [1, 2").has_value());
  EXPECT_FALSE(state_from_log_line("{}").has_value());
}

TEST(ExhaustiveSearch, RefusesWhatItCannotJudge) {
  Case value = parse(kTwoRanks);
  EXPECT_EQ(ExhaustiveSearch::refuse(value), "");
  value.faults.faults.push_back({faults::Kind::kRankPause});
  EXPECT_NE(ExhaustiveSearch::refuse(value), "");
  value.faults.faults = {{faults::Kind::kOperationError}};
  EXPECT_EQ(ExhaustiveSearch::refuse(value), "");
  value.program.options.transport = reference::Transport::kStaged;
  EXPECT_NE(ExhaustiveSearch::refuse(value), "");
}

TEST(ExhaustiveSearch, EstimatesMoreForLargerPrograms) {
  ExhaustiveSearch small(parse(kTwoWorkers), Subject());
  ExhaustiveSearch large(parse(kTwoRanks), Subject());
  const double few = small.estimate(20);
  EXPECT_GT(few, 1);
  EXPECT_GT(large.estimate(20), few);
}

}  // namespace
}  // namespace lockstep::properties
