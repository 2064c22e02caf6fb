// The decisions of a pass, without threads, tensors and groups.
#include "reducer/core/pass_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace core {
namespace {

using Kind = Action::Kind;
using Buckets = std::vector<std::uint32_t>;

// Carries actions out, and writes down what it did: "c2" copied parameter 2, "L0" launched bucket
// 0, "M" launched the usage map.
struct Owner {
  Owner(Mode mode, const Buckets& bucket_of, LaunchTime time = LaunchTime::kWhenReady)
      : core(mode, time) {
    std::uint32_t last = 0;
    for (const std::uint32_t bucket : bucket_of) {
      core.add_parameter();
      last = std::max(last, bucket);
    }
    core.set_buckets(bucket_of, last + 1);
  }

  void begin() {
    log.clear();
    core.begin_pass();
    core.on_backward_begin();
  }
  void copy(Action action) {
    ASSERT_EQ(action.kind, Kind::kCopyToBucket);
    log += "c" + std::to_string(action.index) + " ";
    core.on_copied(action.index);
  }
  void launch() {
    for (Action next = core.next_launch(); next.kind != Kind::kNone; next = core.next_launch()) {
      log += next.kind == Kind::kLaunch ? "L" + std::to_string(next.index) + " " : "M ";
      if (next.kind == Kind::kLaunch) core.on_launched(next.index);
    }
  }
  void copy_and_launch() {
    for (Action next = core.next_copy(); next.kind != Kind::kNone; next = core.next_copy())
      copy(next);
    launch();
  }
  void hook(std::size_t gradient) {
    EXPECT_TRUE(core.on_gradient_arriving(gradient)) << gradient;
    const Action action = core.on_hook(gradient);
    if (action.kind == Kind::kNone) return;
    copy(action);
    launch();
  }
  void hooks(std::initializer_list<std::size_t> gradients) {
    for (const std::size_t gradient : gradients) hook(gradient);
  }
  void end() {
    if (core.on_backward_end().kind == Kind::kLaunchUsageMap) {
      log += "M ";
      core.on_usage_agreed();
    }
    copy_and_launch();
  }

  PassCore core;
  std::string log;
};

TEST(PassCore, BucketsAreLaunchedInIndexOrderWhateverOrderTheyBecomeReadyIn) {
  Owner owner(Mode::kPlain, {2, 1, 0, 0});
  for (int pass = 0; pass < 3; ++pass) {
    owner.begin();
    owner.hooks({0, 2, 1, 3});
    EXPECT_EQ(owner.log, "c0 c2 c1 c3 L0 L1 L2 ");
    owner.end();
    EXPECT_EQ(owner.log, "c0 c2 c1 c3 L0 L1 L2 ");
    EXPECT_TRUE(owner.core.is_all_ready());
    EXPECT_TRUE(owner.core.is_all_launched());
    owner.core.on_pass_complete();
  }
}

TEST(PassCore, AGradientThatIsReadyDoesNotArriveAgainBeforeTheNextPass) {
  Owner owner(Mode::kPlain, {0, 0});
  owner.begin();
  EXPECT_TRUE(owner.core.on_gradient_arriving(0));
  EXPECT_FALSE(owner.core.on_gradient_arriving(0)) << "its one accumulation has started";
  owner.copy(owner.core.on_hook(0));
  EXPECT_FALSE(owner.core.on_gradient_arriving(0));
  EXPECT_TRUE(owner.core.on_gradient_arriving(1));
  owner.begin();
  EXPECT_TRUE(owner.core.on_gradient_arriving(0));
}

TEST(PassCore, WithoutAHookAPlainPassStaysIncompleteUntilALaterBackward) {
  Owner owner(Mode::kPlain, {0, 1});
  owner.begin();
  owner.hook(0);
  owner.end();
  EXPECT_EQ(owner.log, "c0 L0 ");
  EXPECT_FALSE(owner.core.is_all_ready());
  EXPECT_TRUE(owner.core.is_parameter_ready(0));
  EXPECT_FALSE(owner.core.is_gradient_ready(1));
  owner.core.on_backward_begin();
  owner.hook(1);
  owner.end();
  EXPECT_EQ(owner.log, "c0 L0 c1 L1 ");
  EXPECT_TRUE(owner.core.is_all_ready());
}

TEST(PassCore, WhileABucketIsBeingLaunchedNoOtherIs) {
  Owner owner(Mode::kPlain, {0, 1});
  owner.begin();
  EXPECT_TRUE(owner.core.on_gradient_arriving(0));
  owner.copy(owner.core.on_hook(0));
  const Action first = owner.core.next_launch();
  ASSERT_EQ(first.kind, Kind::kLaunch);
  owner.hook(1);  // On another thread, while the owner starts the first bucket.
  EXPECT_EQ(owner.log, "c0 c1 ");
  owner.core.on_launched(first.index);
  owner.launch();
  EXPECT_EQ(owner.log, "c0 c1 L1 ");
}

TEST(PassCore, UnreachedGradientsAreReadyWithTheFirstHookAndTheMapFollowsTheLastBucket) {
  Owner owner(Mode::kDynamic, {1, 0, 1});
  owner.begin();
  owner.core.set_reachable({true, false, true});
  owner.core.on_backward_reached();
  owner.copy_and_launch();
  EXPECT_EQ(owner.log, "c1 L0 ");
  owner.core.on_backward_reached();  // Only the first call has an effect.
  owner.copy_and_launch();
  owner.hooks({2, 0});
  EXPECT_EQ(owner.log, "c1 L0 c2 c0 L1 ") << "the map waits for the end";
  owner.end();
  EXPECT_EQ(owner.log, "c1 L0 c2 c0 L1 M ");
}

TEST(PassCore, AtTheEndOfADynamicPassTheRestIsReady) {
  Owner owner(Mode::kDynamic, {1, 0, 1});
  owner.begin();
  owner.core.set_reachable({true, true, true});
  owner.hook(2);
  owner.end();
  EXPECT_EQ(owner.log, "c2 c0 c1 L0 L1 M ");
  EXPECT_TRUE(owner.core.is_all_ready());
}

TEST(PassCore, TheFirstStaticPassAgreesFirstAndIsReducedInTheOrderOfTheLastHooks) {
  Owner owner(Mode::kStatic, {0, 0, 1, 1});
  owner.begin();
  owner.hooks({2, 0, 2, 3});  // No hook of parameter 1; two of parameter 2.
  EXPECT_EQ(owner.log, "");
  EXPECT_TRUE(owner.core.is_first_static_pass());
  owner.end();
  EXPECT_EQ(owner.log, "M c1 c0 c2 c3 L0 L1 ");
  owner.core.on_pass_complete();
  EXPECT_FALSE(owner.core.is_first_static_pass());

  owner.begin();
  owner.core.on_backward_reached();
  owner.copy_and_launch();
  owner.hooks({2, 0});
  EXPECT_EQ(owner.log, "c1 c0 L0 ");
  EXPECT_EQ(owner.core.hooks_expected(2), 2u);
  owner.hooks({3, 2});
  EXPECT_EQ(owner.log, "c1 c0 L0 c3 c2 L1 ");
  EXPECT_FALSE(owner.core.on_gradient_arriving(2)) << "a third hook was not in the first pass";
  owner.end();
  EXPECT_EQ(owner.log, "c1 c0 L0 c3 c2 L1 ") << "no second agreement";
}

TEST(PassCore, AFirstStaticPassThatFailedHasCountedNothing) {
  Owner owner(Mode::kStatic, {0, 0});
  owner.begin();
  owner.hook(0);
  EXPECT_EQ(owner.core.on_backward_end().kind, Kind::kLaunchUsageMap);
  owner.core.on_usage_agreed();  // After that, a copy fails.
  owner.begin();
  owner.hooks({1, 1, 0});
  owner.end();
  EXPECT_EQ(owner.log, "c1 c0 L0 ") << "the group has agreed already";
  owner.core.forget_passes();
  owner.begin();
  owner.hooks({0, 1});
  owner.end();
  EXPECT_EQ(owner.log, "M c0 c1 L0 ");
}

TEST(PassCore, AfterBackwardNothingIsLaunchedBeforeAllIsReady) {
  Owner owner(Mode::kPlain, {0, 1}, LaunchTime::kAfterBackward);
  owner.begin();
  owner.hook(0);
  owner.end();
  EXPECT_EQ(owner.log, "c0 ");
  owner.core.on_backward_begin();
  owner.hook(1);
  EXPECT_EQ(owner.log, "c0 c1 ");
  owner.end();
  EXPECT_EQ(owner.log, "c0 c1 L0 L1 ");
}

TEST(PassCore, AParameterIsReadyWhenTheGradientsOfAllItsReplicasAre) {
  PassCore core(Mode::kPlain, LaunchTime::kWhenReady);
  core.add_parameter();
  core.add_replica();
  core.add_parameter();
  core.add_replica();
  core.add_replica();
  core.set_buckets(Buckets{0, 0}, 1);
  ASSERT_EQ(core.gradient_count(), 5u);
  core.begin_pass();
  core.on_backward_begin();
  EXPECT_EQ(core.on_hook(3).kind, Kind::kNone);
  EXPECT_EQ(core.on_hook(1).kind, Kind::kNone);
  EXPECT_TRUE(core.is_gradient_ready(3));
  EXPECT_FALSE(core.is_parameter_ready(1));
  EXPECT_EQ(core.on_hook(4).index, 1u);
  EXPECT_TRUE(core.is_parameter_ready(1));
  EXPECT_EQ(core.on_hook(0).kind, Kind::kNone);
  const Action last = core.on_hook(2);
  EXPECT_EQ(last.kind, Kind::kCopyToBucket);
  EXPECT_EQ(last.index, 0u);
}

TEST(PassCore, ARankWithoutABackwardTakesPartInEveryCollective) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic, Mode::kStatic}) {
    Owner owner(mode, {1, 0});
    owner.core.begin_pass();
    if (owner.core.on_no_backward().kind == Kind::kLaunchUsageMap) {
      owner.log += "M ";
      owner.core.on_usage_agreed();
    }
    owner.copy_and_launch();
    EXPECT_EQ(owner.log, mode == Mode::kPlain     ? "c0 c1 L0 L1 "
                         : mode == Mode::kDynamic ? "c0 c1 L0 L1 M "
                                                  : "M c0 c1 L0 L1 ");
  }
}

TEST(PassCore, ReducersWithoutParametersHaveNothingToDo) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic, Mode::kStatic}) {
    PassCore core(mode, LaunchTime::kWhenReady);
    core.set_buckets(Buckets(), 0);
    core.begin_pass();
    core.on_backward_begin();
    EXPECT_EQ(core.on_backward_end().kind, Kind::kNone);
    EXPECT_EQ(core.next_copy().kind, Kind::kNone);
    EXPECT_EQ(core.next_launch().kind, Kind::kNone);
    core.on_pass_complete();
  }
}

TEST(PassCoreDeathTest, WhatDoesNotFitTheStateIsAProgrammerError) {
  Owner owner(Mode::kPlain, {0, 0});
  owner.begin();
  EXPECT_DEATH(owner.core.on_copied(0), "are_all_ready");
  EXPECT_DEATH(owner.core.on_launched(0), "is_launching");
  EXPECT_DEATH(owner.core.on_pass_complete(), "is_all_ready");
}

}  // namespace
}  // namespace core
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
