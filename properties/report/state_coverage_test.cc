// Claim: the table of states and faults counts what a run did, a cell that stays empty is named,
// and a fault that acts in a state that is declared impossible for it ends the run. Method: tables
// by hand, and cases in the simulator whose fault acts in a known state.
#include "properties/report/state_coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "properties/case/case_json.h"
#include "properties/run/case_runner.h"

namespace lockstep::properties {
namespace {

using faults::Kind;
using faults::ReducerState;
using testing::HasSubstr;
using testing::Not;

std::uint64_t& cell(faults::StateCounts& counts, Kind kind, ReducerState state) {
  return counts[static_cast<std::size_t>(kind)][static_cast<std::size_t>(state)];
}

template <class Visit>
void each_cell(const Visit& visit) {
  for (int k = 0; k < faults::kKinds; ++k)
    for (int s = 0; s < faults::kReducerStates; ++s)
      visit(static_cast<Kind>(k), static_cast<ReducerState>(s));
}

TEST(StateCoverage, AnImpossibleCellThatIsHitEndsTheRun) {
  int impossible = 0;
  each_cell([&](Kind kind, ReducerState state) {
    faults::StateCounts counts{};
    cell(counts, kind, state) = 1;
    const Verdict verdict = judge_states(Verdict(), counts);
    const bool can_occur = why_impossible(kind, state).empty();
    EXPECT_EQ(verdict.ok(), can_occur) << faults::name_of(kind) << faults::name_of(state);
    if (can_occur) return;
    ++impossible;
    EXPECT_EQ(verdict.failing, Failing::kInconclusive);
    EXPECT_THAT(verdict.message,
                HasSubstr(std::string(faults::name_of(kind)) + " while " + faults::name_of(state)));
    EXPECT_THAT(verdict.message, HasSubstr(std::string(why_impossible(kind, state))));
  });
  EXPECT_GT(impossible, 0);
  EXPECT_TRUE(judge_states(Verdict(), faults::StateCounts{}).ok());
}

TEST(StateCoverage, AFailureStaysTheFailureThatItIs) {
  faults::StateCounts counts{};
  cell(counts, Kind::kNodeThrows, ReducerState::kResetting) = 1;
  const Verdict failure{Failing::kDeadlock, "progress", "nothing runs"};
  EXPECT_EQ(judge_states(failure, counts).failing, Failing::kDeadlock);
}

TEST(StateCoverage, EmptyCellsAreNamedAndImpossibleOnesAreNot) {
  StateCoverage coverage;
  EXPECT_EQ(states_line(coverage), "");
  EXPECT_EQ(states_block(coverage), "");
  coverage.kinds = FaultKinds().with(Kind::kNodeThrows).with(Kind::kOperationDelay);
  each_cell([&](Kind kind, ReducerState state) { cell(coverage.counts, kind, state) = 1; });
  EXPECT_TRUE(empty_cells(coverage).empty());
  EXPECT_THAT(states_line(coverage), HasSubstr("were seen\n"));
  cell(coverage.counts, Kind::kOperationDelay, ReducerState::kRebuilding) = 0;
  cell(coverage.counts, Kind::kNodeThrows, ReducerState::kResetting) = 0;  // cannot occur
  cell(coverage.counts, Kind::kLinkReset, ReducerState::kIdle) = 0;        // of another kind
  EXPECT_EQ(empty_cells(coverage), std::vector<std::string>{"operation_delay while rebuilding"});
  EXPECT_THAT(states_line(coverage), HasSubstr("1 of "));
  EXPECT_THAT(states_line(coverage), HasSubstr("not seen: operation_delay while rebuilding\n"));
  EXPECT_THAT(states_block(coverage), HasSubstr("cannot occur: "));
  EXPECT_THAT(states_block(coverage), Not(HasSubstr("link_reset")));
  const auto rows = state_rows(coverage);
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& row : rows) EXPECT_EQ(row.size(), state_headers().size());
}

// Two ranks, a parameter in each of two buckets, and two passes with the options given.
Case two_ranks(const std::string& options, const std::string& fault) {
  const std::string step =
      R"({"variants": [{"forwards": [{"nodes": [{}, {"parameter": 1, "inputs": [{}]}],)"
      R"( "outputs": [{}]}]}]})";
  Result<Case> value =
      from_json(R"({"schema": 1, "program": {"key": 2, "options": {"first_bucket_bytes": 1,)"
                R"( "bucket_bytes": 1)" +
                    options + R"(}, "parameters": [{}, {}], "steps": [)" + step + ", " + step +
                    R"(]}, "faults": [)" + fault + "]}",
                "the test's program");
  EXPECT_TRUE(value.has_value()) << (value ? "" : value.error().failure().detail);
  return *value;
}

// Runs the case, and returns the states in which its faults acted.
std::set<ReducerState> states_of(const Case& value) {
  CaseRunner runner(LaneKind::kSim, Subject());
  const Verdict verdict = runner.run(value);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  const faults::StateCounts& counts = runner.observation().fired.in_state;
  EXPECT_TRUE(judge_states(verdict, counts).ok());
  std::set<ReducerState> states;
  each_cell([&](Kind kind, ReducerState state) {
    if (counts[static_cast<std::size_t>(kind)][static_cast<std::size_t>(state)] > 0)
      states.insert(state);
  });
  return states;
}

TEST(StateCoverage, AFaultCountsInTheStateInWhichItActs) {
  using States = std::set<ReducerState>;
  const auto node = [](int site) {
    return R"({"kind": "node_throws", "rank": 1, "site": )" + std::to_string(site) + "}";
  };
  EXPECT_EQ(states_of(two_ranks("", node(0))), States{ReducerState::kArmed});
  EXPECT_EQ(states_of(two_ranks("", node(1))), States{ReducerState::kLaunched});
  const auto delay = [](int step, int site) {
    return R"({"kind": "operation_delay", "rank": 1, "duration_us": 9, "step": )" +
           std::to_string(step) + R"(, "site": )" + std::to_string(site) + "}";
  };
  EXPECT_EQ(states_of(two_ranks("", delay(0, 0))), States{ReducerState::kReducing});
  EXPECT_EQ(states_of(two_ranks("", delay(0, 1))), States{ReducerState::kLaunched});
  EXPECT_EQ(states_of(two_ranks(R"(, "mode": "dynamic")", delay(0, 2))),
            States{ReducerState::kFinalizing});  // the usage map
  EXPECT_EQ(states_of(two_ranks(R"(, "rebuild": true)", delay(1, 0))),
            States{ReducerState::kRebuilding});
  // A node throws in the first pass, and both ranks reset.
  const std::string in_reset =
      R"({"kind": "operation_delay", "rank": 0, "duration_us": 9, "step": 1, "in_reset": true})";
  EXPECT_EQ(states_of(two_ranks("", node(0) + ", " + in_reset)),
            (States{ReducerState::kArmed, ReducerState::kResetting}));
}

}  // namespace
}  // namespace lockstep::properties
