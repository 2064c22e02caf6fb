// The model of profile `torch`, on programs small enough to compute by hand: with every policy, and
// with one of them taken back.
#include "properties/subject/torch/model/hook_model.h"

#include <gtest/gtest.h>

#include "properties/subject/torch/model/averaging.h"
#include "properties/subject/torch/model/test_case.h"
#include "reference/arithmetic.h"

namespace lockstep::properties::torch_model {
namespace {

using namespace reference;           // NOLINT
using namespace reference::testing;  // NOLINT

Case by_contract(Case t) {
  normalize(t.program);
  t.expectation = reference::run(t.program, Contract::lockstep());
  return t;
}

Policies without(bool Policies::*policy) {
  Policies policies;
  policies.*policy = false;
  return policies;
}

Policies with(bool Policies::*policy) {
  Policies policies;
  policies.*policy = true;
  return policies;
}

// Whether some element of rank 0's gradient has other bits in the one than in the other.
bool differ(const Case& one, const Case& other, std::uint32_t step, std::uint32_t parameter) {
  const std::uint64_t count = element_count(one.program.parameters[parameter]);
  for (std::uint64_t e = 0; e < count; ++e)
    if (one.bits(step, 0, parameter, e) != other.bits(step, 0, parameter, e)) return true;
  return false;
}

TEST(TorchModel, AMeanOfTwoIsThatOfTheContract) {
  const Case t = Case(2, Mode::kPlain, 2).step({uses({0, 1})});
  const Case torch = by(t);
  const Case own = by_contract(t);
  for (const std::uint32_t p : {0U, 1U}) EXPECT_EQ(torch.value(0, 1, p), own.value(0, 1, p));
  EXPECT_EQ(torch.value(0, 0, 0), torch.c(0, 0, 0) * 0.5F + torch.c(0, 1, 0) * 0.5F);
}

// P8. The others wait in their backward, or, where buckets are due to be rebuilt and the rank skips
// the step, in their forward; then all go on with new reducers.
TEST(TorchModel, TheOthersFailWhereARankIsAbsent) {
  RankPass absent = uses({0});
  absent.absent = true;
  for (const std::size_t first : {0U, 1U})
    for (const bool skips : {false, true})
      for (const bool drops : {false, true}) {
        absent.skip = skips;
        absent.forwards[0].discard = drops;
        Case t(2, Mode::kPlain, 1);
        for (std::size_t step = 0; step < first; ++step) t.step({uses({0})});
        t.step({uses({0}), absent}).step({uses({0})});
        const Case torch = by(t);
        const auto& step = torch.expectation.steps[first];
        EXPECT_TRUE(step.any_error);
        EXPECT_EQ(step.ranks[0].outcome, Outcome::kPeerError) << first << skips << drops;
        EXPECT_EQ(step.ranks[1].outcome, Outcome::kSuccess) << first << skips << drops;
        EXPECT_EQ(step.ranks[1].gradients[0].defined, (!skips && !drops) || first > 0);
        EXPECT_FALSE(torch.expectation.steps[first + 1].any_error);
        EXPECT_EQ(torch.value(static_cast<std::uint32_t>(first) + 1, 1, 0),
                  by_contract(t).value(static_cast<std::uint32_t>(first) + 1, 1, 0));
      }
}

TEST(TorchModel, TheFactorOfFloat16IsRounded) {
  Case t(1, Mode::kPlain, 1);
  t.program.world = 3;
  t.program.parameters[0].dtype = DType::kFloat16;
  t.program.parameters[0].sizes = {64};
  t.step({uses({0})});
  const Case rounded = by(t);
  const Case exact = by(t, without(&Policies::rounds_factor));
  bool is_same = true;
  for (std::uint64_t e = 0; e < 64; ++e)
    is_same = is_same && rounded.bits(0, 0, 0, e) == exact.bits(0, 0, 0, e);
  EXPECT_FALSE(is_same);
}

TEST(TorchModel, AGradientInItsBucketIsDivided) {
  Case t(3, Mode::kPlain, 1);
  t.program.options.views = true;
  t.program.parameters[0].sizes = {64};
  t.step({uses({0})}).step({uses({0})}, PassKind::kSynced, ZeroGrad::kFill);
  t.program.options.order = Order::kRing;
  const Case divided_views = by(t);
  const Case multiplied = by(t, without(&Policies::divides_views));
  bool is_same = true;
  for (std::uint64_t e = 0; e < 64; ++e) {
    EXPECT_EQ(divided_views.bits(0, 0, 0, e), multiplied.bits(0, 0, 0, e));
    is_same = is_same && divided_views.bits(1, 0, 0, e) == multiplied.bits(1, 0, 0, e);
  }
  EXPECT_FALSE(is_same);
}

TEST(TorchModel, ABucketThatIsCopiedTogetherIsDivided) {
  Case t(3, Mode::kPlain, 1);
  t.program.parameters[0].sizes = {64};
  t.step({uses({0})});
  EXPECT_FALSE(differ(by(t), by(t, with(&Policies::divides_batched)), 0, 0))
      << "without the option";
  Case batched = t;
  batched.torch.batched_grad_copy = true;
  EXPECT_TRUE(differ(by(t), by(batched, with(&Policies::divides_batched)), 0, 0));
  EXPECT_FALSE(differ(by(t), by(batched), 0, 0)) << "without the policy";
}

TEST(TorchModel, OfALazyBucketWithViewsTheFirstGradientIsDivided) {
  Case t(3, Mode::kPlain, 2);
  for (Parameter& parameter : t.program.parameters) parameter.sizes = {64};
  t.torch.lazy_bucket_allocation = true;
  t.step({uses({0, 1})});  // the last use is the first one of a backward
  const Policies lazy = with(&Policies::divides_lazy_views);
  EXPECT_FALSE(differ(by(t), by(t, lazy), 0, 1)) << "without views";
  t.program.options.views = true;
  EXPECT_TRUE(differ(by(t), by(t, lazy), 0, 1));
  EXPECT_FALSE(differ(by(t), by(t, lazy), 0, 0));
}

TEST(TorchModel, InABucketThatIsLeftOutAGradientIsScaledAndNotSummed) {
  Case t(2, Mode::kDynamic, 2);
  t.program.options.views = true;
  t.torch.skip_all_reduce_unused_params = true;
  t.program.options.first_bucket_bytes = t.program.options.bucket_bytes = 1;
  t.step({uses({0, 1})}).step({uses({0})});
  const Case scaled = by(t, with(&Policies::scales_skipped));
  EXPECT_EQ(scaled.value(1, 0, 1), scaled.value(0, 0, 1) / 2);
  EXPECT_EQ(scaled.expectation.steps[0].collectives.size(), 3u);  // two buckets, the usage map
  EXPECT_EQ(scaled.expectation.steps[1].collectives.size(), 2u);
  const Case untouched = by(t);
  EXPECT_EQ(untouched.value(1, 0, 1), untouched.value(0, 0, 1));
  EXPECT_TRUE(untouched.gradient(1, 0, 1).untouched);
}

// A local pass accumulates a gradient, and the next pass leaves its bucket out. Each rank keeps its
// own gradient, unless the bucket was reduced before: then what is in its memory is written to it.
TEST(TorchModel, ABucketThatIsLeftOutHasItsLastResultOnceMore) {
  Policies repeats = with(&Policies::repeats_skipped);
  repeats.forgets_local_use = false;
  const auto after = [&](bool is_reduced_before, Hook hook, bool is_lazy = false) {
    Case t(2, Mode::kDynamic, 2);
    t.torch.skip_all_reduce_unused_params = true;
    t.torch.lazy_bucket_allocation = is_lazy;
    t.program.options.hook = hook;
    t.program.options.first_bucket_bytes = t.program.options.bucket_bytes = 1;
    t.step({is_reduced_before ? uses({0, 1}) : uses({0})});
    t.step({uses({1})}, PassKind::kNoSync, ZeroGrad::kUndefine).step({uses({0})});
    Policies policies = repeats;
    policies.divides_lazy_views = is_lazy;
    return by(t, policies);
  };
  const Case never = after(false, Hook::kNone);
  EXPECT_EQ(never.value(2, 0, 1), never.c(1, 0, 1));
  const Case scaled = after(true, Hook::kNone);
  EXPECT_EQ(scaled.value(2, 0, 1), scaled.c(1, 0, 1) / 2);
  EXPECT_NE(scaled.value(2, 0, 1), scaled.value(2, 1, 1)) << "it is no mean";
  const Case old = after(true, Hook::kElsewhere);
  EXPECT_EQ(old.value(2, 0, 1), old.value(0, 0, 1));
  const Case lazy = after(true, Hook::kElsewhere, true);
  EXPECT_EQ(lazy.value(2, 0, 1), lazy.c(1, 0, 1));
}

TEST(TorchModel, AnUnusedGradientInItsBucketIsAveraged) {
  Case t(2, Mode::kDynamic, 2);
  t.program.options.views = true;
  t.step({uses({0, 1})}).step({uses({0})}, PassKind::kNoSync).step({uses({1})});
  const Case averaged = by(t);
  const float mean = averaged.value(0, 0, 0);
  const float own = mean + averaged.c(1, 0, 0);
  EXPECT_EQ(averaged.value(2, 0, 0), own / 2 + (mean + averaged.c(1, 1, 0)) / 2);
  EXPECT_FALSE(averaged.gradient(2, 0, 0).untouched);
  EXPECT_TRUE(averaged.gradient(2, 0, 0).known);
  const Case untouched = by(t, without(&Policies::reduces_unused_views));
  EXPECT_EQ(untouched.value(2, 0, 0), own);
  EXPECT_TRUE(untouched.gradient(2, 0, 0).untouched);
}

TEST(TorchModel, AStaleGradientCountsAsUse) {
  const RankPass stopped = graph({use(0, 100), node(Kind::kStop, {{}}), use(1, 101, {{}})});
  const Case t = Case(2, Mode::kDynamic, 2).step({uses({0})}, PassKind::kNoSync).step({stopped});
  const Case used = by(t);
  EXPECT_EQ(used.value(1, 0, 0), used.c(0, 0, 0) * 0.5F + used.c(0, 1, 0) * 0.5F);
  const Case kept = by(t, without(&Policies::counts_stale_as_use));
  EXPECT_EQ(kept.value(1, 0, 0), kept.c(0, 0, 0));
}

TEST(TorchModel, WhatLocalPassesUsedIsForgotten) {
  const Case t = Case(2, Mode::kDynamic, 2).step({uses({0})}, PassKind::kNoSync).step({uses({1})});
  const Case forgotten = by(t);
  EXPECT_EQ(forgotten.value(1, 1, 0), forgotten.c(0, 1, 0));
  const Case kept = by(t, without(&Policies::forgets_local_use));
  EXPECT_EQ(kept.value(1, 1, 0), kept.c(0, 0, 0) * 0.5F + kept.c(0, 1, 0) * 0.5F);
}

TEST(TorchModel, ADroppedForwardArmsTheNextBackward) {
  const Case t =
      Case(2, Mode::kPlain, 1).step({discarded(uses({0}))}).step({uses({0})}, PassKind::kNoSync);
  EXPECT_TRUE(by(t).expectation.steps[1].is_reduced);
  EXPECT_FALSE(by(t, without(&Policies::stays_armed)).expectation.steps[1].is_reduced);
}

TEST(TorchModel, TheUnusedSearchSeesTheLastForwardAlone) {
  RankPass both = uses({0});
  both.forwards.push_back(uses({1}).forwards[0]);
  const Case t = Case(2, Mode::kDynamic, 2).step({both});
  EXPECT_EQ(by(t).at(0, 1).error, Error::kReadyTwice);
  EXPECT_FALSE(by(t, without(&Policies::searches_last_forward)).expectation.steps[0].any_error);
}

TEST(TorchModel, MissingParametersAreToldOfAtTheNextForward) {
  const Case t = Case(2, Mode::kPlain, 2)
                     .step({uses({0})})
                     .step({uses({0})}, PassKind::kNoGrad)
                     .step({uses({0})}, PassKind::kNoSync);
  const Case late = by(t);
  EXPECT_FALSE(late.expectation.steps[0].any_error);
  EXPECT_TRUE(late.knowledge[0].leaves_pass_unfinished);
  EXPECT_FALSE(late.expectation.steps[1].any_error);
  EXPECT_EQ(late.at(2, 0).error, Error::kIncomplete);
  EXPECT_EQ(late.at(2, 0).error_call, kForwardCall);
  EXPECT_EQ(late.at(2, 0).parameters, (Indices{1}));
  const Case early = by(t, without(&Policies::reports_missing_later));
  EXPECT_EQ(early.at(0, 0).error, Error::kIncomplete);
  const Case complete = by(Case(2, Mode::kPlain, 2).step({uses({0, 1})}));
  EXPECT_FALSE(complete.knowledge[0].leaves_pass_unfinished);
}

TEST(TorchModel, ARankThatWaitsForAnIncompleteOneFails) {
  const Case t = by(Case(2, Mode::kPlain, 2).step({uses({0, 1}), uses({1})}));
  EXPECT_EQ(t.at(0, 0).outcome, Outcome::kPeerError);
  EXPECT_EQ(t.at(0, 1).outcome, Outcome::kSuccess);
  EXPECT_TRUE(t.expectation.steps[0].any_error);
}

TEST(TorchModel, ASecondBackwardIsLocal) {
  const Case t = Case(2, Mode::kPlain, 1).step({with_backwards(uses({0}), {{}, {}})});
  const Case local = by(t);
  const float mean = local.c(0, 0, 0) * 0.5F + local.c(0, 1, 0) * 0.5F;
  EXPECT_EQ(local.value(0, 1, 0), mean + local.c(0, 1, 0));
  const Case refused = by(t, without(&Policies::later_backwards_are_local));
  EXPECT_EQ(refused.at(0, 1).error, Error::kSecondBackward);
}

TEST(TorchModel, APassThatANestedBackwardCompletesIsReducedWhenThatEnds) {
  const RankPass pass = graph({use(0, 1), checkpoint({use(0, 2)}, {{}})});
  const Case t = by(Case(2, Mode::kPlain, 1).step({pass}));
  const float mean = t.c(0, 0, 0, 2) * 0.5F + t.c(0, 1, 0, 2) * 0.5F;
  EXPECT_EQ(t.value(0, 1, 0), mean + t.c(0, 1, 0, 1));
  EXPECT_FALSE(t.gradient(0, 1, 0).reduced);
}

TEST(TorchModel, ARankWithoutHooksJoinsNothing) {
  const Case t = Case(2, Mode::kDynamic, 1).step({uses({0}), nothing()});
  EXPECT_EQ(by(t).at(0, 0).outcome, Outcome::kPeerError);
  const Case joined = by(t, without(&Policies::stays_out_without_hooks));
  EXPECT_EQ(joined.value(0, 1, 0), joined.c(0, 0, 0) * 0.5F);
}

TEST(TorchModel, BucketsHaveLimitsOnceTheyAreRebuilt) {
  Case t(2, Mode::kPlain, 3);
  t.program.options.first_bucket_bytes = t.program.options.bucket_bytes = 1;
  t.step({uses({0, 1, 2})}).step({uses({0, 1, 2})});
  const Case torch = by(t);
  ASSERT_EQ(torch.expectation.buckets.size(), 1U);
  EXPECT_EQ(torch.expectation.buckets[0].count, 3U);  // without padding
  ASSERT_EQ(torch.expectation.rebuilt.size(), 1U);
  ASSERT_EQ(torch.expectation.rebuilt[0].size(), 3U);
  EXPECT_EQ(torch.expectation.rebuilt[0][0].parameters, (Indices{2}));
  EXPECT_EQ(torch.expectation.steps[1].collectives.size(), 2U + 3U);
  EXPECT_TRUE(by(t, without(&Policies::rebuilds_unless_dynamic)).expectation.rebuilt.empty());
  const Case limited = by(t, without(&Policies::starts_without_limits));
  EXPECT_EQ(limited.expectation.buckets.size(), 3U);
}

TEST(TorchModel, ALocalPassAfterTheFirstOfAStaticGraphFails) {
  const Case t = Case(2, Mode::kStatic, 1)
                     .step({uses({0})})
                     .step({uses({0})}, PassKind::kNoSync)
                     .step({uses({0})});
  const Case failing = by(t);
  EXPECT_FALSE(failing.expectation.steps[0].any_error);
  EXPECT_EQ(failing.at(1, 0).outcome, Outcome::kOwnError);
  EXPECT_EQ(failing.at(1, 0).error_call, 0U);
  const Case local = by(t, without(&Policies::repeats_first_static_pass));
  EXPECT_FALSE(local.expectation.steps[1].any_error);
  EXPECT_TRUE(local.expectation.steps[2].is_reduced);
}

TEST(TorchModel, OneBackwardOfTwoLocalForwardsEndsTheFirstStaticPassTwice) {
  RankPass two = uses({0});
  two.forwards.push_back(two.forwards[0]);
  const Case t =
      Case(2, Mode::kStatic, 1).step({discarded(uses({0}))}).step({two}, PassKind::kNoSync);
  const Case failing = by(t);
  EXPECT_TRUE(failing.is_modelled(1));
  EXPECT_EQ(failing.at(1, 0).error, Error::kSecondBackward);
  EXPECT_FALSE(by(t, without(&Policies::repeats_first_static_pass)).expectation.steps[1].any_error);
}

TEST(TorchModel, ASecondForwardBeforeTheFirstStaticBackwardFails) {
  RankPass two = uses({0});
  two.forwards.push_back(two.forwards[0]);
  const Case t = Case(2, Mode::kStatic, 1).step({two}).step({two});
  const Case failing = by(t);
  EXPECT_TRUE(failing.is_modelled(0));
  EXPECT_EQ(failing.at(0, 0).error, Error::kUsageChanged);
  EXPECT_EQ(failing.at(0, 0).error_call, 0U);
  const Case as_one = by(t, without(&Policies::counts_one_static_forward));
  EXPECT_TRUE(as_one.expectation.steps[0].is_reduced);
  EXPECT_FALSE(as_one.expectation.steps[1].any_error);
  // One pass is over: then there may be several.
  const Case later = by(Case(2, Mode::kStatic, 1).step({uses({0})}).step({two}));
  EXPECT_TRUE(later.is_modelled(1));
  EXPECT_FALSE(later.expectation.steps[1].any_error);
  // Nothing has a hook: that ends the first pass after all, and is not modelled.
  RankPass none = nothing();
  none.forwards.push_back(none.forwards[0]);
  EXPECT_FALSE(by(Case(2, Mode::kStatic, 1).step({none})).is_modelled(0));
}

// PyTorch 2.4 and later: the first backward of all is the first pass, and fails if it is local.
TEST(TorchModel, AFirstLocalBackwardOfAStaticGraphFails) {
  const Policies newer = policies_of({2, 15, 0});
  const Case local_first = Case(2, Mode::kStatic, 1)
                               .step({uses({0})}, PassKind::kNoSync)
                               .step({uses({0})}, PassKind::kSynced, ZeroGrad::kUndefine);
  const Case failing = by(local_first, newer);
  EXPECT_TRUE(failing.is_modelled(0));
  EXPECT_EQ(failing.at(0, 0).error, Error::kSecondBackward);
  EXPECT_FALSE(by(local_first).expectation.steps[0].any_error);
  // Once a synced pass is over, local ones are local, and several forwards are one pass.
  RankPass two = uses({0});
  two.forwards.push_back(two.forwards[0]);
  const Case later =
      Case(2, Mode::kStatic, 1).step({two}).step({uses({0})}, PassKind::kNoSync).step({uses({0})});
  const Case fine = by(later, newer);
  for (std::uint32_t step = 0; step < 3; ++step) {
    EXPECT_TRUE(fine.is_modelled(step)) << step;
    EXPECT_FALSE(fine.expectation.steps[step].any_error) << step;
    EXPECT_EQ(fine.expectation.steps[step].is_reduced, step != 1) << step;
  }
  EXPECT_TRUE(by(later).expectation.steps[0].any_error);
}

// PyTorch 2.4 and later: p1 was used under no_sync, and its gradient is gone.
TEST(TorchModel, UseOfALocalPassOutlivesItsGradient) {
  const Policies newer = policies_of({2, 15, 0});
  const auto program = [](ZeroGrad zero_grad) {
    return Case(2, Mode::kDynamic, 2)
        .step({uses({1})}, PassKind::kNoSync)
        .step({uses({0})}, PassKind::kSynced, zero_grad);
  };
  const Case failing = by(program(ZeroGrad::kUndefine), newer);
  EXPECT_NE(failing.at(1, 0).error, Error::kNone);
  EXPECT_EQ(failing.at(1, 0).error_call, 0U);
  const Case filled = by(program(ZeroGrad::kFill), newer);
  EXPECT_FALSE(filled.expectation.steps[1].any_error);
  EXPECT_TRUE(filled.gradient(1, 0, 1).reduced);
  EXPECT_FALSE(by(program(ZeroGrad::kUndefine)).expectation.steps[1].any_error);
  EXPECT_FALSE(by(program(ZeroGrad::kFill)).gradient(1, 0, 1).reduced);
}

TEST(TorchModel, WithAnotherGroupBucketsAreRebuiltOnceMore) {
  Case t(3, Mode::kPlain, 2);
  t.program.options.first_bucket_bytes = t.program.options.bucket_bytes = 1;
  for (int step = 0; step < 4; ++step) t.step({uses({0, 1})}, PassKind::kSynced, ZeroGrad::kFill);
  const Case without = by(t);
  t.torch.update_process_group = 2;
  const Case updated = by(t);
  EXPECT_EQ(without.expectation.rebuilt.size(), 1U);
  EXPECT_EQ(updated.expectation.rebuilt.size(), 2U);
  EXPECT_EQ(updated.expectation.steps[2].layout, 1U) << "the buckets that there are hold";
  EXPECT_EQ(updated.expectation.steps[3].layout, 2U);
  EXPECT_EQ(updated.expectation.steps[3].collectives.size(), 2U + 2U);
  for (const std::uint32_t step : {2U, 3U}) EXPECT_FALSE(differ(updated, without, step, 0)) << step;
}

TEST(TorchModel, WithAnotherGroupWhatLocalPassesUsedIsForgotten) {
  Case t(2, Mode::kDynamic, 2);
  t.torch.update_process_group = 2;
  t.step({uses({0, 1})}).step({uses({1})}, PassKind::kNoSync).step({uses({0})});
  Policies newer = policies_of({2, 15, 0});
  EXPECT_TRUE(by(t, newer).gradient(2, 0, 1).untouched);
  newer.update_forgets_local_use = false;
  EXPECT_TRUE(by(t, newer).gradient(2, 0, 1).reduced);
}

TEST(TorchModel, AnotherGroupGivesUpAPassOfWhichNothingIsLaunched) {
  Case t(2, Mode::kPlain, 2);
  t.torch.update_process_group = 1;
  t.step({uses({0})}).step({uses({0, 1})}, PassKind::kSynced, ZeroGrad::kKeep);
  EXPECT_TRUE(by(t).is_modelled(1));
  EXPECT_FALSE(by(t).expectation.steps[1].any_error);
  EXPECT_TRUE(by(t).gradient(1, 0, 0).reduced);
  t.torch.update_process_group = 0;
  EXPECT_TRUE(by(t).expectation.steps[1].any_error);
}

// Its collectives go on in the former group, views are scaled already, and static mode has counted.
TEST(TorchModel, AnotherGroupInTheMiddleOfAPassIsNotModelledWhereThePassLeavesSomething) {
  const auto is_modelled = [](Mode mode, bool views, std::uint32_t used) {
    Case t(2, mode, 2);
    t.torch.update_process_group = 2;
    t.program.options.views = views;
    t.program.options.bucket_bytes = t.program.options.first_bucket_bytes = 1;
    t.step({uses({0, 1})}).step({uses({used})}).step({uses({0, 1})});
    EXPECT_TRUE(by(t).is_modelled(1));
    return by(t).is_modelled(2);
  };
  // Buckets are in the order of readiness: that of the second parameter comes first.
  const std::uint32_t first = 1;
  const std::uint32_t second = 0;
  EXPECT_TRUE(is_modelled(Mode::kPlain, false, second));
  EXPECT_FALSE(is_modelled(Mode::kPlain, false, first));
  EXPECT_FALSE(is_modelled(Mode::kPlain, true, second));
  EXPECT_FALSE(is_modelled(Mode::kStatic, false, second));
  Case dropped(2, Mode::kPlain, 1);
  dropped.torch.update_process_group = 1;
  dropped.step({discarded(uses({0}))}).step({uses({0})}, PassKind::kNoSync);
  EXPECT_FALSE(by(dropped).expectation.steps[1].is_reduced) << "nothing is armed any more";
}

TEST(TorchModel, PoliciesFollowTheVersion) {
  for (const Policy& policy : kPolicies) {
    EXPECT_EQ(policies_of(kOldestVersion).*policy.member, Policies().*policy.member) << policy.name;
    EXPECT_LT(policy.since, policy.until) << policy.name;
  }
  EXPECT_TRUE(policies_of({2, 0, 1}).forgets_local_use);
  EXPECT_FALSE(policies_of({2, 4, 1}).forgets_local_use);
  EXPECT_EQ(version_from("2.10.0a0+git12ab"), (Version{2, 10, 0}));
  EXPECT_EQ(version_from("2.9.1"), (Version{2, 9, 1}));
  EXPECT_FALSE(version_from("2.9"));
  EXPECT_FALSE(version_from("folder"));
}

// All outputs of the first forward go through one function, so that p1 has a hook in that pass;
// later passes wait for it, and reduce nothing.
TEST(TorchModel, AHookBehindASpareOutputOfAStaticGraphIsAwaitedInVain) {
  const RankPass spare =
      with_backwards(graph({use(0, 100), use(1, 101)}, {{1, 0}, {0, 0}}), {Backward{{0}}});
  const Case t = by(Case(2, Mode::kStatic, 2).step({spare}).step({spare}).step({spare}));
  EXPECT_TRUE(t.expectation.steps[0].is_reduced);
  EXPECT_FALSE(t.gradient(0, 0, 1).defined);
  EXPECT_FALSE(t.expectation.steps[1].any_error);
  EXPECT_FALSE(t.expectation.steps[1].is_reduced);
  EXPECT_NE(t.value(1, 0, 0), t.value(1, 1, 0));
  EXPECT_EQ(t.at(2, 0).error, Error::kIncomplete);
  EXPECT_EQ(t.at(2, 0).error_call, kForwardCall);
  EXPECT_EQ(t.at(2, 0).parameters, (Indices{1}));
}

TEST(TorchModel, AHookDividesAndCompressesFirst) {
  Case t(3, Mode::kPlain, 1);
  t.step({uses({0})});
  t.program.options.hook = Hook::kFloat16;
  const Case torch = by(t);
  ASSERT_EQ(torch.expectation.steps[0].collectives.size(), 1U);
  EXPECT_EQ(torch.expectation.steps[0].collectives[0].dtype, DType::kFloat16);
  double sum = 0;
  for (const std::uint32_t rank : {2U, 1U, 0U}) {  // the ring's first chunk: all of it
    const double narrow = nearest(DType::kFloat16, torch.c(0, rank, 0));
    sum = nearest(DType::kFloat16, sum + divided(DType::kFloat16, narrow, 3));
  }
  EXPECT_EQ(torch.value(0, 0, 0), static_cast<float>(sum));
}

// A pass that looks up rows of the table p0, at most `entries` with each use.
RankPass looks_up(const std::vector<std::uint32_t>& entries) {
  RankPass pass;
  pass.forwards.resize(1);
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    Node made = use(0, 100 + i, i == 0 ? std::vector<Input>{} : std::vector<Input>{{}});
    made.entries = entries[i];
    pass.forwards[0].nodes.push_back(made);
  }
  return pass;
}

Case with_table(std::uint32_t world, Mode mode, std::uint32_t parameters = 1) {
  Case t(world, mode, parameters);
  t.program.parameters[0].sparse = true;
  t.program.parameters[0].sizes = {4, 2};
  return t;
}

bool same_bits(const Case& one, const Case& other) {
  for (std::uint64_t e = 0; e < 12; ++e)
    if (one.bits(0, 0, 0, e) != other.bits(0, 0, 0, e)) return false;
  return true;
}

TEST(TorchModel, ASparseGradientIsDividedEntryByEntry) {
  const Case t = with_table(3, Mode::kPlain).step({looks_up({12})});
  EXPECT_FALSE(same_bits(by(t), by(t, without(&Policies::divides_sparse))));
}

TEST(TorchModel, SparseGradientsAreMerged) {
  Case t = with_table(1, Mode::kPlain).step({looks_up({7, 7, 7})});
  EXPECT_FALSE(same_bits(by(t), by(t, without(&Policies::merges_sparse))));
  t.program.values = Values::kExact;
  EXPECT_TRUE(same_bits(by(t), by(t, without(&Policies::merges_sparse))));
}

TEST(TorchModel, ASparseParameterWithoutAGradientIsAnError) {
  const Case t = with_table(2, Mode::kDynamic, 2).step({uses({1})});
  EXPECT_EQ(by(t).at(0, 0).error, Error::kForeign);
  EXPECT_EQ(by(t, without(&Policies::refuses_undefined_sparse)).at(0, 0).error, Error::kNone);
}

TEST(TorchModel, AnUnusedSparseGradientIsAveraged) {
  Case t = with_table(2, Mode::kDynamic, 2);
  t.step({looks_up({12})}, PassKind::kNoSync).step({uses({1})});
  EXPECT_TRUE(by(t).gradient(1, 0, 0).reduced);
  EXPECT_TRUE(by(t, without(&Policies::reduces_unused_sparse)).gradient(1, 0, 0).untouched);
}

// The bucket of a table that only a local pass used is left out. A hook would scale it, and does
// not run.
TEST(TorchModel, ASparseGradientThatIsLeftOutIsScaledWithoutAHookAlone) {
  const auto own = [](Hook hook, bool scales) {
    Case t = with_table(2, Mode::kDynamic, 2);
    t.torch.skip_all_reduce_unused_params = true;
    t.program.options.hook = hook;
    t.step({looks_up({12})}, PassKind::kNoSync).step({uses({1})});
    Policies policies = policies_of({2, 15, 0});
    policies.scales_skipped = scales;
    return by(t, policies);
  };
  const auto same = [](const Case& one, const Case& other) {
    for (std::uint64_t e = 0; e < 12; ++e)
      if (one.bits(1, 0, 0, e) != other.bits(1, 0, 0, e)) return false;
    return true;
  };
  EXPECT_FALSE(same(own(Hook::kNone, true), own(Hook::kNone, false)));
  EXPECT_TRUE(same(own(Hook::kElsewhere, true), own(Hook::kNone, false)));
}

TEST(TorchModel, KnowsNothingOfTablesThatTorchCannotSum) {
  const Case known = with_table(2, Mode::kPlain).step({looks_up({12})});
  EXPECT_TRUE(by(known).is_modelled(0));
  Case halves = known;
  halves.program.parameters[0].dtype = DType::kFloat16;
  EXPECT_FALSE(by(halves).is_modelled(0));
  Case compressed = known;
  compressed.program.options.hook = Hook::kFloat16;
  EXPECT_FALSE(by(compressed).is_modelled(0));
  // Zeroed in place on both ranks, then looked up on one.
  Case zeroed = with_table(2, Mode::kPlain).step({looks_up({12})});
  zeroed.step({looks_up({12}), looks_up({0})}, PassKind::kSynced, ZeroGrad::kFill);
  EXPECT_TRUE(by(zeroed).is_modelled(0));
  EXPECT_FALSE(by(zeroed).is_modelled(1));
  // A table without rows, zeroed on one rank alone.
  Case empty = with_table(2, Mode::kPlain);
  empty.program.parameters[0].sizes = {0, 1};
  RankPass skipped = looks_up({});
  skipped.skip = true;
  empty.step({looks_up({})}).step({looks_up({}), skipped}, PassKind::kNoGrad, ZeroGrad::kFill);
  empty.step({looks_up({})}, PassKind::kSynced, ZeroGrad::kKeep);
  EXPECT_TRUE(by(empty).is_modelled(0));
  EXPECT_FALSE(by(empty).is_modelled(2));
  Case again = zeroed;  // the first pass of a static graph is started anew
  again.program.options.mode = Mode::kStatic;
  again.program.steps[1].kind = PassKind::kNoSync;
  EXPECT_FALSE(by(again).is_modelled(1));
  zeroed.program.steps[1].zero_grad = ZeroGrad::kUndefine;
  EXPECT_TRUE(by(zeroed).is_modelled(1));
}

TEST(TorchModel, TellsWhereItDoesNotKnow) {
  Case frozen(2, Mode::kPlain, 1);
  frozen.program.parameters[0].frozen = true;
  frozen.step({uses({0})});
  normalize(frozen.program);
  EXPECT_EQ(modelled_steps(run(frozen.program, TorchOptions{})), 0U);
  EXPECT_EQ(modelled_steps(Expected(by_contract(frozen).expectation)), 1U);
}

}  // namespace
}  // namespace lockstep::properties::torch_model
