// Tests that a runner runs a case again where its ranks had waited for a processor (rerun.h), with
// the simulator's lane below a lane that says so.
#include "properties/run/case_runner.h"

#include <gtest/gtest.h>

#include <utility>

namespace lockstep::properties {
namespace {

// The first runs end in a deadlock, in each of which a rank waited; the others are as they are.
class LateLane final : public Lane {
 public:
  LateLane(int failing, double waited_s) : failing_(failing), waited_s_(waited_s) {}

  void run(const Case& c, const reference::Expectation& expectation,
           Observation& observation) override {
    lane_->run(c, expectation, observation);
    if (failing_-- <= 0) return;
    observation.end = Observation::End::kDeadlock;
    observation.wait_graph = "all wait";
    observation.waited_s = waited_s_;
  }

 private:
  const std::unique_ptr<Lane> lane_ = make_lane(LaneKind::kSim, Subject());
  int failing_;
  const double waited_s_;
};

class LateRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    case_.program.parameters.resize(1);
    case_.program.steps.resize(2);
    case_.timeout_ms = 1000;
    normalize(case_);
  }

  Verdict run(int failing, double waited_s) {
    CaseRunner runner(LaneKind::kSim, Subject(), std::make_unique<LateLane>(failing, waited_s));
    runner.set_on_rerun([this] { ++begun_again_; });
    Verdict verdict = runner.run(case_);
    reruns_ = runner.reruns();
    return verdict;
  }

  Case case_;
  int begun_again_ = 0;
  std::uint32_t reruns_ = 0;
};

TEST_F(LateRanks, AreGivenTimeOnceMore) {
  const Verdict verdict = run(1, 0.3);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  EXPECT_EQ(reruns_, 1u);
  EXPECT_EQ(begun_again_, 1);
}

TEST_F(LateRanks, ThatFailEachTimeCountAsFailing) {
  const Verdict verdict = run(3, 0.3);
  EXPECT_EQ(verdict.failing, Failing::kDeadlock);
  EXPECT_NE(verdict.message.find("the case ran 3 times, and failed each time"), std::string::npos)
      << verdict.message;
  EXPECT_EQ(begun_again_, 2);
}

TEST_F(LateRanks, ThatAlwaysWaitLongerThanTheirTimeoutProveNothing) {
  const Verdict verdict = run(3, 1.5);
  EXPECT_EQ(verdict.failing, Failing::kInconclusive);
  EXPECT_NE(verdict.message.find("with a timeout of 1.0 s"), std::string::npos) << verdict.message;
}

TEST_F(LateRanks, AreNotThoseThatHardlyWaited) {
  EXPECT_EQ(run(1, 0.1).failing, Failing::kDeadlock);
  EXPECT_EQ(reruns_, 0u);
  EXPECT_EQ(begun_again_, 0);
}

// The comparison stops before step 2, in which both subjects must raise. Once, the second join that
// begins with step 3 then led the ranks over the end of the program.
TEST(TwoSubjects, AreComparedUpToAnErrorBeforeASecondJoin) {
  Case c;
  c.program.world = 1;
  c.program.options.join = reference::Join::kByAll;
  c.program.steps.resize(4);
  normalize(c);
  c.program.rejoin_step = 3;
  reference::Forward& forward = c.program.steps[2].variants[0].forwards[0];
  forward.nodes.resize(2);
  forward.nodes[0].kind = reference::Node::Kind::kCheckpoint;
  forward.nodes[0].body.resize(1);
  forward.nodes[1].inputs.resize(1);
  normalize(c);
  ASSERT_EQ(c.program.rejoin_step, 3u);
  Subject subject;
  subject.against = std::make_shared<Subject>();
  CaseRunner runner(LaneKind::kSim, subject);
  const Verdict verdict = runner.run(c);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  EXPECT_EQ(runner.compared_steps(), 2u);
}

}  // namespace
}  // namespace lockstep::properties
