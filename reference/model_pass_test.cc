// The model against CONTRACT.md, passes, errors and recovery (clauses P, B6 and F4), on programs
// small enough to compute by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/outcome.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;

TEST(ModelP1, SeveralForwardsBeforeOneBackwardAreOnePass) {
  RankPass pass = uses({0});
  pass.forwards.push_back(uses({1}).forwards[0]);
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic}) {
    const Case t = Case(2, mode, 2).step({pass}).run();
    EXPECT_EQ(t.value(0, 0, 0), t.c(0, 0, 0) * 0.5F + t.c(0, 1, 0) * 0.5F);
    EXPECT_EQ(t.value(0, 0, 1), t.c(0, 0, 1) * 0.5F + t.c(0, 1, 1) * 0.5F);
  }
}

TEST(ModelP1, AForwardWithoutSyncOrGradientsArmsNothing) {
  const Case t = Case(2, Mode::kPlain, 1)
                     .step({uses({0})}, PassKind::kNoGrad)
                     .step({uses({0})}, PassKind::kNoSync)
                     .run();
  EXPECT_FALSE(t.gradient(0, 0, 0).defined);
  EXPECT_TRUE(t.expectation.steps[0].collectives.empty());
  EXPECT_TRUE(t.expectation.steps[1].collectives.empty());
  EXPECT_EQ(t.value(1, 0, 0), t.c(1, 0, 0));
  EXPECT_EQ(t.value(1, 1, 0), t.c(1, 1, 0));
}

TEST(ModelP2, ADiscardedForwardStartsNothingAndTheNextPassIsNormal) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic}) {
    const Case t = Case(2, mode, 1)
                       .step({uses({0})})
                       .step({discarded(uses({0}))})
                       .step({uses({0})}, PassKind::kSynced, ZeroGrad::kUndefine)
                       .run();
    EXPECT_TRUE(t.expectation.steps[1].collectives.empty());
    EXPECT_TRUE(t.gradient(1, 0, 0).untouched);
    EXPECT_EQ(t.bits(1, 0, 0), t.bits(0, 0, 0));
    EXPECT_EQ(t.value(2, 0, 0), t.c(2, 0, 0) * 0.5F + t.c(2, 1, 0) * 0.5F);
  }
}

TEST(ModelP2, ADiscardedForwardBesideAKeptOneAddsNothing) {
  RankPass pass = discarded(uses({1}));
  pass.forwards.push_back(uses({0}).forwards[0]);
  const Case plain = Case(2, Mode::kPlain, 2).step({pass}).run();
  EXPECT_EQ(plain.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(plain.at(0, 0).parameters, (Indices{1}));
  const Case dynamic = Case(2, Mode::kDynamic, 2).step({pass}).run();
  EXPECT_EQ(dynamic.at(0, 0).outcome, Outcome::kSuccess);
  EXPECT_FALSE(dynamic.gradient(0, 0, 1).defined);
}

TEST(ModelP3, EveryBucketIsReducedOnceInLaunchOrderThenTheUsageMap) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic}) {
    Case t(2, mode, 4);
    t.program.options.first_bucket_bytes = t.program.options.bucket_bytes = 0;
    t.program.parameters[1].sizes = {7};
    t.program.parameters[1].dtype = DType::kFloat16;
    t.program.parameters[2].frozen = true;
    t.program.parameters[3].sizes = {5};
    t.step({uses({0, 1, 3})}).run();
    const auto& collectives = t.expectation.steps[0].collectives;
    ASSERT_EQ(collectives.size(), mode == Mode::kPlain ? 3U : 4U);
    const std::uint64_t counts[] = {5, 7, 1};
    for (std::uint32_t b = 0; b < 3; ++b) {
      EXPECT_EQ(collectives[b].op, ExpectedCollective::Op::kAllReduceBucket);
      EXPECT_EQ(collectives[b].bucket, b);
      EXPECT_EQ(collectives[b].count, counts[b]);
    }
    EXPECT_EQ(collectives[1].dtype, DType::kFloat16);
    if (mode == Mode::kDynamic) {
      EXPECT_EQ(collectives[3].op, ExpectedCollective::Op::kAllReduceUsage);
      EXPECT_EQ(collectives[3].count, 3U);
    }
  }
}

TEST(ModelP5, MissingParametersAreNamedByTheLastBackwardAndPeersCannotFinish) {
  const Case t = Case(3, Mode::kPlain, 4).step({uses({0, 1, 2, 3}), uses({2}), uses({1})}).run();
  EXPECT_TRUE(t.expectation.steps[0].any_error);
  EXPECT_EQ(t.at(0, 0).outcome, Outcome::kPeerError);
  EXPECT_EQ(t.at(0, 0).error, Error::kNone);
  EXPECT_EQ(t.at(0, 1).outcome, Outcome::kOwnError);
  EXPECT_EQ(t.at(0, 1).error, Error::kIncomplete);
  EXPECT_EQ(t.at(0, 1).error_call, 0U);
  EXPECT_EQ(t.at(0, 1).parameters, (Indices{0, 1, 3}));
  EXPECT_EQ(t.at(0, 2).parameters, (Indices{0, 2, 3}));
}

TEST(ModelP5, AnOutputThatIsLeftKeepsThePassOpenUntilCheckComplete) {
  const RankPass two = graph({use(0, 1), use(1, 2)}, {{0, 0}, {1, 0}});
  const Case open = Case(2, Mode::kPlain, 2).step({with_backwards(two, {{{0}}}, true)}).run();
  EXPECT_EQ(open.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(open.at(0, 0).error_call, 1U);  // the number of calls
  EXPECT_EQ(open.at(0, 0).parameters, (Indices{0}));
  const Case dropped = Case(2, Mode::kPlain, 2).step({with_backwards(two, {{{0}}})}).run();
  EXPECT_EQ(dropped.at(0, 0).error_call, 0U);
  // Used up by the last call, both of them: nothing is left although they were kept.
  const RankPass again =
      with_backwards(graph({use(1, 2), use(1, 3)}, {{0, 0}, {1, 0}}), {{}}, true);
  const Case used_up = Case(2, Mode::kPlain, 2).step({again}).run();
  EXPECT_EQ(used_up.at(0, 0).error_call, 0U);
}

// Of three parameters the last is used by nobody: outputs that lead elsewhere do not wait for it.
TEST(ModelP5, AnOutputThatLeadsToNothingMissingKeepsNoPassOpen) {
  RankPass pass = graph({use(0, 1), use(1, 2)}, {{0, 0}, {1, 0}});
  pass.forwards[0].constants = 2;
  const Case plain = Case(2, Mode::kPlain, 3).step({with_backwards(pass, {{{0}}, {{1}}})}).run();
  EXPECT_EQ(plain.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(plain.at(0, 0).error_call, 1U);  // until then the other output leads to parameter 0
  const RankPass both = with_backwards(pass, {{}}, true);  // leaves the constants
  const Case constants = Case(2, Mode::kPlain, 3).step({both}).run();
  EXPECT_EQ(constants.at(0, 0).error_call, 0U);
  EXPECT_EQ(constants.at(0, 0).parameters, (Indices{2}));
  // The second output is a metric of what the first one is made of.
  const RankPass chain = graph({use(0, 1), use(1, 2, {{0, 0}})}, {{0, 0}, {1, 0}});
  const Case metric = Case(2, Mode::kPlain, 3).step({with_backwards(chain, {{{0}}}, true)}).run();
  EXPECT_EQ(metric.at(0, 0).error_call, 0U);
}

TEST(ModelP5, ACheckpointMayLeadAnywhere) {
  const RankPass pass = graph({use(0, 1), checkpoint({use(1, 2)})}, {{0, 0}, {1, 0}});
  const Case disjoint = Case(2, Mode::kPlain, 2).step({with_backwards(pass, {{{1}}, {{0}}})}).run();
  EXPECT_EQ(disjoint.at(0, 0).outcome, Outcome::kSuccess);
  const Case left = Case(2, Mode::kPlain, 2).step({with_backwards(pass, {{{1}}}, true)}).run();
  EXPECT_EQ(left.at(0, 0).error_call, 1U);  // by check_complete()
}

TEST(ModelP5, InDynamicModeWhatTheFirstBackwardDoesNotReachIsUnused) {
  const RankPass two = graph({use(0, 1), use(1, 2)}, {{0, 0}, {1, 0}});
  const Case t = Case(2, Mode::kDynamic, 2).step({with_backwards(two, {{{0}}}, true)}).run();
  EXPECT_EQ(t.at(0, 0).outcome, Outcome::kSuccess);
  EXPECT_EQ(t.value(0, 0, 1), t.c(0, 0, 1, 2) * 0.5F + t.c(0, 1, 1, 2) * 0.5F);
  EXPECT_FALSE(t.gradient(0, 0, 0).defined);
}

TEST(ModelP5, ABucketWithoutElementsDoesNotSurelyStopThePeers) {
  Case t(2, Mode::kPlain, 2);
  t.program.options.first_bucket_bytes = t.program.options.bucket_bytes = 0;
  t.program.parameters[0].sizes = {0};  // launched last
  t.step({uses({0, 1}), uses({1})}).run();
  EXPECT_EQ(t.at(0, 0).outcome, Outcome::kSuccessOrPeerError);
  EXPECT_EQ(t.at(0, 1).error, Error::kIncomplete);
  EXPECT_EQ(t.value(0, 0, 1), t.c(0, 0, 1) * 0.5F + t.c(0, 1, 1) * 0.5F);
}

// Parameter 0 in both calls, 1 in the first, 2 in the second: at the error every bucket may be out.
TEST(ModelP6, AHookThatFiresInTwoCallsOfOnePassIsReadyTwice) {
  const RankPass twice = with_backwards(
      graph({use(0, 1), use(1, 2, {{}}), use(2, 3, {{1, 0}})}, {{1, 0}, {0, 0}}), {{{0}}, {{1}}});
  const RankPass fine = graph({use(0, 1), use(1, 2, {{}}), use(2, 3, {{}})});
  const Case t = Case(2, Mode::kPlain, 3).step({twice, fine}).run();
  EXPECT_EQ(t.at(0, 0).outcome, Outcome::kOwnError);
  EXPECT_EQ(t.at(0, 0).error, Error::kReadyTwice);
  EXPECT_EQ(t.at(0, 0).error_call, 1U);
  EXPECT_EQ(t.at(0, 0).parameters, (Indices{0}));
  EXPECT_EQ(t.at(0, 1).outcome, Outcome::kSuccessOrPeerError);
  // Its slot was filled by the first call: known, and without the second call's tensor.
  EXPECT_TRUE(t.gradient(0, 1, 0).known);
  EXPECT_EQ(t.value(0, 1, 0), t.c(0, 0, 0, 1) * 0.5F + t.c(0, 1, 0, 1) * 0.5F);
  EXPECT_EQ(t.value(0, 1, 2), t.c(0, 0, 2, 3) * 0.5F + t.c(0, 1, 2, 3) * 0.5F);
}

// Another output leads to parameter 1 until then.
TEST(ModelP6, AMissingParameterStopsThePeersOfARankThatIsReadyTwice) {
  const RankPass twice =
      with_backwards(graph({use(0, 1), use(1, 2)}, {{1, 0}, {0, 0}}), {{{0}}, {{0}}});
  const Case t = Case(2, Mode::kPlain, 2).step({twice, uses({0, 1})}).run();
  EXPECT_EQ(t.at(0, 0).error, Error::kReadyTwice);
  EXPECT_EQ(t.at(0, 0).error_call, 1U);
  EXPECT_EQ(t.at(0, 1).outcome, Outcome::kPeerError);
}

TEST(ModelP6, InAndOutsideACheckpointIsReadyTwice) {
  const RankPass both = graph({use(0, 1), checkpoint({use(0, 8)}, {{}}), use(1, 2, {{}})});
  const Case t = Case(2, Mode::kPlain, 2).step({both, uses({0, 1})}).run();
  EXPECT_EQ(t.at(0, 0).error, Error::kReadyTwice);
  EXPECT_EQ(t.at(0, 0).error_call, 0U);
  EXPECT_EQ(t.at(0, 0).parameters, (Indices{0}));
  // Which of the two gradients the peer received nobody can say; the other parameter is certain.
  EXPECT_EQ(t.at(0, 1).outcome, Outcome::kSuccessOrPeerError);
  EXPECT_FALSE(t.gradient(0, 1, 0).known);
  EXPECT_TRUE(t.gradient(0, 1, 1).known);
  EXPECT_EQ(t.value(0, 1, 1), t.c(0, 0, 1, 2) * 0.5F + t.c(0, 1, 1) * 0.5F);
}

TEST(ModelP6, WithRepeatedHooksAllThatArrivesInThePassCounts) {
  const RankPass nested = graph({use(0, 1), checkpoint({use(0, 8)}, {{}}), use(1, 2, {{}})});
  const RankPass in_two_calls = with_backwards(
      graph({use(0, 1), use(0, 8), use(1, 2, {{}})}, {{2, 0}, {0, 0}}), {{{0}}, {{1}}});
  for (const RankPass& pass : {nested, in_two_calls}) {
    Case t(2, Mode::kPlain, 2);
    t.program.options.repeated_hooks = true;
    t.step({pass, uses({0, 1})}).run();
    ASSERT_EQ(t.at(0, 0).outcome, Outcome::kSuccess);
    const float both = t.c(0, 0, 0, 1) + t.c(0, 0, 0, 8);
    EXPECT_TRUE(t.gradient(0, 1, 0).known);
    EXPECT_EQ(t.value(0, 1, 0), both * 0.5F + t.c(0, 1, 0) * 0.5F);
    EXPECT_EQ(t.value(0, 0, 0), t.value(0, 1, 0));
    EXPECT_EQ(t.value(0, 1, 1), t.c(0, 0, 1, 2) * 0.5F + t.c(0, 1, 1) * 0.5F);
  }
}

// A parameter without a hook is still missing, and a pass that is complete takes nothing more.
TEST(ModelP6, WithRepeatedHooksAPassEndsAsItDoesWithoutThem) {
  Case t(1, Mode::kPlain, 2);
  t.program.options.repeated_hooks = true;
  t.step({graph({use(0, 1), checkpoint({use(0, 8)}, {{}})})})
      .step({with_backwards(uses({0, 1}), {{}, {}})})
      .run();
  EXPECT_EQ(t.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(t.at(0, 0).parameters, (Indices{1}));
  EXPECT_EQ(t.at(1, 0).error, Error::kSecondBackward);
}

TEST(ModelP6, OnlyInACheckpointIsFineInPlainModeAndReadyTwiceInDynamic) {
  const RankPass nested = graph({use(0, 1), checkpoint({use(1, 8)}, {{}})});
  const Case plain = Case(2, Mode::kPlain, 2).step({nested}).run();
  EXPECT_EQ(plain.at(0, 0).outcome, Outcome::kSuccess);
  EXPECT_EQ(plain.value(0, 0, 1), plain.c(0, 0, 1, 8) * 0.5F + plain.c(0, 1, 1, 8) * 0.5F);
  const Case dynamic = Case(2, Mode::kDynamic, 2).step({nested, uses({0})}).run();
  EXPECT_EQ(dynamic.at(0, 0).error, Error::kReadyTwice);
  EXPECT_EQ(dynamic.at(0, 0).parameters, (Indices{1}));
  EXPECT_EQ(dynamic.at(0, 1).outcome, Outcome::kSuccessOrPeerError);
}

// The search has seen the parameter by way of the second forward, so that nothing marked it.
TEST(ModelP6, ANestedHookIsTheFirstOneWhenAnotherForwardIsLeftToALaterCall) {
  RankPass pass = with_backwards(graph({checkpoint({use(0, 8)}, {})}), {{{0}}, {}});
  pass.forwards.push_back(uses({0}).forwards[0]);
  const Case t = Case(1, Mode::kDynamic, 1).step({pass}).run();
  EXPECT_EQ(t.at(0, 0).error, Error::kSecondBackward);  // the first call has reduced it
  EXPECT_EQ(t.at(0, 0).error_call, 1U);
  // Let go of, the second forward is not seen.
  pass.backwards.resize(1);
  const Case alone = Case(1, Mode::kDynamic, 1).step({pass}).run();
  EXPECT_EQ(alone.at(0, 0).error, Error::kReadyTwice);
}

TEST(ModelP7, ASecondBackwardOfACompletePassRaises) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic}) {
    const RankPass twice = with_backwards(uses({0}), {{}, {}});
    const Case t = Case(2, mode, 1).step({twice, uses({0})}).run();
    EXPECT_EQ(t.at(0, 0).outcome, Outcome::kOwnError);
    EXPECT_EQ(t.at(0, 0).error, Error::kSecondBackward);
    EXPECT_EQ(t.at(0, 0).error_call, 1U);
    EXPECT_TRUE(t.at(0, 0).parameters.empty());
    // The peer may see the group go down before its last bytes arrived.
    EXPECT_EQ(t.at(0, 1).outcome, Outcome::kSuccessOrPeerError);
    EXPECT_EQ(t.value(0, 1, 0), t.c(0, 0, 0) * 0.5F + t.c(0, 1, 0) * 0.5F);
  }
}

TEST(ModelP7, DisjointLossesAreOnePassInPlainModeAndAnErrorInDynamic) {
  const RankPass two =
      with_backwards(graph({use(0, 1), use(1, 2)}, {{0, 0}, {1, 0}}), {{{0}}, {{1}}});
  const Case plain = Case(2, Mode::kPlain, 2).step({two}).run();
  EXPECT_EQ(plain.at(0, 0).outcome, Outcome::kSuccess);
  for (std::uint32_t p = 0; p < 2; ++p) {
    EXPECT_EQ(plain.value(0, 0, p),
              plain.c(0, 0, p, p + 1) * 0.5F + plain.c(0, 1, p, p + 1) * 0.5F);
  }
  const Case dynamic = Case(2, Mode::kDynamic, 2).step({two}).run();
  EXPECT_EQ(dynamic.at(0, 0).error, Error::kSecondBackward);
  EXPECT_EQ(dynamic.at(0, 1).outcome, Outcome::kOwnError);
}

TEST(ModelP7, ARankThatWaitsForAMissingBucketNeverGetsToItsSecondBackward) {
  const RankPass twice = with_backwards(uses({0, 1}), {{}, {}});
  const Case t = Case(2, Mode::kPlain, 2).step({twice, uses({1})}).run();
  EXPECT_EQ(t.at(0, 0).outcome, Outcome::kPeerError);
  EXPECT_EQ(t.at(0, 0).error, Error::kNone);
  EXPECT_EQ(t.at(0, 1).error, Error::kIncomplete);
}

TEST(ModelP8, ARankWhoseOutputReachesNoParameterJoinsTheOthers) {
  const Case dynamic = Case(2, Mode::kDynamic, 1).step({nothing(), uses({0})}).run();
  EXPECT_EQ(dynamic.at(0, 0).outcome, Outcome::kSuccess);
  EXPECT_EQ(dynamic.value(0, 0, 0), dynamic.c(0, 1, 0) * 0.5F);
  const Case plain = Case(2, Mode::kPlain, 2).step({nothing(), uses({0, 1})}).run();
  EXPECT_EQ(plain.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(plain.at(0, 0).parameters, (Indices{0, 1}));
  EXPECT_EQ(plain.at(0, 1).outcome, Outcome::kPeerError);
}

// Three ranks, of which rank 1 is absent from the second step: it skips it, drops its outputs, or
// runs it under no_sync.
Case with_absent_rank(RankPass absent) {
  absent.absent = true;
  return Case(3, Mode::kPlain, 1)
      .step({uses({0})})
      .step({uses({0}), std::move(absent), uses({0})}, PassKind::kSynced, ZeroGrad::kUndefine)
      .step({uses({0})})
      .run();
}

TEST(ModelP8, TheOthersTimeOutForAnAbsentRankInTheSameStepAndAllRecover) {
  RankPass skipped = uses({0});
  skipped.skip = true;
  for (const RankPass& pass : {skipped, discarded(uses({0})), uses({0})}) {
    const Case t = with_absent_rank(pass);
    ASSERT_TRUE(t.program.steps[1].variants[1].absent);
    EXPECT_TRUE(t.expectation.steps[1].any_error);
    EXPECT_EQ(t.at(1, 0).outcome, Outcome::kPeerError);
    EXPECT_EQ(t.at(1, 1).outcome, Outcome::kSuccess);
    EXPECT_EQ(t.at(1, 2).outcome, Outcome::kPeerError);
    for (const std::uint32_t rank : {0U, 2U}) {
      const auto errors = reportable_errors({t.program, t.expectation, {}}, rank, 1);
      ASSERT_EQ(errors.size(), 1U);
      EXPECT_EQ(errors[0].error, Error::kAbsent);
      EXPECT_EQ(errors[0].culprit, 1);
      EXPECT_EQ(errors[0].pass, 1);
    }
    EXPECT_TRUE(reportable_errors({t.program, t.expectation, {}}, 1, 1).empty());
    EXPECT_EQ(t.at(2, 0).outcome, Outcome::kSuccess);
    EXPECT_EQ(t.bits(2, 0, 0), t.bits(2, 1, 0));
  }
}

TEST(ModelP8, AnAbsentRankHasWhatItMakesByItself) {
  RankPass skipped = uses({0});
  skipped.skip = true;
  const Case skips = with_absent_rank(skipped);
  EXPECT_EQ(skips.bits(1, 1, 0), skips.bits(0, 1, 0));
  EXPECT_FALSE(with_absent_rank(discarded(uses({0}))).gradient(1, 1, 0).defined);
  const Case local = with_absent_rank(uses({0}));
  EXPECT_EQ(local.value(1, 1, 0), local.c(1, 1, 0));
}

TEST(ModelP8, WithNothingToStartNobodyNeedWaitForAnAbsentRank) {
  RankPass absent = uses({0});
  absent.absent = true;
  Case t(2, Mode::kPlain, 1);
  t.program.parameters[0].sizes = {0};
  t.step({uses({0}), absent}).run();
  EXPECT_EQ(t.at(0, 0).outcome, Outcome::kSuccessOrPeerError);
  EXPECT_EQ(t.at(0, 1).outcome, Outcome::kSuccess);
}

TEST(ModelP8, WithNothingToReduceTheFirstBackwardCompletesThePass) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic}) {
    Case t(2, mode, 1);
    t.program.parameters[0].frozen = true;
    t.step({uses({0})}).step({with_backwards(uses({0}), {{}, {}}), uses({0})}).run();
    EXPECT_EQ(t.at(0, 0).outcome, Outcome::kSuccess);
    EXPECT_TRUE(t.expectation.buckets.empty());
    EXPECT_TRUE(t.expectation.steps[0].collectives.empty());
    EXPECT_FALSE(t.gradient(0, 0, 0).defined);
    EXPECT_EQ(t.at(1, 0).error, Error::kSecondBackward);
  }
}

TEST(ModelP9, TheSyncedPassReducesWhatNoSyncAccumulated) {
  const Case t = Case(2, Mode::kPlain, 1)
                     .step({uses({0})}, PassKind::kNoSync)
                     .step({uses({0})}, PassKind::kNoSync)
                     .step({uses({0})})
                     .run();
  const auto sum = [&](std::uint32_t rank) {
    return (t.c(0, rank, 0) + t.c(1, rank, 0)) + t.c(2, rank, 0);
  };
  EXPECT_EQ(t.value(1, 1, 0), t.c(0, 1, 0) + t.c(1, 1, 0));
  EXPECT_EQ(t.value(2, 0, 0), sum(0) * 0.5F + sum(1) * 0.5F);
}

TEST(ModelP9, AParameterUsedOnlyUnderNoSyncIsReducedInDynamicMode) {
  const Case t = Case(2, Mode::kDynamic, 2)
                     .step({uses({1}), uses({0})}, PassKind::kNoSync)
                     .step({uses({0})})
                     .step({uses({0})})
                     .run();
  EXPECT_EQ(t.value(1, 1, 1), t.c(0, 0, 1) * 0.5F);
  EXPECT_TRUE(t.gradient(2, 1, 1).untouched);  // usage went with the reduction
}

TEST(ModelP9, UnderNoSyncBackwardMayRunOftenAndReachAnything) {
  const RankPass pass =
      with_backwards(graph({use(0, 1), checkpoint({use(0, 8)}, {{}})}, {{0, 0}}), {{}, {}, {}});
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic}) {
    Case t(2, mode, 2);
    t.program.values = Values::kExact;
    t.step({pass}, PassKind::kNoSync).run();
    EXPECT_EQ(t.at(0, 0).outcome, Outcome::kSuccess);
    EXPECT_EQ(t.value(0, 0, 0), 3 * (t.c(0, 0, 0, 1) + t.c(0, 0, 0, 8)));
  }
}

TEST(ModelP10, ZeroingAGradientForgetsItsUse) {
  for (const ZeroGrad kind : {ZeroGrad::kUndefine, ZeroGrad::kFill}) {
    const Case t = Case(2, Mode::kDynamic, 2)
                       .step({uses({1})}, PassKind::kNoSync)
                       .step({uses({0})}, PassKind::kSynced, kind)
                       .run();
    EXPECT_EQ(t.gradient(1, 0, 1).defined, kind == ZeroGrad::kFill);
    EXPECT_EQ(t.gradient(1, 0, 1).untouched, kind == ZeroGrad::kFill);
    if (kind == ZeroGrad::kFill) {
      EXPECT_EQ(t.bits(1, 0, 1), 0U);
    }
  }
}

TEST(ModelP10, FillingLeavesAnUndefinedGradientUndefined) {
  const Case t =
      Case(1, Mode::kDynamic, 2).step({uses({0})}, PassKind::kSynced, ZeroGrad::kFill).run();
  EXPECT_TRUE(t.gradient(0, 0, 0).defined);
  EXPECT_FALSE(t.gradient(0, 0, 1).defined);
}

// ---- B6, frozen ----

TEST(ModelB6, ASharedParameterIsOneParameterUnderTwoIndices) {
  Case t(2, Mode::kPlain, 2);
  t.program.parameters[1].shared_with = 1;
  t.step({graph({use(0, 1), use(1, 2, {{}})})}).run();
  const auto sum = [&](std::uint32_t rank) { return t.c(0, rank, 0, 2) + t.c(0, rank, 0, 1); };
  EXPECT_EQ(t.value(0, 0, 0), sum(0) * 0.5F + sum(1) * 0.5F);
  EXPECT_EQ(t.gradient(0, 0, 1).offset, t.gradient(0, 0, 0).offset);
  EXPECT_TRUE(t.gradient(0, 0, 1).defined);
  ASSERT_EQ(t.expectation.buckets.size(), 1U);
  EXPECT_EQ(t.expectation.buckets[0].parameters, (Indices{0}));
}

TEST(ModelB6, FrozenParametersAreNotMissing) {
  Case t(2, Mode::kPlain, 2);
  t.program.parameters[1].frozen = true;
  t.step({uses({0, 1})}).step({uses({0})}).run();
  EXPECT_EQ(t.at(1, 0).outcome, Outcome::kSuccess);
  EXPECT_FALSE(t.gradient(1, 0, 1).defined);
}

// ---- F4: recovery ----

TEST(ModelF4, AfterAnOwnErrorEveryRankStartsAfresh) {
  const Case t = Case(2, Mode::kPlain, 2)
                     .step({uses({0, 1})}, PassKind::kNoSync)
                     .step({uses({0}), uses({0, 1})})
                     .step({uses({0, 1})})
                     .run();
  EXPECT_TRUE(t.expectation.steps[1].any_error);
  EXPECT_FALSE(t.expectation.steps[2].any_error);
  EXPECT_EQ(t.value(2, 0, 1), t.c(2, 0, 1) * 0.5F + t.c(2, 1, 1) * 0.5F);
}

TEST(ModelF4, AnErrorSaysNothingAboutTheNextStepsPeers) {
  const RankPass twice = with_backwards(uses({0, 1}), {{}, {}});
  const Case t =
      Case(2, Mode::kPlain, 2).step({uses({0}), uses({0, 1})}).step({twice, uses({0, 1})}).run();
  EXPECT_EQ(t.at(0, 1).outcome, Outcome::kPeerError);
  EXPECT_EQ(t.at(1, 0).error, Error::kSecondBackward);
  EXPECT_EQ(t.at(1, 1).outcome, Outcome::kSuccessOrPeerError);
}

TEST(ModelF4, RecoveryForgetsUsage) {
  const Case t = Case(2, Mode::kDynamic, 2)
                     .step({uses({1})}, PassKind::kNoSync)
                     .step({uses({0})})
                     .run({{1, {0, 1}}});
  EXPECT_FALSE(t.gradient(1, 0, 1).defined);
}

// Rank order shows the positions: ((x0 + x2) + x1) once rank 1 has joined behind the others.
TEST(ModelF4, ARankThatJoinsComesLastAndHasNothingFromBefore) {
  Case t(3, Mode::kPlain, 1);
  t.program.options.order = Order::kRankOrder;
  for (int step = 0; step < 3; ++step) t.step({uses({0})});
  t.run({{1, {0, 2}}, {2, {0, 2, 1}}});
  EXPECT_FALSE(t.at(1, 1).present);
  EXPECT_TRUE(t.at(2, 1).present);
  const float half = 0.5F;
  EXPECT_EQ(t.value(1, 0, 0), t.c(1, 0, 0) * half + t.c(1, 2, 0) * half);
  const float k = 1.0F / 3.0F;
  // In the third step the recovery has forgotten the gradients of the others, too.
  const float expected = (t.c(2, 0, 0) * k + t.c(2, 2, 0) * k) + t.c(2, 1, 0) * k;
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(t.value(2, rank, 0), expected);
}

TEST(ModelF4, SurvivorsKeepTheirValuesAndVariantsInASmallerGroup) {
  const std::vector<RankPass> variants = {uses({0, 1}), uses({1, 0}), uses({0, 1}), uses({1, 0})};
  Case t(4, Mode::kPlain, 2);
  t.program.parameters[1].sizes = {7};
  t.step(variants).step(variants).run({{1, {1, 2, 3}}});
  EXPECT_TRUE(t.at(0, 0).present);
  EXPECT_FALSE(t.at(1, 0).present);
  const float k = 1.0F / 3.0F;
  // 3 ranks, 7 elements: chunks of 4. Position 0 is rank 1. The first chunk: 2, 1, 0; then 0, 2, 1.
  const auto x = [&](std::uint32_t rank, std::uint64_t e) { return t.c(1, rank, 1, 101, e) * k; };
  ASSERT_EQ(t.expectation.buckets[0].offsets, (std::vector<std::uint64_t>{0, 16}));
  // 23 elements: 6 segments of 4, chunks of 8; parameter 1 lies at 16 .. 22, in the last one.
  for (std::uint64_t e = 0; e < 7; ++e) {
    EXPECT_EQ(t.value(1, 3, 1, e), (x(2, e) + x(1, e)) + x(3, e));
  }
}

TEST(ModelF4, TheLastSurvivorTrainsAlone) {
  const Case t =
      Case(3, Mode::kPlain, 1).step({uses({0})}).step({uses({0})}).run({{0, {0, 2}}, {1, {2}}});
  EXPECT_FALSE(t.at(0, 1).present);
  EXPECT_EQ(t.value(0, 2, 0), t.c(0, 0, 0) * 0.5F + t.c(0, 2, 0) * 0.5F);
  EXPECT_FALSE(t.at(1, 0).present);
  EXPECT_EQ(t.value(1, 2, 0), t.c(1, 2, 0));
}

TEST(ModelF4, WithoutSurvivorsNothingIsExpected) {
  const Case t = Case(2, Mode::kPlain, 1).step({uses({0})}).run({{0, {}}});
  EXPECT_FALSE(t.at(0, 0).present);
  EXPECT_FALSE(t.at(0, 1).present);
  EXPECT_FALSE(t.expectation.steps[0].any_error);
}

}  // namespace
}  // namespace lockstep::reference
