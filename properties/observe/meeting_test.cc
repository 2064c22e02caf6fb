#include "properties/observe/meeting.h"

#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

using Ranks = std::vector<std::uint32_t>;

// All of these ranks arrive after a failure.
std::optional<Resume> meet(Meeting& meeting, const Ranks& ranks, std::uint32_t step) {
  for (const std::uint32_t rank : ranks) meeting.arrive(rank, false, step);
  return meeting.decide();
}

TEST(Meeting, SurvivorsGoOnWithTheHighestStep) {
  Meeting meeting(3);
  meeting.leave(1);
  meeting.arrive(0, false, 2);
  EXPECT_FALSE(meeting.decide());
  meeting.arrive(2, true, 3);
  const auto resume = meeting.decide();
  ASSERT_TRUE(resume);
  EXPECT_TRUE(resume->recover);
  EXPECT_EQ(resume->step, 3u);
  EXPECT_EQ(resume->roster.generation, 1u);
  EXPECT_EQ(resume->roster.members, (Ranks{0, 2}));
}

TEST(Meeting, F4AReplacementJoinsLastAndWaitsForItsRecovery) {
  Meeting meeting(3);
  meeting.replace(0, 1);
  meeting.leave(0);
  EXPECT_EQ(meet(meeting, {1, 2}, 1)->roster.members, (Ranks{1, 2}));
  const auto resume = meet(meeting, {1, 2}, 2);
  ASSERT_TRUE(resume);
  EXPECT_EQ(resume->roster.members, (Ranks{1, 2, 0}));
  EXPECT_FALSE(meet(meeting, {1, 2}, 3));  // the one that joined is missing
  meeting.arrive(0, false, 3);
  EXPECT_EQ(meeting.decide()->roster.members, (Ranks{1, 2, 0}));
  ASSERT_EQ(meeting.recoveries().size(), 3u);
  EXPECT_EQ(meeting.recoveries()[1].survivors, (Ranks{1, 2, 0}));
}

TEST(Meeting, WithoutAFailureNobodyJoins) {
  Meeting meeting(2);
  meeting.replace(1, 0);
  meeting.leave(1);
  meeting.arrive(0, true, 4);
  const auto resume = meeting.decide();
  ASSERT_TRUE(resume);
  EXPECT_FALSE(resume->recover);
  EXPECT_EQ(resume->roster.members, (Ranks{0}));
}

}  // namespace
}  // namespace lockstep::properties
