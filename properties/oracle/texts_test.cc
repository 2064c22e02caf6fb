// The oracle on texts: what it says of errors that a person would be misled by, and of good ones.
#include <gtest/gtest.h>

#include "properties/oracle/oracles.h"
#include "properties/run/case_runner.h"

namespace lockstep::properties {
namespace {

class TextsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    reference::Program& program = case_.program;
    program.parameters.resize(1);
    program.parameters[0].sizes = {3};
    reference::Node node;
    node.parameter = 0;
    node.inputs.resize(1);
    reference::Forward forward;
    forward.nodes = {node};
    forward.outputs.resize(1);
    reference::RankPass pass;
    pass.forwards = {forward};
    reference::Step step;
    step.variants = {pass, pass};
    program.steps = {step};
    reference::normalize(program);
    CaseRunner runner(LaneKind::kSim, Subject{});
    const Verdict found = runner.run(case_);
    ASSERT_TRUE(found.ok()) << found.message;
    observation_ = runner.observation();
    expectation_ = reference::run(program, reference::Contract::lockstep(), observation_.recoveries,
                                  observation_.ready_orders());
    error_.rank = error_.reported_by = 0;
    error_.pass = 0;
    error_.detail = "it says what happened";
  }

  // What the oracle says of the error as that of rank 0; empty if it finds nothing wrong.
  std::string said_of(const Failure& failure) {
    observation_.ranks[0].steps[0].status = failure;
    return judge_texts(case_, expectation_, observation_).message;
  }
  bool is_wrong(const std::string& what) { return said_of(error_).find(what) != std::string::npos; }

  Case case_;
  Observation observation_;
  reference::Expectation expectation_;
  Failure error_;
};

TEST_F(TextsTest, ATextThatBeginsInsideOfASentenceIsWrong) {
  error_.code = Code::kTransport;
  EXPECT_EQ(said_of(error_), "");
  error_.detail = "; it says what happened";
  EXPECT_TRUE(is_wrong("begins inside of a sentence"));
}

TEST_F(TextsTest, AUsersFailureAndRefusedMemoryAreCertain) {
  for (const Code code : {Code::kUserFailure, Code::kOutOfMemory}) {
    error_.code = code;
    error_.definite = true;
    EXPECT_EQ(said_of(error_), "") << name_of(code);
    error_.definite = false;
    EXPECT_TRUE(is_wrong("does not say that its cause is known")) << name_of(code);
  }
}

TEST_F(TextsTest, ATimeoutIsNotCertain) {
  error_.code = Code::kTimeout;
  error_.detail = "not done within 5 ms; all ranks have entered it";
  EXPECT_EQ(said_of(error_), "");
  error_.definite = true;
  EXPECT_TRUE(is_wrong("is certain of what silence says"));
}

TEST_F(TextsTest, ANumberIsThatOfACollective) {
  error_.code = Code::kMismatch;
  error_.definite = true;
  EXPECT_EQ(said_of(error_), "");
  error_.sequence = 3;
  EXPECT_TRUE(is_wrong("does not say which one it is"));
  error_.collective = "all_reduce";
  EXPECT_EQ(said_of(error_), "");
}

TEST_F(TextsTest, OfTwoRanksTheOtherOneEndedTheGroup) {
  error_.code = Code::kPeerLost;
  error_.rank = kNone;
  error_.detail = "a peer has ended the group, and its report cannot be read";
  error_.suspect = 1;
  observation_.closes_silently = false;
  EXPECT_EQ(said_of(error_), "");
  error_.suspect = kNone;
  EXPECT_TRUE(is_wrong("does not suspect the only peer"));
}

}  // namespace
}  // namespace lockstep::properties
