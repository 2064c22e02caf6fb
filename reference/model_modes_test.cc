// The model against CONTRACT.md, static mode, views and rebuilt buckets (clauses P11, B7, B2, T2),
// on programs small enough to compute by hand.
#include <gtest/gtest.h>

#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;
using Op = ExpectedCollective::Op;

TEST(ModelP11, TheFirstPassSendsTheUsageMapFirstAndLaterOnesSendNone) {
  const Case t = Case(2, Mode::kStatic, 2)
                     .step({uses({0})})
                     .step({uses({0})}, PassKind::kSynced, ZeroGrad::kUndefine)
                     .run();
  const auto& first = t.expectation.steps[0].collectives;
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].op, Op::kAllReduceUsage);
  EXPECT_EQ(first[0].count, 2U);
  EXPECT_EQ(first[1].op, Op::kAllReduceBucket);
  const auto& second = t.expectation.steps[1].collectives;
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].op, Op::kAllReduceBucket);
  EXPECT_EQ(t.value(1, 0, 0), t.c(1, 0, 0) * 0.5F + t.c(1, 1, 0) * 0.5F);
  EXPECT_FALSE(t.gradient(1, 0, 1).defined);
}

TEST(ModelP11, AParameterMayBeReadySeveralTimesInAPass) {
  const RankPass twice = graph({use(0, 1), checkpoint({use(0, 2)}, {{0, 0}})});
  const Case t = Case(2, Mode::kStatic, 1)
                     .step({twice})
                     .step({twice}, PassKind::kSynced, ZeroGrad::kUndefine)
                     .run();
  for (const std::uint32_t step : {0U, 1U}) {
    EXPECT_EQ(t.at(step, 0).outcome, Outcome::kSuccess);
    const float r0 = t.c(step, 0, 0, 1) + t.c(step, 0, 0, 2);
    const float r1 = t.c(step, 1, 0, 1) + t.c(step, 1, 0, 2);
    EXPECT_EQ(t.value(step, 0, 0), r0 * 0.5F + r1 * 0.5F);
  }
}

TEST(ModelP11, RanksMayUseOtherParametersAsLongAsEachStaysWithItsOwn) {
  const Case same = Case(2, Mode::kStatic, 3)
                        .step({uses({0}), uses({1})})
                        .step({uses({0}), uses({1})}, PassKind::kSynced, ZeroGrad::kUndefine)
                        .run();
  EXPECT_FALSE(same.expectation.steps[1].any_error);
  EXPECT_EQ(same.value(1, 1, 0), same.c(1, 0, 0) * 0.5F);
  EXPECT_EQ(same.value(1, 0, 1), same.c(1, 1, 1) * 0.5F);
  EXPECT_FALSE(same.gradient(1, 0, 2).defined);
  const Case swapped =
      Case(2, Mode::kStatic, 3).step({uses({0}), uses({1})}).step({uses({1}), uses({0})}).run();
  EXPECT_EQ(swapped.at(1, 0).error, Error::kReadyTwice);
  EXPECT_EQ(swapped.at(1, 0).parameters, (Indices{1}));
  EXPECT_EQ(swapped.at(1, 1).parameters, (Indices{0}));
}

TEST(ModelP11, FewerHooksThanInTheFirstPassAreMissingOnes) {
  const RankPass twice = graph({use(0, 1), checkpoint({use(0, 2)}, {{0, 0}})});
  const Case t = Case(2, Mode::kStatic, 1).step({twice}).step({uses({0}), twice}).run();
  EXPECT_EQ(t.at(1, 0).error, Error::kIncomplete);
  EXPECT_EQ(t.at(1, 0).parameters, (Indices{0}));
  EXPECT_EQ(t.at(1, 1).outcome, Outcome::kPeerError);
}

TEST(ModelP11, LocalPassesAreNotCountedButTheirUseIs) {
  const Case t = Case(2, Mode::kStatic, 2)
                     .step({uses({1}), uses({0})}, PassKind::kNoSync)
                     .step({uses({0})}, PassKind::kSynced, ZeroGrad::kKeep)
                     .step({uses({0})}, PassKind::kSynced, ZeroGrad::kUndefine)
                     .run();
  EXPECT_FALSE(t.expectation.steps[2].any_error);
  EXPECT_EQ(t.value(1, 1, 1), t.c(0, 0, 1) * 0.5F);
  // In use from then on: what no rank gave is zeros, as in plain mode.
  EXPECT_TRUE(t.gradient(2, 0, 1).defined);
  EXPECT_EQ(t.value(2, 0, 1), 0.0F);
}

TEST(ModelP11, UseOfWhatNoRankUsedInTheFirstPassIsAnError) {
  const Case t = Case(2, Mode::kStatic, 2)
                     .step({uses({0})})
                     .step({uses({1}), uses({0})}, PassKind::kNoSync)
                     .step({uses({0})}, PassKind::kSynced, ZeroGrad::kKeep)
                     .run();
  EXPECT_EQ(t.at(2, 0).error, Error::kUsageChanged);
  EXPECT_EQ(t.at(2, 0).error_call, 0U);
  EXPECT_EQ(t.at(2, 0).parameters, (Indices{1}));
  // Its buckets were all launched: the other rank may have finished.
  EXPECT_EQ(t.at(2, 1).outcome, Outcome::kSuccessOrPeerError);
  const Case zeroed = Case(2, Mode::kStatic, 2)
                          .step({uses({0})})
                          .step({uses({1})}, PassKind::kNoSync)
                          .step({uses({0})}, PassKind::kSynced, ZeroGrad::kUndefine)
                          .run();
  EXPECT_FALSE(zeroed.expectation.steps[2].any_error);
}

TEST(ModelP11, TheFirstPassEndsWithItsFirstBackwardWhateverOutputsLive) {
  RankPass two = graph({use(0, 1), use(1, 2)}, {{0, 0}, {1, 0}});
  two.forwards[0].constants = 1;
  const Case left = Case(2, Mode::kStatic, 2).step({with_backwards(two, {{{1}}}, true)}).run();
  EXPECT_EQ(left.at(0, 0).outcome, Outcome::kSuccess);
  EXPECT_EQ(left.value(0, 0, 0), left.c(0, 0, 0, 1) * 0.5F + left.c(0, 1, 0, 1) * 0.5F);
  EXPECT_FALSE(left.gradient(0, 0, 1).defined);
  const Case disjoint = Case(2, Mode::kStatic, 2).step({with_backwards(two, {{{0}}, {{1}}})}).run();
  EXPECT_EQ(disjoint.at(0, 0).error, Error::kSecondBackward);
  EXPECT_EQ(disjoint.at(0, 0).error_call, 1U);
}

TEST(ModelP11, ALaterPassMayHaveTheSameHooksInSeveralBackwards) {
  const RankPass two = graph({use(0, 1), use(1, 2)}, {{0, 0}, {1, 0}});
  const Case t =
      Case(2, Mode::kStatic, 2)
          .step({two})
          .step({with_backwards(two, {{{0}}, {{1}}})}, PassKind::kSynced, ZeroGrad::kUndefine)
          .run();
  EXPECT_EQ(t.at(1, 0).outcome, Outcome::kSuccess);
  EXPECT_EQ(t.value(1, 0, 0), t.c(1, 0, 0, 1) * 0.5F + t.c(1, 1, 0, 1) * 0.5F);
}

TEST(ModelP11, AfterARecoveryTheNextPassIsCountedAnew) {
  Case t = Case(3, Mode::kStatic, 2).step({uses({0})}).step({uses({1})});
  t.run();
  EXPECT_EQ(t.at(1, 0).error, Error::kReadyTwice);
  t.expectation = reference::run(t.program, Contract::lockstep(), {{1, {0, 2}}});
  EXPECT_FALSE(t.expectation.steps[1].any_error);
  EXPECT_EQ(t.expectation.steps[1].collectives[0].op, Op::kAllReduceUsage);
}

TEST(ModelB7, AGradientLiesInItsBucketFromItsFirstReductionUntilItIsUndefined) {
  Case t = Case(2, Mode::kDynamic, 2)
               .step({uses({0})}, PassKind::kNoSync)
               .step({uses({0})}, PassKind::kSynced, ZeroGrad::kKeep)
               .step({uses({0, 1})}, PassKind::kNoSync, ZeroGrad::kFill)
               .step({uses({0})}, PassKind::kNoSync, ZeroGrad::kUndefine);
  t.program.options.views = true;
  t.run();
  EXPECT_FALSE(t.gradient(0, 0, 0).in_bucket);
  EXPECT_TRUE(t.gradient(1, 0, 0).in_bucket);
  EXPECT_FALSE(t.gradient(1, 0, 1).in_bucket);
  EXPECT_TRUE(t.gradient(2, 0, 0).in_bucket);
  EXPECT_FALSE(t.gradient(2, 0, 1).in_bucket);  // not reduced yet
  EXPECT_FALSE(t.gradient(3, 0, 0).in_bucket);
}

TEST(ModelB7, ViewsChangeNoBits) {
  Case t = Case(2, Mode::kDynamic, 2)
               .step({uses({0, 1})})
               .step({uses({0})}, PassKind::kSynced, ZeroGrad::kKeep);
  t.run();
  const std::vector<std::uint64_t> copied = t.expectation.bits;
  t.program.options.views = true;
  t.run();
  EXPECT_EQ(t.expectation.bits, copied);
  EXPECT_TRUE(t.gradient(1, 0, 1).untouched);
  EXPECT_TRUE(t.gradient(1, 0, 1).in_bucket);
}

// Three parameters of one element, a bucket for each.
Case rebuilding(Mode mode = Mode::kPlain) {
  Case t(2, mode, 3);
  t.program.options.rebuild = true;
  t.program.options.first_bucket_bytes = t.program.options.bucket_bytes = 1;
  return t;
}

std::vector<Indices> members_of(const std::vector<ExpectedBucket>& buckets) {
  std::vector<Indices> members;
  for (const ExpectedBucket& bucket : buckets) members.push_back(bucket.parameters);
  return members;
}

TEST(ModelB2, BucketsFollowTheReadyOrderFromTheSecondSyncedStepOn) {
  Case t = rebuilding()
               .step({uses({0, 1, 2})})
               .step({uses({0})}, PassKind::kNoSync)
               .step({uses({0, 1, 2})}, PassKind::kSynced, ZeroGrad::kUndefine)
               .step({uses({0, 1, 2})}, PassKind::kSynced, ZeroGrad::kUndefine);
  normalize(t.program);
  const std::vector<ReadyOrder> orders{{2, {1, 2, 0}}};
  t.expectation = reference::run(t.program, Contract::lockstep(), {}, orders);
  const auto& steps = t.expectation.steps;
  const auto layout = [&](std::size_t step) {
    return members_of(buckets_of(t.expectation, steps[step]));
  };
  EXPECT_EQ(layout(0), (std::vector<Indices>{{2}, {1}, {0}}));
  EXPECT_EQ(layout(1), layout(0));
  EXPECT_EQ(layout(2), (std::vector<Indices>{{1}, {2}, {0}}));
  EXPECT_EQ(layout(3), layout(2));
  ASSERT_EQ(steps[2].collectives.size(), 4U);
  EXPECT_EQ(steps[2].collectives[0].op, Op::kBroadcastOrder);
  EXPECT_EQ(steps[2].collectives[0].count, 3U);
  EXPECT_EQ(steps[3].collectives.size(), 3U);  // once
  EXPECT_EQ(t.value(3, 0, 1), t.c(3, 0, 1) * 0.5F + t.c(3, 1, 1) * 0.5F);
}

TEST(ModelB2, ASyncedForwardWhoseOutputIsDroppedRebuildsTooAndAnErrorStartsOver) {
  const Case dropped = rebuilding()
                           .step({uses({0, 1, 2})})
                           .step({discarded(uses({0}))})
                           .step({uses({0, 1})})
                           .step({uses({0, 1, 2})})
                           .run();
  EXPECT_EQ(dropped.expectation.steps[1].collectives.size(), 1U);
  EXPECT_FALSE(dropped.expectation.steps[1].is_reduced);
  EXPECT_EQ(dropped.at(2, 0).error, Error::kIncomplete);
  EXPECT_EQ(dropped.expectation.steps[3].layout, 0U);
  EXPECT_EQ(dropped.expectation.steps[3].collectives.size(), 3U);
}

TEST(ModelB2, ViewsMoveWithTheirBuckets) {
  Case t = rebuilding(Mode::kDynamic).step({uses({0, 1, 2})}).step({uses({0})}).step({uses({0})});
  t.program.options.views = true;
  t.run();
  EXPECT_FALSE(t.gradient(1, 0, 1).untouched);  // moved
  EXPECT_EQ(t.bits(1, 0, 1), t.bits(0, 0, 1));
  EXPECT_TRUE(t.gradient(1, 0, 1).in_bucket);
  EXPECT_FALSE(t.gradient(1, 0, 1).reduced);
  EXPECT_TRUE(t.gradient(2, 0, 1).untouched);
}

}  // namespace
}  // namespace lockstep::reference
