// The reducer in short, on one rank. Other tests take the clauses of the contract one by one:
// reducer_gradient_test (G), reducer_pass_test (P), reducer_agreement_test (B),
// reducer_failure_test (F, T).
#include <gtest/gtest.h>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

TEST_F(ReducerTest, EveryBucketIsLaunchedOnceAscendingAndTheMeanComesBack) {
  create(false);
  for (int pass = 0; pass < 3; ++pass) {
    rank_.undefine_grads();
    const std::size_t before = group_->started.size();
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
    EXPECT_EQ(values_of(p_->grad()), (Values{6, 7}));
    ASSERT_EQ(group_->started.size(), before + 2);
    EXPECT_EQ(group_->started[before].collective.bucket, 0);
    EXPECT_EQ(group_->started[before + 1].collective.bucket, 1);
    EXPECT_EQ(group_->started[before].collective.pass, pass);
  }
}

TEST_F(ReducerTest, AMissingParameterIsNamedInTheSameCall) {
  create(false);
  const Status status = rank_.backward(rank_.forward_of({p_}), 1);
  ASSERT_EQ(status.code(), Code::kIncomplete);
  EXPECT_EQ(status.failure().parameters, std::vector<std::string>{"q"});
  EXPECT_EQ(status.failure().pass, 0);
}

TEST_F(ReducerTest, WhatNobodyUsedStaysUndefinedInDynamicMode) {
  create(true);
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 3).ok());
  EXPECT_EQ(first(p_), 3);
  EXPECT_FALSE(q_->grad().defined());
}

TEST_F(ReducerTest, P17ADtypeThatTheGroupCannotReduceIsRefused) {
  ParameterSpec spec;
  spec.dtype = DType::kFloat16;
  rank_.add("half", spec);
  Membership refusing = membership();
  group_->refused_dtype = DType::kFloat16;
  const Status status = rank_.create(refusing, quick_options(false));
  ASSERT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("half"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::testing
