// Claims: the limit of a case follows from what it may wait for, and is never less than that.
#include "properties/lane/time_limit.h"

#include <gtest/gtest.h>

#include "properties/generate/generate.h"

namespace lockstep::properties {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(TimeLimit, OfAGlooCaseWithoutFaultsIsTwoTimeoutsAndTenSeconds) {
  EXPECT_EQ(run_limit(LaneKind::kGloo, Subject(), Case()), seconds(30));
  EXPECT_EQ(answer_limit(LaneKind::kGloo, Subject(), Case()), seconds(35));
}

// A fault: one timeout until it is noticed, one to connect anew.
TEST(TimeLimit, LeavesRoomForEveryFaultOfTheCase) {
  Case c;
  c.timeout_ms = 1500;
  for (std::int64_t faults = 0; faults < 5; ++faults) {
    EXPECT_EQ(run_limit(LaneKind::kGloo, Subject(), c),
              seconds(10) + (faults + 1) * milliseconds(3000));
    c.faults.faults.emplace_back();
  }
}

TEST(TimeLimit, OfGeneratedGlooCasesIsFarBelowTheOldConstant) {
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const Case c = generate(1, index, options);
    EXPECT_LE(answer_limit(LaneKind::kGloo, Subject(), c), seconds(75)) << "case " << index;
  }
}

TEST(TimeLimit, OfTwoSubjectsIsThatOfBoth) {
  Subject subject;
  subject.against = std::make_shared<const Subject>();
  EXPECT_EQ(answer_limit(LaneKind::kGloo, subject, Case()), seconds(70));
}

}  // namespace
}  // namespace lockstep::properties
