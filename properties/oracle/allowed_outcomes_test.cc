// Claim: a set of allowed outcomes has exactly the errors that its requirements describe, counts
// the least of what is unspecified about an error, and can be read by a person. outcomes.h gives
// the sets that follow from a program and from the faults that fired.
// A failure means that the oracle on errors accepts something for another reason than it says.
#include "properties/oracle/allowed_outcomes.h"

#include <gtest/gtest.h>

#include "properties/case/hook_error.h"
#include "properties/oracle/outcomes.h"
#include "properties/oracle/test_observed.h"

namespace lockstep::properties {
namespace {

TEST(Among, HasTheNumbersThatItIsMadeOf) {
  const Among ranks = Among::of({kNone, 0, 63, 64, 125});
  for (const std::int64_t rank : {-1, 0, 63, 64, 125}) EXPECT_TRUE(ranks.has(rank)) << rank;
  for (const std::int64_t rank : {1, 62, 65, 124, 126, 1000, -2}) EXPECT_FALSE(ranks.has(rank));
  for (const std::int64_t rank : {1, 62, 65, 124, 126, 1000, -2}) EXPECT_TRUE((~ranks).has(rank));
  EXPECT_FALSE((~ranks).has(kNone));
}

TEST(Among, IsASet) {
  const Among one = Among::of({1, 2});
  const Among other = Among::of({2, 100});
  EXPECT_EQ(one & other, Among::of({2}));
  EXPECT_EQ(one | other, Among::of({1, 2, 100}));
  EXPECT_TRUE((one & ~one).is_empty());
  EXPECT_EQ(one | ~one, Among());
  EXPECT_TRUE(Among().is_all());
}

class AllowedOutcomesTest : public ::testing::Test {
 protected:
  AllowedOutcomesTest() {
    failure_.code = Code::kTimeout;
    failure_.rank = 2;
    failure_.reported_by = 0;
    failure_.pass = 1;
  }
  Membership membership() const {
    return membership_of(raised_in_join(program_, failure_), allowed_);
  }
  Requirements& allow(const char* because) {
    allowed_.errors.push_back({.because = because});
    return allowed_.errors.back().requirements;
  }

  reference::Program program_;
  Failure failure_;
  AllowedOutcomes allowed_;
};

TEST_F(AllowedOutcomesTest, ASetWithoutErrorsHasNone) {
  const Membership found = membership();
  EXPECT_FALSE(found.is_member);
  EXPECT_EQ(found.closest, nullptr);
  EXPECT_EQ(allowed_.to_string(), "success");
}

TEST_F(AllowedOutcomesTest, AnErrorMeetsEveryRequirementByOneOfItsPatterns) {
  Requirements& it = allow("a test");
  it.allow(Must::kCode, {.codes = Among::of({Code::kAborted})});
  it.allow(Must::kCode, {.codes = Among::of({Code::kTimeout})});
  it.allow(Must::kCause, {.causes = Among::of({2})});
  EXPECT_TRUE(membership().is_member);
  failure_.code = Code::kTransport;
  EXPECT_FALSE(membership().is_member);
  EXPECT_EQ(membership().unmet, Must::kCode);
  failure_.code = Code::kAborted;
  EXPECT_TRUE(membership().is_member);
  failure_.rank = 1;
  EXPECT_FALSE(membership().is_member);
  EXPECT_EQ(membership().unmet, Must::kCause);
}

TEST_F(AllowedOutcomesTest, EveryFieldOfAPatternCounts) {
  failure_.suspect = 3;
  const RaisedError error = raised_in_join(program_, failure_);
  EXPECT_TRUE(ErrorPattern{}.matches(error));
  const std::vector<std::pair<ErrorPattern, ErrorPattern>> right_and_wrong = {
      {{.codes = Among::of({Code::kTimeout})}, {.codes = Among::of({Code::kAborted})}},
      {{.causes = Among::of({2})}, {.causes = Among::of({3})}},
      {{.suspects = Among::of({3})}, {.suspects = Among::of({2})}},
      {{.reporters = Among::of({0})}, {.reporters = Among::of({1})}},
      {{.passes = Among::of({1})}, {.passes = Among::of({0})}},
      {{.calls = Among::of({kNone})}, {.calls = Among::of({0})}},
      {{.without = kIsOwn}, {.with = kIsOwn}},
  };
  for (const auto& [right, wrong] : right_and_wrong) {
    EXPECT_TRUE(right.matches(error)) << right.to_string();
    EXPECT_FALSE(wrong.matches(error)) << wrong.to_string();
  }
}

TEST_F(AllowedOutcomesTest, NamesAreExactlyThoseOfAListOrOneOfThem) {
  const std::vector<std::uint32_t> list = {3, 5};
  const ErrorPattern all = {.names = Names::kExactly, .parameters = &list};
  const ErrorPattern one = {.names = Names::kOneOf, .parameters = &list};
  const auto matches = [&](const ErrorPattern& pattern, std::vector<std::string> named) {
    failure_.parameters = std::move(named);
    return pattern.matches(raised_in_join(program_, failure_));
  };
  EXPECT_TRUE(matches(all, {"p5", "p3"}));
  EXPECT_FALSE(matches(all, {"p3"}));
  EXPECT_FALSE(matches(all, {"p3", "p5", "p7"}));
  EXPECT_FALSE(matches(all, {}));
  EXPECT_TRUE(matches(one, {"p5"}));
  EXPECT_FALSE(matches(one, {"p3", "p5"}));
  EXPECT_FALSE(matches(one, {"p4"}));
}

TEST_F(AllowedOutcomesTest, OfTheGroupABucketIsNamedWithAllItsParameters) {
  program_.parameters.resize(3);
  std::vector<reference::ExpectedBucket> layout(2);
  layout[0].parameters = {2, 1};
  layout[1].parameters = {0};
  const ErrorPattern pattern = {.layout = &layout};
  const auto matches = [&](int bucket, std::vector<std::string> named) {
    failure_.bucket = bucket;
    failure_.parameters = std::move(named);
    return pattern.matches(raised_in_join(program_, failure_));
  };
  EXPECT_TRUE(matches(0, {"p2", "p1"}));
  EXPECT_FALSE(matches(0, {"p2"}));
  EXPECT_FALSE(matches(1, {"p2", "p1"}));
  EXPECT_FALSE(matches(2, {"p0"}));
  EXPECT_FALSE(matches(kNone, {"p0"}));
  failure_.code = Code::kReadyTwice;  // an own error names a parameter of the bucket first
  EXPECT_TRUE(matches(0, {"p1"}));
  EXPECT_FALSE(matches(1, {"p1"}));
}

TEST_F(AllowedOutcomesTest, WhatIsLeftOpenIsTheLeastOfAllWays) {
  allow("a guess").allow(Must::kCode, {.open = Reasons(Unspecified::kOtherReducer)});
  Requirements& sure = allow("a fault");
  sure.allow(Must::kCode, {.open = Reasons(Unspecified::kCode)});
  sure.allow(Must::kCode, {.codes = Among::of({Code::kTimeout})});
  EXPECT_EQ(membership().open, Reasons());
  failure_.code = Code::kAborted;
  EXPECT_EQ(membership().open, Reasons(Unspecified::kOtherReducer));
  sure.allow(Must::kCause, {.causes = Among::of({1})});
  failure_.code = Code::kTimeout;
  EXPECT_EQ(membership().open, Reasons(Unspecified::kOtherReducer));
}

TEST_F(AllowedOutcomesTest, WhatIsRequiredOfAllErrorsIsRequiredOfEach) {
  allow("a guess");
  EXPECT_TRUE(membership().is_member);
  allowed_.of_all_errors.allow(Must::kForm, {.with = kNamesCollective});
  EXPECT_FALSE(membership().is_member);
  EXPECT_EQ(membership().closest, &allowed_.of_all_errors);
  failure_.collective = "all_reduce";
  EXPECT_TRUE(membership().is_member);
}

TEST_F(AllowedOutcomesTest, ReadsAsASentence) {
  allowed_.must_fail = "a test says so";
  Requirements& it = allow("a test");
  it.allow(Must::kCode,
           {.codes = Among::of({Code::kTimeout, Code::kAborted}), .open = Unspecified::kCode});
  it.allow(Must::kCause, {.causes = Among::of({kNone, 2}), .suspects = ~Among::of({0})});
  it.allow(Must::kCause, {.passes = Among::of({1}), .without = kIsOwn});
  EXPECT_EQ(allowed_.to_string(),
            "no success\n  or an error, as a test:\n"
            "    code: 'timeout' or 'aborted' (unspecified: the code of a fault's error)\n"
            "    cause: of no rank or rank 2, suspecting any but rank 0; or in pass 1, reported by "
            "another rank than its cause");
}

TEST_F(AllowedOutcomesTest, AVerdictListsWhatIsRequiredOfTheCodeOfTheError) {
  Requirements of;
  of.allow(Must::kState, {.codes = Among::of({Code::kTimeout}), .with = kRefusesWork});
  of.allow(Must::kState, {.codes = Among::of({Code::kIncomplete}), .without = kRefusesWork});
  of.allow(Must::kState, {.calls = ~Among(), .with = kIsOwn});  // there is no such error
  EXPECT_EQ(of.to_string(Must::kState, Code::kTimeout), "'timeout', the reducer then refuses work");
  EXPECT_EQ(of.to_string(Must::kState, Code::kAborted), of.to_string(Must::kState));
}

// Two ranks with two parameters; each rank has its own pass.
class OutcomesTest : public ObservedCaseTest {
 protected:
  OutcomesTest() : ObservedCaseTest(2) {}

  AllowedOutcomes outcomes(std::size_t rank) const {
    Outcomes of(case_, expectation_, observation_);
    of.set_rank(rank);
    return of.of_step(0);
  }
  Failure failure_of(std::size_t rank) const {
    return observation_.ranks[rank].steps[0].status.failure();
  }
  Membership membership(std::size_t rank, const Failure& failure) const {
    ObservedStep step = observation_.ranks[rank].steps[0];
    step.status = failure;
    return membership_of(raised_in(case_.program, step), outcomes(rank));
  }
};

TEST_F(OutcomesTest, WithoutErrorsAndFaultsEveryRankSucceeds) {
  for (const std::size_t rank : {0u, 1u}) EXPECT_EQ(outcomes(rank).to_string(), "success");
}

TEST_F(OutcomesTest, AMissingParameterAllowsOneErrorOnBothRanks) {
  case_.program.steps[0].variants[1].forwards[0].nodes.resize(1);
  observe();
  const AllowedOutcomes own = outcomes(1);
  EXPECT_FALSE(own.may_succeed());
  ASSERT_EQ(own.errors.size(), 1u);
  EXPECT_EQ(own.errors[0].requirements.to_string(Must::kCode), "'incomplete pass'");
  EXPECT_EQ(own.errors[0].requirements.to_string(Must::kCause), "of rank 1");
  EXPECT_EQ(own.errors[0].requirements.to_string(Must::kCall), "in backward call 0");
  EXPECT_EQ(own.errors[0].requirements.to_string(Must::kParameters), "naming p1");
  EXPECT_EQ(outcomes(0).errors[0].requirements.to_string(Must::kCall), "");
  for (const std::size_t rank : {0u, 1u}) {
    Failure failure = failure_of(rank);
    EXPECT_TRUE(membership(rank, failure).is_member);
    failure.parameters = {"p0"};
    EXPECT_EQ(membership(rank, failure).unmet, Must::kParameters);
    failure.parameters = {"p1"};
    failure.rank = 0;
    EXPECT_FALSE(membership(rank, failure).is_member);
    failure.rank = 1;
    failure.pass = 1;
    EXPECT_EQ(membership(rank, failure).unmet, Must::kPass);
  }
}

TEST_F(OutcomesTest, F2OnlyTheRankThatErrsIsBoundToACall) {
  case_.program.steps[0].variants[1].forwards[0].nodes.resize(1);
  observe();
  for (const std::size_t rank : {0u, 1u}) {
    ObservedStep& step = observation_.ranks[rank].steps[0];
    ++step.failed_call;
    EXPECT_EQ(membership(rank, failure_of(rank)).is_member, rank == 0);
  }
  EXPECT_EQ(membership(1, failure_of(1)).unmet, Must::kCall);
}

TEST_F(OutcomesTest, P14WhatABackwardRaisesComesBeforeAnyCollective) {
  case_.program.options.launch = reference::Launch::kAfterBackward;
  observe();
  reference::ExpectedStep& expected = expectation_.steps[0];
  expected.any_error = true;
  expected.ranks[1].outcome = reference::Outcome::kOwnError;
  expected.ranks[1].error = reference::Error::kReadyTwice;
  expected.ranks[1].parameters = {0};
  ObservedStep& step = observation_.ranks[1].steps[0];
  step.failed_call = 0;
  Failure failure;
  failure.code = Code::kReadyTwice;
  failure.rank = failure.reported_by = 1;
  failure.pass = 0;
  failure.bucket = 0;
  failure.parameters = {"p0"};
  EXPECT_TRUE(membership(1, failure).is_member);
  step.launched = step.poisoned = true;
  EXPECT_EQ(membership(1, failure).unmet, Must::kWait);
  failure.code = Code::kIncomplete;  // what is found when backward has ended is another matter
  EXPECT_NE(membership(1, failure).unmet, Must::kWait);
  case_.program.options.launch = reference::Launch::kOverlapped;
  failure.code = Code::kReadyTwice;
  EXPECT_TRUE(membership(1, failure).is_member);
}

TEST_F(OutcomesTest, F2AnErrorOfAFaultNamesSomeRank) {
  case_.faults.faults = {{faults::Kind::kLinkReset, 1, 0, 0, 0}};
  observe();
  Failure failure = failure_of(0);
  EXPECT_TRUE(membership(0, failure).is_member);
  failure.suspect = kNone;
  failure.rank = 0;
  EXPECT_TRUE(membership(0, failure).is_member);
  failure.rank = kNone;
  EXPECT_EQ(membership(0, failure).unmet, Must::kRank);
}

TEST_F(OutcomesTest, AFaultThatFiredAllowsItsErrors) {
  case_.faults.faults = {{faults::Kind::kRankExit, 1, 0, 0, 0}};
  observe();
  EXPECT_TRUE(outcomes(1).is_anything);
  EXPECT_EQ(outcomes(1).open, Reasons(Unspecified::kLastStepOfExited));
  const AllowedOutcomes allowed = outcomes(0);
  ASSERT_EQ(allowed.errors.size(), 1u);
  EXPECT_EQ(allowed.errors[0].cause(), "rank 1 is at fault (rank_exit)");
  const Membership found = membership(0, failure_of(0));
  EXPECT_TRUE(found.is_member);
  EXPECT_EQ(found.open, Reasons(Unspecified::kCode));
  Failure failure = failure_of(0);
  failure.code = Code::kIncomplete;
  EXPECT_FALSE(membership(0, failure).is_member);
  observation_.fired = {};
  EXPECT_EQ(outcomes(0).to_string(), "success");
  EXPECT_FALSE(membership(0, failure_of(0)).is_member);
}

// The first request in this step is for the gradient of a node.
TEST_F(OutcomesTest, F1RefusedMemoryPoisonsInAForwardAndNamesTheRank) {
  case_.faults.faults = {{faults::Kind::kMemoryRefused, 0, 0, 0, 0}};
  observe();
  ObservedStep& step = observation_.ranks[0].steps[0];
  const Failure refused = failure_of(0);
  ASSERT_EQ(refused.code, Code::kOutOfMemory);
  EXPECT_FALSE(step.poisoned) << "nothing was launched";
  EXPECT_TRUE(membership(0, refused).is_member);
  step.failed_call = -1;
  EXPECT_EQ(membership(0, refused).unmet, Must::kState);
  step.poisoned = true;
  EXPECT_TRUE(membership(0, refused).is_member);
  Failure blames_a_peer = refused;
  blames_a_peer.rank = 1;
  EXPECT_FALSE(membership(0, blames_a_peer).is_member);
}

// The user of rank 1 ends its group before the step, with a code that groups do not use.
TEST_F(OutcomesTest, F5TheAbortOfAUserIsItsRanksForCertainAndPoisons) {
  faults::Fault fault{faults::Kind::kUserAbort, 1, 0, 0, 0};
  fault.at = faults::kAbortCalls;
  ASSERT_EQ(user_abort_error(fault), Code::kUserFailure);
  case_.faults.faults = {fault};
  observe();
  for (const std::size_t rank : {0u, 1u}) {
    const Failure seen = failure_of(rank);
    EXPECT_TRUE(membership(rank, seen).is_member) << rank;
    Failure failure = seen;
    failure.definite = false;
    EXPECT_EQ(membership(rank, failure).unmet, Must::kAbort) << rank;
    failure = seen;
    failure.detail = "the group was aborted";
    EXPECT_EQ(membership(rank, failure).unmet, Must::kAbort) << rank;
    failure = seen;
    failure.code = Code::kTransport;
    EXPECT_EQ(membership(rank, failure).unmet, Must::kAbort) << rank;
    // A peer may have what Gloo's group passed on alone: the user's text, in an error of its own.
    failure.code = Code::kAborted;
    failure.definite = false;
    for (const bool is_gloo : {true, false}) {
      observation_.closes_silently = !is_gloo;
      EXPECT_EQ(membership(rank, failure).is_member, is_gloo && rank == 0) << rank;
    }
    failure.detail = "the group was aborted";
    observation_.closes_silently = false;
    EXPECT_FALSE(membership(rank, failure).is_member) << rank;
    observation_.closes_silently = true;
    failure = seen;
    failure.rank = 0;
    EXPECT_FALSE(membership(rank, failure).is_member) << rank;
    // The user may abort when its own pass has ended, and its peer still waits for the last sum.
    failure = seen;
    failure.pass = 1;
    EXPECT_EQ(membership(rank, failure).is_member, rank == 0) << rank;
    failure.pass = 2;
    EXPECT_EQ(membership(rank, failure).unmet, Must::kPass) << rank;
    observation_.ranks[rank].steps[0].poisoned = false;
    EXPECT_EQ(membership(rank, seen).unmet, Must::kState) << rank;
  }
  Failure twice = failure_of(1);
  observation_.ranks[1].steps[0].poisoned = true;
  twice.later = {"rank 1 saw: user failure"};
  EXPECT_EQ(membership(1, twice).unmet, Must::kAbort);
  // The second group of a reducer may end before the user ends it.
  case_.program.options.own_group = true;
  EXPECT_EQ(membership(1, twice).unmet, Must::kAbort) << "gradients are reduced in the backward";
  case_.program.options.launch = reference::Launch::kAfterBackward;
  EXPECT_TRUE(membership(1, twice).is_member);
}

}  // namespace
}  // namespace lockstep::properties
