// Where the time of a pass went (T3).
#include <gtest/gtest.h>

#include "reducer/hooks/builtin_hooks.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using platform::Duration;

class ReducerStatistics : public ReducerTest {
 protected:
  const PassStatistics& last_pass() { return parallel().reducer().last_pass(); }
  // q's node is created last, so q is ready first, and its bucket is the first one.
  void train() {
    const auto above_p = rank_.fan({{p_, 0}});
    const auto above_q = rank_.fan({{q_, 0}});
    const Status status = rank_.backward(rank_.forward({{above_p, 0}, {above_q, 0}}), 6);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  void expect_in_order(const PassStatistics& pass) {
    for (const PassStatistics::Bucket& bucket : pass.buckets) {
      EXPECT_GT(bucket.ready, Duration::zero());
      EXPECT_LE(bucket.ready, bucket.launched);
      EXPECT_LE(bucket.launched, bucket.completed);
      EXPECT_LE(bucket.completed, pass.finished);
    }
    EXPECT_LE(pass.backward_ended, pass.finished);
    EXPECT_EQ(pass.exposed(), pass.finished - pass.backward_ended);
  }
};

TEST_F(ReducerStatistics, T3BeforeTheFirstPassThereAreNone) {
  create(false);
  EXPECT_EQ(last_pass().pass, kNone);
}

TEST_F(ReducerStatistics, T3TimesFollowTheWayOfAGradient) {
  create(false);
  for (int pass = 0; pass < 3; ++pass) {
    rank_.undefine_grads();
    train();
    ASSERT_EQ(last_pass().pass, pass);
    ASSERT_EQ(last_pass().gradients.size(), 2u);
    ASSERT_EQ(last_pass().buckets.size(), 2u);
    expect_in_order(last_pass());
    EXPECT_LE(last_pass().gradients[1], last_pass().gradients[0]);  // q is ready before p.
    EXPECT_LE(last_pass().gradients[1], last_pass().buckets[0].ready);
    // The launch overlaps with backward.
    EXPECT_LE(last_pass().buckets[0].launched, last_pass().gradients[0]);
    EXPECT_LE(last_pass().buckets[1].launched, last_pass().backward_ended);
  }
}

TEST_F(ReducerStatistics, T3AfterBackwardNothingIsLaunchedBeforeItsEnd) {
  ReducerOptions options = quick_options(false);
  options.schedule = Schedule::kAfterBackward;
  ASSERT_TRUE(rank_.create(membership(), options).ok());
  train();
  expect_in_order(last_pass());
  for (const PassStatistics::Bucket& bucket : last_pass().buckets)
    EXPECT_GE(bucket.launched, last_pass().backward_ended);
}

TEST_F(ReducerStatistics, T3UnusedParametersAndHooksHaveTimesAndFrozenOnesHaveNone) {
  const Ref<Parameter> frozen = rank_.add("f", {DType::kFloat32, Shape::row_major({2}), false});
  ReducerOptions options = quick_options(true);
  options.hook = make_all_reduce_hook();
  ASSERT_TRUE(rank_.create(membership(), options).ok());
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 6).ok());
  expect_in_order(last_pass());
  EXPECT_GT(last_pass().gradients[0], Duration::zero());
  EXPECT_GT(last_pass().gradients[1], Duration::zero());  // q was marked unused.
  EXPECT_EQ(last_pass().gradients[2], Duration::zero());
}

TEST_F(ReducerStatistics, T3AFailedPassLeavesThoseOfTheOneBeforeAndAResetNone) {
  create(false);
  train();
  ASSERT_FALSE(rank_.backward(rank_.forward_of({q_}), 6).ok());
  EXPECT_EQ(last_pass().pass, 0);
  ASSERT_TRUE(parallel().reset(membership()).ok());
  EXPECT_EQ(last_pass().pass, kNone);
}

TEST_F(ReducerStatistics, T3BucketsAreThoseOfTheLayoutOfThePass) {
  ReducerOptions options = quick_options(false, {1, 1024});
  options.rebuild_buckets = true;
  ASSERT_TRUE(rank_.create(membership(), options).ok());
  for (int pass = 0; pass < 2; ++pass) {
    rank_.undefine_grads();
    train();
    EXPECT_EQ(last_pass().buckets.size(), parallel().reducer().layout().buckets.size());
    expect_in_order(last_pass());
  }
}

}  // namespace
}  // namespace lockstep::testing
