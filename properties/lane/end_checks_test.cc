// Claim: what the lane asks at the end of a program holds for every key and schedule. Planted bugs
// show that it is seen where it does not hold (U150, U153, U154, U156, U157).
#include <gtest/gtest.h>

#include <string>

#include "faults/sim/scheduler/scheduler.h"
#include "properties/lane/frame_check.h"
#include "properties/lane/roster_check.h"
#include "properties/lane/staged_check.h"
#include "properties/lane/wait_check.h"

namespace lockstep {
inline namespace sim {
namespace {

using simulation::End;
using simulation::Policy;

// Asks in many schedules, and expects that nothing is wrong.
void expect_right(std::string (*ask)(std::uint32_t key)) {
  for (std::uint32_t key = 0; key < 1000; ++key) {
    simulation::Scheduler scheduler;
    scheduler.reset({key % 2 == 0 ? Policy::kRandomWalk : Policy::kStayBiased, key, {}});
    std::string answer = "it did not answer";
    scheduler.spawn("rank", 0, [&] { answer = ask(key); });
    const simulation::Outcome outcome = scheduler.run();
    ASSERT_EQ(outcome.end, End::kFinished) << "key " << key << "\n" << outcome.wait_graph;
    EXPECT_EQ(answer, "") << "key " << key;
    EXPECT_FALSE(scheduler.late_wait()) << "key " << key << ": " << scheduler.late_wait()->at;
  }
}

TEST(EndChecks, F1ACallerLearnsHowItsCollectiveEnded) { expect_right(wrongly_waited); }
TEST(EndChecks, F2AFailureNamesItsCollectiveAndItsRank) { expect_right(wrongly_named); }
TEST(EndChecks, F2AGroupThroughHostMemoryTellsWhatHappened) { expect_right(wrongly_staged); }
TEST(EndChecks, F9AProcessAloneWithAStoreGetsTheRightRoster) { expect_right(wrongly_agreed); }
TEST(EndChecks, F3ARankTakesTheFramesThatAreRight) { expect_right(wrongly_received); }

}  // namespace
}  // namespace sim
}  // namespace lockstep
