// The oracle on texts: what it says of errors that a person would be misled by, and of good ones.
#include <gtest/gtest.h>

#include "properties/oracle/oracles.h"
#include "properties/oracle/test_observed.h"

namespace lockstep::properties {
namespace {

class TextsTest : public ObservedCaseTest {
 protected:
  TextsTest() : ObservedCaseTest(1) {
    error_.rank = error_.reported_by = 0;
    error_.pass = 0;
    error_.detail = "it says what happened";
  }

  // Makes this the error of rank 0. Returns what the oracle says of it, or an empty text.
  std::string said_of(const Failure& failure) {
    observation_.ranks[0].steps[0].status = failure;
    return judge_texts(case_, expectation_, observation_).message;
  }
  bool is_wrong(const std::string& what) { return said_of(error_).find(what) != std::string::npos; }

  Failure error_;
};

TEST_F(TextsTest, ATextThatBeginsInsideOfASentenceIsWrong) {
  error_.code = Code::kTransport;
  EXPECT_EQ(said_of(error_), "");
  error_.detail = "; it says what happened";
  EXPECT_TRUE(is_wrong("begins inside of a sentence"));
}

TEST_F(TextsTest, WhatARankKnowsByItselfIsCertain) {
  for (const Code code : {Code::kUserFailure, Code::kOutOfMemory, Code::kInvalidArgument}) {
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

}  // namespace
}  // namespace lockstep::properties
