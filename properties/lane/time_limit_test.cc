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

// Many processes that load torch at once on few processors need a minute and more.
TEST(TimeLimit, LeavesRoomForAPythonThatLoadsTorch) {
  Subject subject;
  subject.kind = Subject::Kind::kPython;
  EXPECT_EQ(run_limit(LaneKind::kGloo, subject, Case()), seconds(30));
  EXPECT_EQ(answer_limit(LaneKind::kGloo, subject, Case()), seconds(155));
}

// A host that never connects is no deadlock of the case.
TEST(TimeLimit, LeavesRoomForHostsThatConnectLateOrNever) {
  Case c;
  c.timeout_ms = 1500;
  EXPECT_EQ(run_limit(LaneKind::kHosts, Subject(), c), seconds(13));
  EXPECT_GT(answer_limit(LaneKind::kHosts, Subject(), c), seconds(300));
}

TEST(TimeLimit, OfACaseThatRunsTwiceIsTwiceAsLong) {
  Case c;
  c.switched.option = static_cast<SwitchedOption>(1);
  EXPECT_EQ(run_limit(LaneKind::kGloo, Subject(), c), seconds(30));
  EXPECT_EQ(answer_limit(LaneKind::kGloo, Subject(), c), seconds(70));
  EXPECT_EQ(repeat_limit(LaneKind::kSim, Subject(), c), seconds(6));
}

// A fault: one timeout until it is noticed, one to connect anew.
TEST(TimeLimit, LeavesRoomForEveryHarmfulFaultOfTheCase) {
  Case c;
  c.timeout_ms = 1500;
  for (std::int64_t harmful = 0; harmful < 5; ++harmful) {
    EXPECT_EQ(run_limit(LaneKind::kGloo, Subject(), c),
              seconds(10) + (harmful + 1) * milliseconds(3000));
    c.faults.faults.emplace_back().kind = faults::Kind::kRankExit;
    c.faults.faults.emplace_back().kind = faults::Kind::kMessageDelay;  // costs no timeout
  }
}

TEST(TimeLimit, IsAMinuteAtMostUnlessTheTimeoutIsLong) {
  Case c;
  for (int i = 0; i < 8; ++i) c.faults.faults.emplace_back().kind = faults::Kind::kRankExit;
  EXPECT_EQ(run_limit(LaneKind::kGloo, Subject(), c), seconds(60));
  c.timeout_ms = 100'000;
  EXPECT_EQ(run_limit(LaneKind::kGloo, Subject(), c), seconds(410));
}

// Two ranks may lack gradients of different reducers. Then each waits in a group whose other rank
// does not come, in every step anew, and with the short timeout of such programs.
TEST(TimeLimit, LeavesRoomForEveryStepInWhichTwoReducersErr) {
  Case c;
  c.program.world = 2;
  c.program.options.group_each = true;
  c.program.parameters.resize(2);
  c.program.parameters[1].reducer = 1;
  reference::Forward forward;
  forward.nodes.emplace_back().parameter = 0;  // nothing reaches parameter 1
  forward.outputs.emplace_back();
  reference::Step step;
  step.variants.emplace_back().forwards.push_back(forward);
  for (std::int64_t steps = 1; steps < 8; ++steps) {
    c.program.steps.push_back(step);
    EXPECT_EQ(run_limit(LaneKind::kGloo, Subject(), c), seconds(14 + 2 * steps));
  }
  c.program.parameters[1].reducer = 0;  // with one reducer the rank that errs tells the others
  EXPECT_EQ(run_limit(LaneKind::kGloo, Subject(), c), seconds(30));
}

TEST(TimeLimit, OfGeneratedGlooCasesIsHalfAMinuteForMost) {
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  int short_ones = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const auto limit = answer_limit(LaneKind::kGloo, Subject(), generate(1, index, options));
    EXPECT_LE(limit, seconds(65 + 80)) << "case " << index;
    short_ones += limit <= seconds(35) ? 1 : 0;
  }
  EXPECT_GT(short_ones, 1500);
}

TEST(TimeLimit, OfTwoSubjectsIsThatOfBoth) {
  Subject subject;
  subject.against = std::make_shared<const Subject>();
  EXPECT_EQ(answer_limit(LaneKind::kGloo, subject, Case()), seconds(70));
}

// With five seconds, which are enough over Gloo, a case over NCCL "hung" again because its
// processes had not started, and was reported as what it was not.
TEST(TimeLimit, WhileACaseIsMadeSmallIsLessThanThatOfItsFirstRunAndMoreThanItsStart) {
  constexpr seconds kStartOfNccl(45);  // the lane gives a communicator 40 s to be made
  const Case c;
  EXPECT_GT(repeat_limit(LaneKind::kNccl, Subject(), c), kStartOfNccl);
  for (const LaneKind lane : {LaneKind::kSim, LaneKind::kGloo, LaneKind::kNccl}) {
    EXPECT_LT(repeat_limit(lane, Subject(), c), answer_limit(lane, Subject(), c));
    Subject both;
    both.against = std::make_shared<const Subject>();
    EXPECT_EQ(repeat_limit(lane, both, c), 2 * repeat_limit(lane, Subject(), c));
  }
}

}  // namespace
}  // namespace lockstep::properties
