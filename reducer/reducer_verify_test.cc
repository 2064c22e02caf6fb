// What verify_payload demands of the group, and what happens to an error that the group finds (F3).
// comm/verified_test tests how a group checks, and comm/gloo/gloo_verified_test does so over
// sockets.
#include <gtest/gtest.h>

#include "reducer/hooks/builtin_hooks.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

class ReducerVerify : public ReducerTest {
 protected:
  static ReducerOptions verified(bool dynamic = false) {
    ReducerOptions options = quick_options(dynamic);
    options.reduction = Reduction::kRankOrdered;
    options.verify_payload = true;
    return options;
  }
  Status train() {
    rank_.undefine_grads();
    const auto outputs = rank_.forward_of({p_, q_});
    if (!rank_.forward_status.ok()) return rank_.forward_status;
    return rank_.backward(outputs, 6);
  }
  // Checks whether every collective that was started, except construction's agreement, was to be
  // verified.
  void expect_all_verified(bool on) {
    int others = 0;
    for (const Started& each : group_->started) {
      const bool is_agreement = each.collective.op == Op::kAllGather;
      others += is_agreement ? 0 : 1;
      EXPECT_EQ(each.collective.verify, on && !is_agreement) << name_of(each.collective.op);
    }
    EXPECT_GT(others, 0);
  }
};

TEST_F(ReducerVerify, F3NeedsSumsInTheOrderOfTheRanks) {
  ReducerOptions options = verified();
  options.reduction = Reduction::kNative;
  const Status status = rank_.create(membership(), options);
  ASSERT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("set reduction to kRankOrdered"), std::string::npos);
  EXPECT_EQ(group_->started.size(), 2u);  // The refusal, and its reason.
}

TEST_F(ReducerVerify, F3NeedsGroupsThatCanCheck) {
  for (const bool is_second : {false, true}) {
    Membership made = membership();
    ReducerOptions options = verified();
    if (is_second) {
      const auto second = std::make_shared<ScriptedGroup>(size_);
      second->verifies = false;
      made.backward_group = second;
      options.schedule = Schedule::kAfterBackward;
    } else {
      group_->verifies = false;
    }
    const Status status = rank_.create(made, options);
    ASSERT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.to_string().find("cannot check"), std::string::npos) << status.to_string();
    EXPECT_EQ(group_->started.size(), 2u);  // The refusal, and its reason.
  }
  ASSERT_TRUE(rank_.create(membership(), verified()).ok());
  Membership later = membership();
  group_->verifies = false;
  EXPECT_EQ(parallel().reset(later).code(), Code::kInvalidArgument);
}

// These are values, buffers, the order of a rebuild, buckets, usage maps, and exchanges of the join
// state.
TEST_F(ReducerVerify, F3CoversEverythingThatIsSentAfterTheAgreement) {
  for (const bool on : {false, true}) {
    ReducerOptions options = verified(true);
    options.verify_payload = on;
    options.rebuild_buckets = true;
    options.buffers = {make_ref<Buffer>("b", rank_.tensor({1, 2}))};
    p_->set_value(rank_.tensor({1, 2}));
    q_->set_value(rank_.tensor({3, 4}));
    ASSERT_TRUE(rank_.create(membership(), options).ok());
    ASSERT_TRUE(train().ok());
    ASSERT_TRUE(train().ok());
    EXPECT_FALSE(parallel().reducer().rebuilt_order().empty());
    // Values and buffers; then, twice, the buffers, two buckets and the map; and the order.
    EXPECT_EQ(group_->started.size(), 1u + 1u + 2u * 4u + 1u);
    expect_all_verified(on);
    rank_.parallel.reset();
  }
}

TEST_F(ReducerVerify, F3CoversTheCollectivesOfHooks) {
  ReducerOptions options = verified();
  options.hook = make_bf16_compress_hook();
  ASSERT_TRUE(rank_.create(membership(), options).ok());
  ASSERT_TRUE(train().ok());
  EXPECT_EQ(group_->sums(), 2);
  expect_all_verified(true);
}

// Every rank has the first cause: the rank that found it reports it to the others, and names the
// sender.
TEST_F(ReducerVerify, F2F3ACorruptedBucketPoisonsAndNamesItsSender) {
  ASSERT_TRUE(rank_.create(membership(), verified()).ok());
  Failure found;
  found.code = Code::kCorrupted;
  found.rank = 0;
  found.suspect = 1;
  found.definite = true;
  group_->late_failure = found;
  const Status status = train();
  ASSERT_EQ(status.code(), Code::kCorrupted) << status.to_string();
  EXPECT_EQ(status.failure().suspect, 1);
  EXPECT_EQ(status.failure().bucket, 0);
  EXPECT_EQ(status.failure().pass, 0);
  EXPECT_EQ(status.failure().parameters, (std::vector<std::string>{"q"}));
  EXPECT_EQ(train().code(), Code::kPoisoned);
  ASSERT_TRUE(parallel().reset(membership()).ok());
  EXPECT_TRUE(train().ok());
}

}  // namespace
}  // namespace lockstep::testing
