// The model against CONTRACT.md: layouts that are pinned (B3), reduction after backward (P14),
// manual sync (P13), on programs small enough to compute by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "reference/model.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;
using Op = ExpectedCollective::Op;

Case three_steps(Launch launch, std::uint32_t pinned, bool rebuild) {
  Case t(2, Mode::kPlain, 3);
  t.program.options.launch = launch;
  t.program.options.pinned = pinned;
  t.program.options.rebuild = rebuild;
  t.program.options.first_bucket_bytes = 1;
  t.program.options.bucket_bytes = 8;
  for (int i = 0; i < 3; ++i) t.step({uses({0, 1, 2})}, PassKind::kSynced, ZeroGrad::kUndefine);
  return t.run();
}

TEST(ModelB3, APinnedLayoutHasItsOrderFromTheStartAndIsNeverRebuilt) {
  for (const std::uint32_t pinned : {1U, 2U, 7U}) {
    const Case t = three_steps(Launch::kOverlapped, pinned, true);
    Indices order;
    for (const ExpectedBucket& bucket : t.expectation.buckets)
      order.insert(order.end(), bucket.parameters.begin(), bucket.parameters.end());
    EXPECT_EQ(order, construction_order(t.program));
    ASSERT_EQ(t.expectation.buckets.size(), 2U);  // the first limit, then the other one
    EXPECT_EQ(t.expectation.buckets[0].parameters.size(), 1U);
    EXPECT_TRUE(t.expectation.rebuilt.empty());
    for (const ExpectedStep& step : t.expectation.steps) {
      EXPECT_EQ(step.layout, 0U);
      EXPECT_EQ(step.collectives.size(), 2U);
    }
  }
  EXPECT_EQ(three_steps(Launch::kOverlapped, 0, true).expectation.rebuilt.size(), 1U);
}

TEST(ModelB3, PinnedOrdersAreAllPermutationsOfWhatIsTrained) {
  Program program;
  program.parameters.resize(5);
  program.parameters[1].frozen = true;
  program.parameters[4].shared_with = 1;
  normalize(program);
  const Indices trained{0, 2, 3};
  std::vector<Indices> seen;
  for (std::uint32_t pinned = 1; pinned <= 200; ++pinned) {
    program.options.pinned = pinned;
    seen.push_back(construction_order(program));
    ASSERT_TRUE(std::is_permutation(trained.begin(), trained.end(), seen.back().begin(),
                                    seen.back().end()));
  }
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  EXPECT_EQ(seen.size(), 6U);
}

TEST(ModelP14, AfterBackwardEveryBucketHasOneLimitAndNothingIsRebuilt) {
  const Case t = three_steps(Launch::kAfterBackward, 0, true);
  ASSERT_EQ(t.expectation.buckets.size(), 2U);
  EXPECT_EQ(t.expectation.buckets[0].parameters, (Indices{2}));
  EXPECT_EQ(t.expectation.buckets[1].parameters, (Indices{0, 1}));
  EXPECT_TRUE(t.expectation.rebuilt.empty());
  for (const ExpectedStep& step : t.expectation.steps) {
    ASSERT_EQ(step.collectives.size(), 2U);
    EXPECT_EQ(step.collectives[0].op, Op::kAllReduceBucket);
  }
}

// Rank 0 lacks what lies in the last bucket alone: overlapped, the first one is launched.
TEST(ModelP14, AfterBackwardARankWhosePassIsNotCompleteLaunchesNothing) {
  for (const Launch launch : {Launch::kOverlapped, Launch::kAfterBackward}) {
    Case t(2, Mode::kPlain, 2);
    t.program.options.launch = launch;
    t.program.options.first_bucket_bytes = t.program.options.bucket_bytes = 1;
    t.program.parameters[0].sizes = {0};  // in bucket 1, which nobody misses
    t.program.parameters[0].dtype = DType::kFloat64;
    t.step({uses({1}), uses({0, 1})}).run();
    EXPECT_EQ(t.at(0, 0).error, Error::kIncomplete);
    EXPECT_EQ(t.at(0, 1).outcome,
              launch == Launch::kOverlapped ? Outcome::kSuccessOrPeerError : Outcome::kPeerError);
  }
}

TEST(ModelP14, InDynamicModeAParameterThatIsReadyTwiceBlocksTheOthersAfterBackward) {
  const RankPass twice = graph({use(0, 1), checkpoint({use(0, 2)}, {{0, 0}})});
  for (const Launch launch : {Launch::kOverlapped, Launch::kAfterBackward}) {
    Case t(2, Mode::kDynamic, 1);
    t.program.options.launch = launch;
    t.step({twice, uses({0})}).run();
    EXPECT_EQ(t.at(0, 0).error, Error::kReadyTwice);
    EXPECT_EQ(t.at(0, 1).outcome,
              launch == Launch::kOverlapped ? Outcome::kSuccessOrPeerError : Outcome::kPeerError);
  }
}

TEST(ModelP14, InStaticModeANewUseBlocksTheOthersAfterBackward) {
  for (const Launch launch : {Launch::kOverlapped, Launch::kAfterBackward}) {
    Case t(2, Mode::kStatic, 2);
    t.program.options.launch = launch;
    t.step({uses({0})})
        .step({uses({1}), uses({0})}, PassKind::kNoSync)
        .step({uses({0})}, PassKind::kSynced, ZeroGrad::kKeep)
        .run();
    EXPECT_EQ(t.at(2, 0).error, Error::kUsageChanged);
    EXPECT_EQ(t.at(2, 1).outcome,
              launch == Launch::kOverlapped ? Outcome::kSuccessOrPeerError : Outcome::kPeerError);
  }
}

TEST(ModelP13, ManualSyncComesToTheSame) {
  Case automatic(3, Mode::kDynamic, 2);
  automatic.program.options.rebuild = true;
  for (int i = 0; i < 3; ++i) automatic.step({uses({0}), uses({0, 1}), nothing()});
  Case manual = automatic;
  manual.program.options.manual_sync = true;
  automatic.run();
  manual.run();
  EXPECT_EQ(manual.expectation.bits, automatic.expectation.bits);
  for (std::uint32_t s = 0; s < 3; ++s)
    EXPECT_EQ(manual.expectation.steps[s].collectives.size(),
              automatic.expectation.steps[s].collectives.size());
}

}  // namespace
}  // namespace lockstep::reference
