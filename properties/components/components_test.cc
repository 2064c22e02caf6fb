// Claim: every part that has a component does what the contract says, in whatever situation chance
// makes. Method: the component judges some thousands of situations. A failure means that the part,
// the component or the simulator is wrong: `lockstep component NAME --seed 1` finds it again, and
// makes it smaller.
//
// Each planted bug that only a component finds is found by it (faults/seeded).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "faults/seeded/seeded.h"
#include "faults/sim/scheduler/test_leaks.h"
#include "properties/components/component.h"

namespace lockstep::components {
namespace {

using properties::Verdict;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // GCC
constexpr bool kIsSlow = true;
#elif defined(__has_feature)  // Clang
constexpr bool kIsSlow = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kIsSlow = false;
#endif

constexpr std::uint64_t kSituations = kIsSlow ? 200 : 4000;
constexpr std::uint64_t kMostToFind = 20'000;

Verdict judge(const Component& component, std::uint64_t index) {
  Choices choices(1, index, component.name);
  return component.judge(choices);
}

void expect_right(std::string_view name, std::uint64_t situations = kSituations) {
  const Component* const component = find_component(name, false);
  ASSERT_NE(component, nullptr) << name;
  for (std::uint64_t index = 0; index < situations; ++index) {
    const Verdict verdict = judge(*component, index);
    ASSERT_TRUE(verdict.ok()) << name << ", situation " << index << ": " << verdict.message;
  }
}

TEST(Components, F5AnAbortTellsPeersTheCause) { expect_right("abort"); }
TEST(Components, B4WhatDiffersIsCompared) { expect_right("agreement"); }
TEST(Components, F2RanksNameTheCauseThatTheReportsGive) { expect_right("failure-board"); }
TEST(Components, F2RanksNameTheOneThatStoppedThem) { expect_right("failure-cause"); }
TEST(Components, F3ARankTakesTheFramesThatAreRight) { expect_right("frames"); }
TEST(Components, F2AReducerSaysWhereItsGroupFailed) { expect_right("group-failure"); }
TEST(Components, F6CollectivesAreToldApart) { expect_right("headers"); }
TEST(Components, B5WrongLayoutsAreRefused) { expect_right("layouts"); }
TEST(Components, P12NothingIsWrongAfterAMishap) { expect_right("lone-rank"); }
TEST(Components, F6NoRankIsSuspectedThatDoesWhatMostDo) { expect_right("mismatches"); }
TEST(Components, F2AFailureNamesItsCollectiveAndItsRank) { expect_right("names"); }
TEST(Components, B5WrongCallsOfAGroupAreRefused) { expect_right("nccl-calls", kSituations / 8); }
TEST(Components, F2AGroupTellsItsRanksWhatHappened) { expect_right("nccl-group", kSituations / 2); }
TEST(Components, B5ModelsOnTwoKindsOfDevicesAreTakenOrRefused) { expect_right("placement"); }
TEST(Components, F9AProcessAloneWithAStoreGetsTheRightRoster) { expect_right("roster"); }
TEST(Components, F3WrongRowsAreRefusedAndTheirSenderNamed) { expect_right("rows"); }
TEST(Components, G3RanksThatShareMemoryAddInTheOrderOfTheRing) { expect_right("shared-memory"); }
TEST(Components, F2AGroupThroughHostMemoryTellsWhatHappened) { expect_right("staged-group"); }
TEST(Components, S2RanksDecideAsAllAnnounce) { expect_right("uneven-inputs"); }
TEST(Components, F1ACallerLearnsHowItsCollectiveEnded) { expect_right("waits"); }

TEST(Components, AreSortedAndTheSameInBothBuilds) {
  const auto all = components(false);
  const auto seeded = components(true);
  ASSERT_EQ(all.size(), seeded.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].name, seeded[i].name);
    EXPECT_FALSE(all[i].what.empty());
    if (i > 0) {
      EXPECT_LT(all[i - 1].name, all[i].name);
    }
  }
  EXPECT_EQ(find_component("none", false), nullptr);
}

// In the process of its own: the bug may also be found by an assertion, which ends the process.
bool finds(const Component& component, std::string_view bug) {
  const pid_t child = fork();
  if (child == 0) {
    bool fails = false;
    const bool is_on = seeded::select(bug);
    for (std::uint64_t index = 0; is_on && index < kMostToFind && !fails; ++index)
      fails = !judge(component, index).ok();
    _exit(fails && seeded::triggered() > 0 ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return false;
  return WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) == EXIT_SUCCESS;
}

class EachPlantedBug : public ::testing::TestWithParam<std::string> {};

TEST_P(EachPlantedBug, IsFoundByItsComponent) {
  const simulation::MayLeak deadlocks;
  const auto bugs = seeded::bugs();
  const auto bug = std::find_if(bugs.begin(), bugs.end(),
                                [](const seeded::Bug& each) { return each.id == GetParam(); });
  ASSERT_NE(bug, bugs.end());
  const Component* const component = find_component(component_of(*bug), true);
  ASSERT_NE(component, nullptr) << "there is no component " << component_of(*bug);
  EXPECT_TRUE(finds(*component, bug->id));
}

std::vector<std::string> bugs_of_components() {
  std::vector<std::string> ids;
  for (const seeded::Bug& bug : seeded::bugs())
    if (!component_of(bug).empty()) ids.emplace_back(bug.id);
  return ids;
}
INSTANTIATE_TEST_SUITE_P(Components, EachPlantedBug, ::testing::ValuesIn(bugs_of_components()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace lockstep::components
