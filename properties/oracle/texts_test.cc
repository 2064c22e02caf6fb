// The oracle on texts: what it says of errors that a person would be misled by, and of good ones.
#include <gtest/gtest.h>

#include "properties/case/abort_text.h"
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

TEST_F(TextsTest, NoErrorNamesARankOrANumberThatCannotBe) {
  error_.code = Code::kTransport;
  for (int Failure::*field : {&Failure::rank, &Failure::suspect, &Failure::bucket}) {
    Failure wrong = error_;
    wrong.*field = -7;
    EXPECT_NE(said_of(wrong).find("has numbers that no error can have"), std::string::npos);
  }
  error_.rank = error_.suspect = 100;
  EXPECT_TRUE(is_wrong("has numbers that no error can have"));
}

TEST_F(TextsTest, WhoAbortedIsTheRankAndTheSuspectOfTheText) {
  Failure failure;
  failure.code = Code::kAborted;
  failure.rank = 1;
  failure.suspect = 2;
  failure.detail =
      "rank 1 aborted the group: peer lost, rank 2, suspected peer 2: rank 2 is gone, suspected "
      "peer 7";
  EXPECT_EQ(flaw_of_abort(failure), "");
  failure.suspect = 1;
  EXPECT_NE(flaw_of_abort(failure).find("another suspect than its text, which is rank 2"),
            std::string::npos);
  failure.detail = "rank 1 aborted the group: user failure, rank 1: a node threw";
  EXPECT_EQ(flaw_of_abort(failure), "");
  failure.rank = 0;
  EXPECT_NE(flaw_of_abort(failure).find("another rank than its text, which is rank 1"),
            std::string::npos);
  failure.detail = "the user has given up";
  EXPECT_EQ(flaw_of_abort(failure), "");
}

}  // namespace
}  // namespace lockstep::properties
