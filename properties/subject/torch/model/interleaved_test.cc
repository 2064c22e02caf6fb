// The model of profile `torch`, on programs whose forwards and backwards interleave (P1): a synced
// forward arms the next backward, whatever outputs that starts from.
#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "properties/subject/torch/model/hook_model.h"
#include "properties/subject/torch/model/test_case.h"

namespace lockstep::properties::torch_model {
namespace {

using namespace reference;           // NOLINT
using namespace reference::testing;  // NOLINT

constexpr bool kLocal = true;

// A pass of several forwards, each a use of p0; that in forward f has the key 10 + f.
RankPass forwards(std::initializer_list<bool> locals, std::vector<Backward> backwards) {
  RankPass pass;
  for (const bool is_local : locals) {
    const auto key = static_cast<std::uint32_t>(10 + pass.forwards.size());
    pass.forwards.push_back(graph({use(0, key)}).forwards[0]);
    pass.forwards.back().local = is_local;
  }
  return with_backwards(std::move(pass), std::move(backwards));
}

float mean(const Case& t, std::uint32_t key) {
  return t.c(0, 0, 0, key) * 0.5F + t.c(0, 1, 0, key) * 0.5F;
}

// The mean of what the ranks have accumulated of two calls.
float mean_of_sums(const Case& t, std::uint32_t one, std::uint32_t other) {
  const float first = t.c(0, 0, 0, one) + t.c(0, 0, 0, other);
  const float second = t.c(0, 1, 0, one) + t.c(0, 1, 0, other);
  return first * 0.5F + second * 0.5F;
}

// A synced forward, one under no_sync, and the backward of either.
RankPass local_first() { return forwards({!kLocal, kLocal}, {{{1}}, {{0}}}); }

TEST(TorchInterleaved, ALocalBackwardAfterASyncedForwardIsAveraged) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic}) {
    const Case t = by(Case(2, mode, 1).step({local_first()}));
    EXPECT_TRUE(t.is_modelled(0));
    for (const std::uint32_t rank : {0U, 1U})
      EXPECT_EQ(t.value(0, rank, 0), mean(t, 11) + t.c(0, rank, 0, 10));
    EXPECT_FALSE(t.gradient(0, 0, 0).reduced);
  }
}

TEST(TorchInterleaved, WithoutThePolicyItIsReducedWithThePass) {
  Policies policies;
  policies.averages_local_backward = false;
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic}) {
    const Case t = by(Case(2, mode, 1).step({local_first()}), policies);
    for (const std::uint32_t rank : {0U, 1U})
      EXPECT_EQ(t.value(0, rank, 0), mean_of_sums(t, 10, 11));
    EXPECT_TRUE(t.gradient(0, 0, 0).reduced);
  }
}

TEST(TorchInterleaved, TheFirstOfSeveralMicrobatchesIsAveraged) {
  const RankPass pipeline = forwards({kLocal, kLocal, !kLocal}, {{{0}}, {{1}}, {{2}}});
  const Case t = by(Case(2, Mode::kPlain, 1).step({pipeline}));
  for (const std::uint32_t rank : {0U, 1U})
    EXPECT_EQ(t.value(0, rank, 0), mean(t, 10) + t.c(0, rank, 0, 11) + t.c(0, rank, 0, 12));
}

TEST(TorchInterleaved, ALocalBackwardBeforeTheSyncedForwardIsReducedWithThePass) {
  const RankPass early = forwards({kLocal, !kLocal}, {{{0}, 1}, {{1}}});
  const Case t = by(Case(2, Mode::kPlain, 1).step({early}));
  EXPECT_EQ(t.value(0, 0, 0), mean_of_sums(t, 10, 11));
  EXPECT_TRUE(t.gradient(0, 0, 0).reduced);
}

// A synced forward, a local one whose backward comes at once, another synced one, and the rest.
RankPass two_passes() { return forwards({!kLocal, kLocal, !kLocal}, {{{1}, 2}, {{0, 2}}}); }

TEST(TorchInterleaved, AStepMayHaveTwoPassesWithARebuildBetweenThem) {
  const Case t = by(Case(2, Mode::kPlain, 1).step({two_passes()}));
  const ExpectedStep& step = t.expectation.steps[0];
  EXPECT_TRUE(t.is_modelled(0));
  const auto second = [&](std::uint32_t rank) {
    return mean(t, 11) + (t.c(0, rank, 0, 12) + t.c(0, rank, 0, 10));
  };
  EXPECT_EQ(t.value(0, 0, 0), second(0) * 0.5F + second(1) * 0.5F);
  EXPECT_TRUE(t.gradient(0, 0, 0).reduced);
  ASSERT_EQ(step.collectives.size(), 4U);
  EXPECT_EQ(step.collectives[0].bucket, 0U);
  EXPECT_EQ(step.collectives[1].op, ExpectedCollective::Op::kBroadcastOrder);
  EXPECT_EQ(step.collectives[3].bucket, 1U) << "buckets are counted in the step";
  EXPECT_EQ(step.layout, 1U);
}

TEST(TorchInterleaved, ARankWithASecondPassWaitsForOthersInVain) {
  const RankPass one = forwards({!kLocal}, {});
  // The buckets are rebuilt before, so that no rank waits for that.
  const Case t = by(Case(2, Mode::kPlain, 1).step({one}).step({one}).step({two_passes(), one}));
  EXPECT_TRUE(t.is_modelled(2));
  EXPECT_TRUE(t.expectation.steps[2].any_error);
  EXPECT_EQ(t.at(2, 0).outcome, Outcome::kPeerError);
  EXPECT_EQ(t.at(2, 1).outcome, Outcome::kSuccessOrPeerError);
}

TEST(TorchInterleaved, ARebuildOfSomeRanksIsLeftOpen) {
  const RankPass one = forwards({!kLocal}, {});
  const RankPass later = forwards({!kLocal, kLocal, kLocal}, {{{1}, 2}, {{0, 2}}});
  EXPECT_FALSE(by(Case(2, Mode::kPlain, 1).step({later, one})).is_modelled(0));
  EXPECT_TRUE(by(Case(2, Mode::kPlain, 1).step({later})).is_modelled(0));
}

TEST(TorchInterleaved, ALocalBackwardMayBeTheFirstStaticPass) {
  const Policies policies = policies_of({2, 15, 0});
  const RankPass early = forwards({kLocal, !kLocal}, {{{0}, 1}, {{1}}});
  const Case t = by(Case(2, Mode::kStatic, 1).step({early}), policies);
  EXPECT_TRUE(t.is_modelled(0));
  EXPECT_EQ(t.at(0, 0).error, Error::kSecondBackward);
  EXPECT_EQ(t.at(0, 0).error_call, 0U);
  // Another rank may take the buckets that a rank launches in such an error for those of its pass.
  const RankPass one = forwards({!kLocal}, {});
  const Case beside = by(Case(2, Mode::kStatic, 1).step({early, one}), policies);
  EXPECT_FALSE(beside.is_modelled(0));
}

TEST(TorchInterleaved, ALocalForwardOfAStaticGraphEndsTheFirstPass) {
  const Case t = by(Case(2, Mode::kStatic, 1).step({local_first()}), policies_of({2, 15, 0}));
  EXPECT_TRUE(t.is_modelled(0));
  EXPECT_EQ(t.value(0, 1, 0), mean(t, 11) + t.c(0, 1, 0, 10));
  // Up to 2.0 only the outputs of the first synced forward end it.
  const Case old =
      by(Case(2, Mode::kStatic, 1).step({forwards({kLocal, !kLocal}, {{{0}}, {{1}}})}));
  EXPECT_EQ(old.value(0, 1, 0), mean_of_sums(old, 10, 11));
}

// A step whose second forward (key 11) is held, in a synced step under no_sync unless it is one of
// the pass; and a step whose first backward starts from it.
Case held(Mode mode, PassKind kind, bool is_local) {
  RankPass holding = forwards({!kLocal, is_local}, {{{0}}});
  holding.keep_outputs = holding.hold_outputs = true;
  RankPass later = forwards({!kLocal}, {{{}}, {{0}}});
  later.backwards[0].held = true;
  later.backwards[0].held_synced = kind == PassKind::kSynced && !is_local;
  return Case(2, mode, 1)
      .step({holding}, kind)
      .step({later}, PassKind::kSynced, ZeroGrad::kUndefine);
}

// The synced forward has armed the hooks, so that the mean is that of what was held, and what comes
// after it stays local.
TEST(TorchInterleaved, ABackwardOfTheStepBeforeIsAveragedIfAForwardHasArmedIt) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic})
    for (const auto& [kind, is_local] :
         {std::pair{PassKind::kNoSync, !kLocal}, std::pair{PassKind::kSynced, kLocal},
          std::pair{PassKind::kSynced, !kLocal}}) {
      const Case t = by(held(mode, kind, is_local));
      EXPECT_TRUE(t.is_modelled(1));
      const float averaged = t.c(0, 0, 0, 11) * 0.5F + t.c(0, 1, 0, 11) * 0.5F;
      for (const std::uint32_t rank : {0U, 1U})
        EXPECT_EQ(t.value(1, rank, 0), averaged + t.c(1, rank, 0, 10));
      EXPECT_FALSE(t.gradient(1, 0, 0).reduced);
    }
}

TEST(TorchInterleaved, WithoutThePolicyABackwardOfACompletePassIsAnError) {
  Policies policies;
  policies.later_backwards_are_local = false;
  const Case t = by(held(Mode::kPlain, PassKind::kSynced, !kLocal), policies);
  EXPECT_EQ(t.at(1, 0).error, Error::kSecondBackward);
  EXPECT_EQ(t.at(1, 0).error_call, 0U);
}

TEST(TorchInterleaved, WhatComesOfABackwardOfTheStepBeforeInStaticModeIsLeftOpen) {
  const Case t = by(held(Mode::kStatic, PassKind::kNoSync, !kLocal));
  EXPECT_FALSE(t.is_modelled(1));
}

}  // namespace
}  // namespace lockstep::properties::torch_model
