// Claim: the model says of passes that the user ends by hand what finalization.h says, with the
// policies of PyTorch 2.15.0; beside each of them stands the same program whose passes end by
// themselves.
#include "properties/subject/torch/model/finalization.h"

#include <gtest/gtest.h>

#include "properties/subject/torch/model/hook_model.h"
#include "properties/subject/torch/model/test_case.h"

namespace lockstep::properties::torch_model {
namespace {

using namespace reference;           // NOLINT
using namespace reference::testing;  // NOLINT
using Finalization = TorchOptions::Finalization;

Case ended(Case t, Finalization finalization = Finalization::kAutomatic) {
  t.torch.finalization = finalization;
  return torch_model::by(std::move(t), policies_of({2, 15, 0}));
}

// Returns whether all ranks end the step without an error, with the means that they have without
// the option.
bool is_averaged(const Case& program, Finalization finalization, std::uint32_t step = 0) {
  const Case automatic = ended(program);
  const Case by_hand = ended(program, finalization);
  const ExpectedStep& expected = by_hand.expectation.steps[step];
  return by_hand.is_modelled(step) && expected.is_reduced && !expected.any_error &&
         expected.collectives.size() == automatic.expectation.steps[step].collectives.size() &&
         by_hand.bits(step, 1, 0) == automatic.bits(step, 1, 0) &&
         by_hand.gradient(step, 1, 0).known;
}

TEST(TorchFinalization, AfterBackwardAPassHasTheMeansThatItHasByItself) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic, Mode::kStatic})
    for (const bool views : {false, true}) {
      Case t(3, mode, 2);
      t.program.options.views = views;
      t.step({uses({0, 1})}).step({uses({0, 1})}).step({uses({0, 1})});
      for (const std::uint32_t step : {0U, 1U, 2U}) {
        EXPECT_TRUE(is_averaged(t, Finalization::kAfter, step)) << step;
        EXPECT_TRUE(is_averaged(t, Finalization::kAlways, step)) << step;
        EXPECT_TRUE(is_averaged(t, Finalization::kInHook, step)) << step;
      }
    }
}

TEST(TorchFinalization, WithoutItsEndAPassLeavesLocalGradientsAndTheNextForwardFails) {
  Case t(2, Mode::kPlain, 1);
  t.step({uses({0})}).step({uses({0})}, PassKind::kNoGrad).step({uses({0})}, PassKind::kNoSync);
  const Case never = ended(t, Finalization::kNever);
  EXPECT_FALSE(never.expectation.steps[0].any_error);
  EXPECT_FALSE(never.expectation.steps[0].is_reduced);
  EXPECT_EQ(never.expectation.steps[0].collectives.size(), 1U);
  EXPECT_EQ(never.value(0, 1, 0), never.c(0, 1, 0));
  EXPECT_FALSE(never.expectation.steps[1].any_error);
  for (const std::uint32_t rank : {0U, 1U}) {
    EXPECT_EQ(never.at(2, rank).error, Error::kIncomplete);
    EXPECT_EQ(never.at(2, rank).error_call, kForwardCall);
  }
  EXPECT_TRUE(never.gradient(0, 0, 0).known);
  t.program.options.views = true;  // a sum that nobody waits for is written to it
  EXPECT_FALSE(ended(t, Finalization::kNever).gradient(0, 0, 0).known);
}

// Found by fuzzing (seed 51, case 712): the bucket of a static first pass is on its way when a
// further backward adds to it, and the user ends the pass after that.
TEST(TorchFinalization, NothingIsKnownOfAViewToWhichABackwardAddsWhileItIsSummed) {
  Case t(2, Mode::kStatic, 1);
  t.step({with_backwards(uses({0}), {Backward{}, Backward{}})});
  EXPECT_TRUE(ended(t, Finalization::kAfter).is_modelled(0));
  t.program.options.views = true;
  EXPECT_TRUE(ended(t).is_modelled(0));
  EXPECT_FALSE(ended(t, Finalization::kAfter).is_modelled(0));
}

// Found by fuzzing (seed 61, case 2557): the buckets of a static first pass are launched when its
// first backward ends, but a rank looks at its own uses when the user ends the pass. It takes what
// the second backward has used for a part of the sums, which have nothing for it. Behind the first
// parameter that the rank did not use, p2, it looks at the uses that were sent.
TEST(TorchFinalization, WhatASecondBackwardUsesInAStaticFirstPassIsLost) {
  Case t(2, Mode::kStatic, 4);
  const RankPass both = graph({use(0, 100), use(1, 101), use(3, 103, {{}})}, {{2, 0}, {0, 0}});
  t.step({with_backwards(both, {Backward{{0}}, Backward{{1}}})});
  const Case automatic = ended(t);
  const Case by_hand = ended(t, Finalization::kAfter);
  ASSERT_TRUE(by_hand.is_modelled(0));
  EXPECT_FALSE(by_hand.expectation.steps[0].any_error);
  for (const std::uint32_t rank : {0U, 1U}) {
    EXPECT_TRUE(by_hand.gradient(0, rank, 0).reduced);
    EXPECT_EQ(by_hand.bits(0, rank, 0), automatic.bits(0, rank, 0));
    EXPECT_TRUE(by_hand.gradient(0, rank, 1).reduced);
    EXPECT_EQ(by_hand.value(0, rank, 1), 0);
    EXPECT_EQ(automatic.value(0, rank, 1), automatic.c(0, rank, 1));
    EXPECT_NE(automatic.c(0, rank, 1), 0);
    EXPECT_FALSE(by_hand.gradient(0, rank, 2).defined);
    EXPECT_FALSE(by_hand.gradient(0, rank, 3).reduced);
    EXPECT_EQ(by_hand.value(0, rank, 3), by_hand.c(0, rank, 3));
  }
}

TEST(TorchFinalization, ASecondEndIsAnError) {
  const Case twice = ended(Case(2, Mode::kPlain, 1).step({uses({0})}), Finalization::kTwice);
  for (const std::uint32_t rank : {0U, 1U}) {
    EXPECT_EQ(twice.at(0, rank).outcome, Outcome::kOwnError);
    EXPECT_EQ(twice.at(0, rank).error_call, 2U);  // backward, the first end, the second one
  }
}

TEST(TorchFinalization, TheEndOfALocalStepIsAnError) {
  const Case t = Case(2, Mode::kPlain, 1).step({uses({0})}).step({uses({0})}, PassKind::kNoSync);
  const Case always = ended(t, Finalization::kAlways);
  EXPECT_FALSE(always.expectation.steps[0].any_error);
  EXPECT_EQ(always.at(1, 0).error, Error::kIncomplete);
  EXPECT_EQ(always.at(1, 0).error_call, 1U);
  EXPECT_FALSE(ended(t, Finalization::kAfter).expectation.steps[1].any_error);
}

TEST(TorchFinalization, TheEndOfAnIncompletePassIsAnErrorInItsStep) {
  const Case t = Case(2, Mode::kPlain, 2).step({uses({0, 1}), uses({0})}).step({uses({0, 1})});
  EXPECT_EQ(ended(t).at(0, 1).error, Error::kNone);
  const Case by_hand = ended(t, Finalization::kAfter);
  EXPECT_EQ(by_hand.at(0, 1).error, Error::kIncomplete);
  EXPECT_EQ(by_hand.at(0, 1).error_call, 1U);
  EXPECT_EQ(by_hand.at(0, 1).parameters, (Indices{1}));
  EXPECT_EQ(by_hand.at(0, 0).outcome, Outcome::kPeerError);
}

// Until the user ends the pass, further gradients belong to it.
TEST(TorchFinalization, ASecondBackwardBeforeTheEndIsReadyTwice) {
  const Case two = Case(2, Mode::kPlain, 1).step({with_backwards(uses({0}), {{}, {}})});
  EXPECT_FALSE(ended(two).expectation.steps[0].any_error);
  EXPECT_EQ(ended(two, Finalization::kAfter).at(0, 0).error, Error::kReadyTwice);
  EXPECT_EQ(ended(two, Finalization::kAfter).at(0, 0).error_call, 1U);
  const RankPass nested = graph({use(0, 1), checkpoint({use(0, 2)}, {{}})});
  const Case checkpointed = Case(2, Mode::kPlain, 1).step({nested});
  EXPECT_FALSE(ended(checkpointed).expectation.steps[0].any_error);
  EXPECT_EQ(ended(checkpointed, Finalization::kAfter).at(0, 0).error, Error::kReadyTwice);
}

// In dynamic mode nothing is rebuilt, so that a hook may end the very first pass. A backward comes
// to the last use first.
TEST(TorchFinalization, AHookEndsThePassWhereItsParameterIsTheLast) {
  EXPECT_TRUE(is_averaged(Case(2, Mode::kDynamic, 2).step({uses({0, 1})}), Finalization::kInHook));
  const Case early = ended(Case(2, Mode::kDynamic, 2).step({uses({1, 0})}), Finalization::kInHook);
  EXPECT_EQ(early.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(early.at(0, 0).error_call, 0U);
  EXPECT_EQ(early.at(0, 0).parameters, (Indices{1}));
}

TEST(TorchFinalization, BeforeTheRebuildTheUserEndsThePassAfterBackward) {
  const Case t = Case(2, Mode::kPlain, 2).step({uses({1, 0})}).step({uses({1, 0})});
  EXPECT_TRUE(is_averaged(t, Finalization::kInHook, 0));
  const Case by_hand = ended(t, Finalization::kInHook);
  EXPECT_EQ(by_hand.expectation.steps[1].layout, 1U);
  EXPECT_EQ(by_hand.at(1, 0).error, Error::kIncomplete);
}

// A hook ends the pass in the first backward. The second backward adds to the gradients of its rank
// alone, and its hook finds no pass that it could end.
TEST(TorchFinalization, AHookThatComesAgainFindsNothingToEnd) {
  const Case t = Case(2, Mode::kDynamic, 1).step({with_backwards(uses({0}), {{}, {}})});
  const Case again = ended(t, Finalization::kInHook);
  EXPECT_EQ(again.at(0, 0).error, Error::kSecondBackward);
  EXPECT_EQ(again.at(0, 0).error_call, 1U);
}

TEST(TorchFinalization, APassThatOnlySomeRanksEndIsNotModelled) {
  const Case left = Case(2, Mode::kDynamic, 1).step({uses({0}), nothing()});
  EXPECT_TRUE(ended(left, Finalization::kAfter).is_modelled(0));
  EXPECT_FALSE(ended(left, Finalization::kNever).is_modelled(0));
  const Case t = Case(2, Mode::kDynamic, 2).step({uses({0, 1}), uses({1})});
  EXPECT_TRUE(ended(t, Finalization::kAfter).is_modelled(0));
  EXPECT_FALSE(ended(t, Finalization::kInHook).is_modelled(0));
}

}  // namespace
}  // namespace lockstep::properties::torch_model
