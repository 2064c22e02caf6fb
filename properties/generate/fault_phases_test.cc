#include "properties/generate/fault_phases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "properties/case/case_json.h"

namespace lockstep::properties {
namespace {

// The fault is still in the plan, and where it was planned, after the case was normalized.
TEST(FaultPhases, EveryCaseHasItsFaultInItsPhase) {
  const std::vector<PhaseCase> cases = phase_cases({});
  std::set<std::tuple<std::string, FaultPhase, std::uint32_t>> cells;
  for (const PhaseCase& each : cases) {
    const std::string about = each.fault + ", " + name_of(each.phase);
    const auto& plan = each.value.faults.faults;
    const auto same = [&](const faults::Fault& fault) {
      return fault.kind == each.planned.kind && fault.rank == each.planned.rank &&
             fault.step == each.planned.step && fault.in_reset == each.planned.in_reset;
    };
    EXPECT_TRUE(std::any_of(plan.begin(), plan.end(), same)) << about;
    EXPECT_EQ(each.planned.rank, 1u);
    EXPECT_TRUE(cells.insert({each.fault, each.phase, each.value.program.world}).second) << about;
    const Result<Case> read = from_json(to_json(each.value), about);
    ASSERT_TRUE(read) << about << ": " << read.error().to_string();
    EXPECT_EQ(to_json(*read), to_json(each.value)) << about;
  }
}

TEST(FaultPhases, AFaultThatCanActEverywhereHasACaseInEachPhaseForEachNumberOfRanks) {
  PhaseOptions options;
  options.kinds = FaultKinds().with(faults::Kind::kRankExit);
  options.worlds = {2, 5};
  const std::vector<PhaseCase> cases = phase_cases(options);
  EXPECT_EQ(cases.size(), 2u * kFaultPhases);
  for (const PhaseCase& each : cases) EXPECT_EQ(each.planned.kind, faults::Kind::kRankExit);
}

TEST(FaultPhases, WhoIsReplacedOrLeftOutLeavesInAStep) {
  PhaseOptions options;
  options.kinds = FaultKinds().with(faults::Kind::kRankReplaced).with(faults::Kind::kRankLeftOut);
  const std::vector<PhaseCase> cases = phase_cases(options);
  EXPECT_FALSE(cases.empty());
  for (const PhaseCase& each : cases) {
    EXPECT_NE(each.phase, FaultPhase::kConstruction);
    EXPECT_NE(each.phase, FaultPhase::kReset);
  }
}

}  // namespace
}  // namespace lockstep::properties
