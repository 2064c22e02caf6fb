// When a pass is complete, and what a backward of it may do: clauses P2 to P10.
#include <gtest/gtest.h>

#include <atomic>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using ReducerPass = ReducerTest;
using Names = std::vector<std::string>;

TEST_F(ReducerPass, P2ADiscardedForwardStartsNothingAndTheNextPassIsNormal) {
  for (const bool dynamic : {false, true}) {
    for (const bool uses_all : {true, false}) {
      create(dynamic);
      rank_.undefine_grads();
      (void)rank_.forward_of(uses_all ? std::vector{p_, q_} : std::vector{p_});
      EXPECT_EQ(group_->sums(), 0);
      ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 2).ok());
      EXPECT_EQ(buckets_of(*group_), (std::vector<int>{0, 1}));
      EXPECT_EQ(first(q_), 2);
    }
  }
}

TEST_F(ReducerPass, P2UnusedParametersAreMarkedAtTheFirstHookOfThePass) {
  create(true);
  int before_hook = -1;
  int after_hook = -1;
  const auto late = rank_.node({}, [&](auto, auto, const auto&) {
    after_hook = group_->sums();
    return Status();
  });
  const auto early = rank_.node({{p_, 0}, {late, 0}}, [&](auto in, auto out, const auto&) {
    before_hook = group_->sums();
    for (Tensor& o : out) o = in[0];
    return Status();
  });
  ASSERT_TRUE(rank_.backward(rank_.forward({{early, 0}}), 2).ok());
  EXPECT_EQ(before_hook, 0);  // q, in bucket 0, is known to be unused, but not marked.
  EXPECT_EQ(after_hook, 2);   // The hook of p marked q, so both buckets are in flight.
}

// Records the order of hooks.
class BucketOrderHook final : public GradientHook {
 public:
  Status gradient_ready(Parameter&, std::size_t index, GraphTask&) override {
    order.push_back(index);
    return {};
  }
  std::vector<std::size_t> order;
};

TEST(ReducerPassOrder, P3EveryBucketOnceAscendingWhateverOrderGradientsArriveIn) {
  constexpr int kRanks = 3;
  constexpr std::size_t kParameters = 6;
  const auto memberships = local_memberships(kRanks);
  std::vector<std::vector<int>> buckets(kRanks);
  std::vector<std::vector<std::size_t>> hooks(kRanks);
  on_ranks(kRanks, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank(1, static_cast<std::uint64_t>(r) + 1);
    std::vector<Edge> edges;
    for (std::size_t k = 0; k < kParameters; ++k) {
      ParameterSpec spec;
      spec.device = k == 2 ? 1 : 0;  // One gradient comes from another thread.
      edges.push_back({rank.add("p" + std::to_string(k), spec), 0});
    }
    ASSERT_TRUE(rank.create(memberships[i], quick_options(false)).ok());
    BucketOrderHook hook;
    for (std::size_t k = 0; k < kParameters; ++k)
      if (k != 2) rank.parameters[k]->add_hook(&hook, k);
    for (int pass = 0; pass < 4; ++pass) {
      const Status status = rank.backward(rank.forward({{rank.fan(edges), 0}}), 1 + r);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    hooks[i] = hook.order;
    buckets[i] = buckets_of(static_cast<LocalGroup&>(*memberships[i].group));
  });
  EXPECT_NE(hooks[0], hooks[1]);  // Otherwise the test would prove nothing.
  EXPECT_NE(hooks[1], hooks[2]);
  std::vector<int> expected;
  for (int pass = 0; pass < 4; ++pass)
    for (int b = 0; b < static_cast<int>(kParameters); ++b) expected.push_back(b);
  for (const auto& seen : buckets) EXPECT_EQ(seen, expected);
}

// The gradient of `inner` comes from a backward inside a node that passes on to `outer`.
class ReducerNested : public ReducerTest {
 protected:
  Ref<Node> checkpoint(const Ref<Parameter>& inner, const Ref<Parameter>& outer) {
    return rank_.node({{outer, 0}}, [=, this](auto in, auto out, const BackwardContext& context) {
      const std::vector<Edge> roots = {{inner, 0}};
      const std::vector<Tensor> gradients = {in[0]};
      const Status status = context.engine.backward_nested(context, roots, gradients, false);
      sums_inside_ = group_->sums();
      inside_ = inner->grad().defined() ? first(inner) : 0;
      out[0] = in[0];
      return status;
    });
  }
  int sums_inside_ = -1;
  double inside_ = -1;
};

TEST_F(ReducerNested, P4ABucketThatCompletesInANestedBackwardIsNotFinalizedThere) {
  create(false);
  group_->peers = [](const Collective& c) {
    for (std::size_t i = 0; i < c.count; ++i)
      set_element(c.dtype, c.data, i, element(c.dtype, c.data, i) + 100);
  };
  ASSERT_TRUE(rank_.backward(rank_.forward({{checkpoint(q_, p_), 0}}), 6).ok());
  EXPECT_EQ(sums_inside_, 1);  // It is launched at once.
  EXPECT_EQ(inside_, 6);       // The gradient is still the local one.
  EXPECT_EQ(first(q_), 103);
  EXPECT_EQ(first(p_), 103);
  EXPECT_EQ(group_->sums(), 2);  // It is finalized once.
}

TEST_F(ReducerNested, P4ACheckpointInACheckpointIsPartOfTheOnePass) {
  const auto r = rank_.add("r");
  int sums = 0;                 // The sums before the pass.
  std::vector<int> before_end;  // The sums since then, after each nested backward.
  // This does for any node what checkpoint() does.
  const auto around = [&](const Ref<Node>& body, const Ref<Parameter>& of_body,
                          const Ref<Parameter>& outer) {
    return rank_.node({{outer, 0}}, [&, body, of_body](auto in, auto out, const auto& context) {
      const std::vector<Edge> roots = {{body, 0}};
      const std::vector<Tensor> gradients = {in[0]};
      const Status status = context.engine.backward_nested(context, roots, gradients, false);
      before_end.push_back(group_->sums() - sums);
      EXPECT_EQ(first(of_body), 6);  // Its sum has not been copied back yet.
      out[0] = in[0];
      return status;
    });
  };
  for (const bool is_static : {false, true}) {
    ReducerOptions options = quick_options(false);
    options.static_graph = is_static;
    ASSERT_TRUE(rank_.create(membership(), options).ok());
    group_->peers = [](const Collective& c) {  // Usage maps stay as they are.
      for (std::size_t i = 0; c.bucket != kNone && i < c.count; ++i)
        set_element(c.dtype, c.data, i, element(c.dtype, c.data, i) + 100);
    };
    for (int pass = 0; pass < 3; ++pass) {
      rank_.undefine_grads();
      sums = group_->sums();
      before_end.clear();
      const Ref<Node> outermost = around(around(r, r, q_), q_, p_);
      const Status status = rank_.backward(rank_.forward({{outermost, 0}}), {6, 6});
      ASSERT_TRUE(status.ok()) << status.to_string();
      // The first static pass is reduced at its end, after the usage map.
      const bool is_counted = is_static && pass == 0;
      EXPECT_EQ(before_end, is_counted ? (std::vector<int>{0, 0}) : (std::vector<int>{1, 2}));
      EXPECT_EQ(group_->sums() - sums, is_counted ? 4 : 3);
      for (const auto& parameter : rank_.parameters) EXPECT_EQ(first(parameter), 103);
      EXPECT_EQ(parallel().reducer().last_pass().pass, pass);
    }
    rank_.parallel.reset();
  }
}

TEST_F(ReducerNested, P4ANestedBackwardOfALocalOneStaysLocal) {
  create(false);
  const DataParallel::NoSync no_sync(parallel());
  ASSERT_TRUE(rank_.backward(rank_.forward({{checkpoint(q_, p_), 0}}), 6).ok());
  EXPECT_EQ(inside_, 6);
  EXPECT_EQ(group_->sums(), 0);
}

TEST_F(ReducerNested, P4ABackwardOfItsOwnInsideOfASyncedOneIsLocal) {
  create(false);
  const auto outer = rank_.node({{p_, 0}, {q_, 0}}, [&](auto in, auto out, const auto&) {
    // This backward is not a nested one.
    const Status status = rank_.backward({{q_, 0}}, {100, 100});
    sums_inside_ = group_->sums();
    for (Tensor& o : out) o = in[0];
    return status;
  });
  const Status status = rank_.backward(rank_.forward({{outer, 0}}), 6);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(sums_inside_, 0);
  EXPECT_EQ(first(q_), 106);
  EXPECT_EQ(group_->sums(), 2);
}

TEST_F(ReducerNested, P4ABackwardOfItsOwnThatReachesWhatIsTakenRaises) {
  create(false);
  const auto outer = rank_.node({{p_, 0}}, [&](auto in, auto out, const auto&) {
    out[0] = in[0];
    return rank_.backward({{q_, 0}}, {100, 100});
  });
  const Status status = rank_.backward(rank_.forward({{q_, 0}, {outer, 0}}), 6);
  ASSERT_EQ(status.code(), Code::kReadyTwice) << status.to_string();
  EXPECT_EQ(status.failure().parameters, Names{"q"});
  EXPECT_FALSE(parallel().poisoned().ok());  // The bucket of q was in flight.
}

TEST_F(ReducerNested, P4ANestedBackwardThatReachesSyncedOutputsBeginsTheirPass) {
  create(false);
  const auto r = rank_.add("r");  // The reducer does not reduce it.
  const auto local = rank_.node({{r, 0}}, [&](auto in, auto out, const BackwardContext& context) {
    out[0] = in[0];
    const auto roots = rank_.forward_of({p_, q_});
    const std::vector<Tensor> gradients(2, in[0]);
    const Status status = context.engine.backward_nested(context, roots, gradients, false);
    sums_inside_ = group_->sums();
    return status;
  });
  ASSERT_TRUE(rank_.backward({{local, 0}}, 6).ok());
  EXPECT_EQ(sums_inside_, 2);
  EXPECT_EQ(parallel().reducer().last_pass().pass, 0);
  EXPECT_EQ(first(p_), 6);
  EXPECT_EQ(first(q_), 6);
}

TEST_F(ReducerNested, P1_10AForwardInsideOfABackwardOfThePassIsRefused) {
  create(false);
  Status inside;
  const auto outer = rank_.node({{p_, 0}}, [&](auto in, auto out, const auto&) {
    (void)rank_.forward_of({p_, q_});
    inside = rank_.forward_status;
    out[0] = in[0];
    return Status();
  });
  // It is not disturbed.
  ASSERT_TRUE(rank_.backward(rank_.forward({{outer, 0}, {q_, 0}}), 6).ok());
  EXPECT_EQ(inside.code(), Code::kInvalidArgument) << inside.to_string();
  EXPECT_EQ(first(p_), 6);
  EXPECT_EQ(first(q_), 6);
}

class ReducerTwoWorkers : public ReducerTest {
 protected:
  ReducerTwoWorkers() : ReducerTest(1) {}
};

// Runs before the reducer's hook, and delays the worker that has accumulated until the other one
// had time to.
class HoldingHook final : public GradientHook {
 public:
  Status gradient_arriving(Parameter&, std::size_t, GraphTask&) override {
    ++arrivals_;
    return {};
  }
  Status gradient_ready(Parameter&, std::size_t, GraphTask&) override {
    while (arrivals_ < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return {};
  }

 private:
  std::atomic<int> arrivals_{0};
};

TEST_F(ReducerTwoWorkers, P6ReadyTwiceRaisesForTheSecondOfTwoWorkersThoughTheFirstIsNotThrough) {
  HoldingHook hook;
  q_->add_hook(&hook, 0);
  create(false);
  const auto elsewhere = rank_.node(
      {{p_, 0}},
      [&](auto in, auto out, const BackwardContext& context) {
        out[0] = in[0];
        const std::vector<Edge> roots = {{q_, 0}};
        return context.engine.backward_nested(context, roots, in, false);
      },
      1);
  const Status status = rank_.backward(rank_.forward({{q_, 0}, {elsewhere, 0}}), 6);
  ASSERT_EQ(status.code(), Code::kReadyTwice) << status.to_string();
  EXPECT_EQ(status.failure().parameters, Names{"q"});
  EXPECT_EQ(first(q_), 6);  // It has not changed.
  q_->remove_hook(&hook);
}

TEST_F(ReducerNested, P6ReadyTwiceRaisesAtTheHookNamingTheParameterAndThePass) {
  create(false);
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
  const Status status = rank_.backward(rank_.forward({{checkpoint(q_, q_), 0}, {p_, 0}}), 6);
  ASSERT_EQ(status.code(), Code::kReadyTwice) << status.to_string();
  const Failure& failure = status.failure();
  EXPECT_EQ(failure.parameters, Names{"q"});
  EXPECT_EQ(failure.rank, 0);
  EXPECT_EQ(failure.pass, 1);
  EXPECT_EQ(failure.bucket, 0);
  EXPECT_NE(failure.detail.find("pass 1"), std::string::npos) << failure.detail;
  EXPECT_FALSE(parallel().poisoned().ok());  // The bucket of q was in flight.
}

TEST_F(ReducerNested, P6InDynamicModeANestedBackwardIsNotSeenByTheUnusedSearch) {
  create(true);
  const Status status = rank_.backward(rank_.forward({{checkpoint(q_, p_), 0}}), 6);
  ASSERT_EQ(status.code(), Code::kReadyTwice) << status.to_string();
  EXPECT_EQ(status.failure().parameters, Names{"q"});
  EXPECT_NE(status.failure().detail.find("pass 0 took it for unused"), std::string::npos)
      << status.failure().detail;
}

TEST_F(ReducerPass, P6WhatABackwardReachesBesideTheOutputsIsReadyTwiceInDynamicModeAlone) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    const auto outputs = rank_.forward_of({p_});
    const Status status = rank_.backward({outputs[0], {q_, 0}}, 6);
    if (!dynamic) {
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(group_->sums(), 2);
      continue;
    }
    ASSERT_EQ(status.code(), Code::kReadyTwice) << status.to_string();
    EXPECT_EQ(status.failure().parameters, Names{"q"});
  }
}

TEST_F(ReducerPass, P5TheCallThatLeavesParametersMissingNamesEveryOneOfThem) {
  const auto r = rank_.add("r");
  const auto s = rank_.add("s");
  create(false);
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_, r, s}), 1).ok());
  const Status status = rank_.backward(rank_.forward_of({q_}), 1);
  ASSERT_EQ(status.code(), Code::kIncomplete);
  EXPECT_EQ(status.failure().parameters, (Names{"p", "r", "s"}));
  EXPECT_EQ(status.failure().rank, 0);
  EXPECT_EQ(status.failure().pass, 1);
}

TEST_F(ReducerPass, P5AnOutputThatWasRetainedOrLivesOnKeepsThePassOpen) {
  for (const bool retain : {true, false}) {
    create(false);
    rank_.undefine_grads();
    auto outputs = rank_.forward_of({p_, q_});
    ASSERT_TRUE(rank_.backward({outputs[0]}, 1, retain).ok());
    if (retain) outputs.pop_back();  // The first output alone keeps the pass open.
    const Status status = parallel().check_complete();
    ASSERT_EQ(status.code(), Code::kIncomplete);
    EXPECT_EQ(status.failure().parameters, Names{"q"});
    EXPECT_EQ(status.failure().pass, 0);
    // The pass is given up, and the error is raised once.
    EXPECT_TRUE(parallel().check_complete().ok());
    EXPECT_TRUE(parallel().poisoned().ok());  // Nothing had been launched.
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
    EXPECT_EQ(first(p_), 2);
  }
}

// The outputs are a constant, a gradient that is ready, and a parameter that is not reduced.
TEST_F(ReducerPass, P5AnOutputThatLeadsToNothingMissingKeepsNoPassOpen) {
  ParameterSpec frozen;
  frozen.requires_grad = false;
  const auto r = rank_.add("r", frozen);
  create(false);
  const auto outputs =
      rank_.forward({{p_, 0}, {rank_.fan({{p_, 0}}), 0}, {}, {rank_.fan({{r, 0}}), 0}});
  const Status status = rank_.backward({outputs[0]}, 1);
  ASSERT_EQ(status.code(), Code::kIncomplete) << status.to_string();
  EXPECT_EQ(status.failure().parameters, Names{"q"});
  EXPECT_TRUE(parallel().poisoned().ok());  // The bucket of q would have been the first.
}

// No edge says what its nested backward reaches.
TEST_F(ReducerPass, P5AnOutputWithACheckpointMayLeadToAnything) {
  for (const bool is_marked : {true, false}) {
    create(false);
    rank_.undefine_grads();
    const auto hidden = rank_.node({}, [this](auto in, auto, const BackwardContext& context) {
      const std::vector<Edge> roots{{q_, 0}};
      return context.engine.backward_nested(context, roots, in, false);
    });
    if (is_marked) static_cast<FunctionNode&>(*hidden).mark_as_checkpoint();
    const auto outputs = rank_.forward({{p_, 0}, {rank_.fan({{hidden, 0}}), 0}});
    const Status status = rank_.backward({outputs[0]}, 4);
    EXPECT_EQ(status.code(), is_marked ? Code::kOk : Code::kIncomplete) << status.to_string();
    if (!is_marked) continue;
    ASSERT_TRUE(rank_.backward({outputs[1]}, 6).ok());
    EXPECT_EQ(first(p_), 4);
    EXPECT_EQ(first(q_), 6);
  }
}

// A rank whose only output is a constant joins the others when its backward ends (P8).
TEST_F(ReducerPass, P8AConstantIsAnOutputThatABackwardMayStartFrom) {
  create(true);
  const auto outputs = rank_.forward({Edge{}});
  ASSERT_TRUE(rank_.backward(outputs, 1).ok());
  EXPECT_EQ(group_->sums(), 3);
}

TEST_F(ReducerPass, P5OutputsDroppedInTheMiddleOfAPassAreFoundByCheckComplete) {
  create(false);
  auto outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(rank_.backward({outputs[1]}, 1).ok());
  outputs.clear();
  const Status status = parallel().check_complete();
  ASSERT_EQ(status.code(), Code::kIncomplete);
  EXPECT_EQ(status.failure().parameters, Names{"p"});
  EXPECT_EQ(parallel().poisoned().code(), Code::kIncomplete);  // The bucket of q was launched.
}

TEST_F(ReducerPass, P5TheNextForwardWithGradientsRaisesToo) {
  for (const bool no_sync : {false, true}) {
    create(false);
    const auto outputs = rank_.forward_of({p_, q_});
    ASSERT_TRUE(rank_.backward({outputs[0]}, 1).ok());
    const auto module = [](std::vector<Edge>&) { return Status(); };
    EXPECT_TRUE(parallel().forward_without_gradients(module).ok());
    std::unique_ptr<DataParallel::NoSync> guard;
    if (no_sync) guard = std::make_unique<DataParallel::NoSync>(parallel());
    EXPECT_TRUE(rank_.forward_of({p_}).empty());
    EXPECT_EQ(rank_.forward_status.code(), Code::kIncomplete);
    EXPECT_EQ(rank_.backward({outputs[1]}, 1).code(), Code::kSecondBackward);
  }
}

TEST_F(ReducerPass, P5AForwardInWhichABackwardLeavesThePassOpenRaises) {
  create(false);
  const auto outputs = rank_.forward_of({p_, q_});
  std::vector<Edge> more;
  const Status status = parallel().forward(
      [&](std::vector<Edge>& edges) {
        edges.push_back({p_, 0});
        return rank_.backward({outputs[0]}, 1);
      },
      more);
  ASSERT_EQ(status.code(), Code::kIncomplete) << status.to_string();
  EXPECT_EQ(status.failure().parameters, Names{"q"});
  EXPECT_TRUE(more.empty());
  EXPECT_EQ(rank_.backward({outputs[1]}, 1).code(), Code::kSecondBackward);
}

TEST_F(ReducerPass, P5InDynamicModeOutputsThatTheLossDoesNotReachCountAsUnused) {
  create(true);
  const auto outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(rank_.backward({outputs[0]}, 3).ok());
  EXPECT_EQ(group_->sums(), 3);
  EXPECT_EQ(first(p_), 3);
  EXPECT_FALSE(q_->grad().defined());
}

TEST_F(ReducerPass, P7ASecondBackwardRaisesBeforeAnyGradientIsTouched) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    rank_.undefine_grads();
    const auto outputs = rank_.forward_of({p_, q_});
    ASSERT_TRUE(rank_.backward(outputs, 4, true).ok());
    const int sums = group_->sums();
    const Status status = rank_.backward(outputs, 4, true);
    ASSERT_EQ(status.code(), Code::kSecondBackward);
    EXPECT_EQ(status.failure().rank, 0);
    EXPECT_EQ(status.failure().pass, 0);
    EXPECT_EQ(first(p_), 4);
    EXPECT_EQ(group_->sums(), sums);
    EXPECT_TRUE(parallel().poisoned().ok());
    EXPECT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
  }
}

TEST_F(ReducerPass, P7OutputsOfAnOlderPassStayThoseOfThatPass) {
  create(false);
  const auto old = rank_.forward_of({p_, q_});
  ASSERT_TRUE(rank_.backward(old, 1, true).ok());
  for (int pass = 1; pass < 4; ++pass) {
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
    EXPECT_EQ(group_->started.back().collective.pass, pass);
    const Status status = rank_.backward(old, 1, true);
    ASSERT_EQ(status.code(), Code::kSecondBackward);
    EXPECT_EQ(status.failure().pass, 0);
  }
}

TEST_F(ReducerPass, P7OfTwoForwardsAndTwoBackwardsTheSecondRaises) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    rank_.undefine_grads();
    const auto one = rank_.forward_of({p_, q_});
    const auto two = rank_.forward_of({p_, q_});
    ASSERT_TRUE(rank_.backward(one, 4).ok());
    EXPECT_EQ(rank_.backward(two, 4).code(), Code::kSecondBackward);
    EXPECT_EQ(first(q_), 4);
    EXPECT_EQ(group_->sums(), dynamic ? 3 : 2);
    EXPECT_TRUE(parallel().poisoned().ok());
  }
}

TEST_F(ReducerPass, P7DisjointLossesAreOnePassInPlainModeAndTwoInDynamic) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    rank_.undefine_grads();
    const auto outputs = rank_.forward_of({p_, q_});
    ASSERT_TRUE(rank_.backward({outputs[1]}, 4).ok());
    EXPECT_EQ(group_->sums(), dynamic ? 3 : 1);
    const Status second = rank_.backward({outputs[0]}, 4);
    if (dynamic) {
      // One backward used up what the outputs share; which of the two errors is raised does not
      // matter.
      EXPECT_TRUE(second.code() == Code::kSecondBackward || second.code() == Code::kGraphFreed);
      EXPECT_FALSE(p_->grad().defined());
    } else {
      EXPECT_TRUE(second.ok());
      EXPECT_EQ(first(p_), 4);
      EXPECT_EQ(group_->sums(), 2);
    }
  }
}

TEST_F(ReducerPass, P7InDynamicModeTheSecondOfTwoRetainedLossesIsASecondBackward) {
  create(true);
  const auto outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(rank_.backward({outputs[0]}, 4, true).ok());
  EXPECT_EQ(rank_.backward({outputs[1]}, 4, true).code(), Code::kSecondBackward);
  EXPECT_FALSE(q_->grad().defined());
}

TEST(ReducerPassEmpty, P7APassWithNothingToReduceIsCompleteWhenItsFirstBackwardEnds) {
  for (const bool dynamic : {false, true}) {
    TestRank rank;
    ParameterSpec frozen;
    frozen.requires_grad = false;
    const auto ice = rank.add("ice", frozen);
    auto group = std::make_shared<ScriptedGroup>();
    const Membership membership{group, std::make_shared<HashStore>()};
    ASSERT_TRUE(rank.create(membership, quick_options(dynamic)).ok());
    const auto outputs = rank.forward({{rank.stop(), 0}, {rank.stop(), 0}});
    ASSERT_TRUE(rank.backward({outputs[0]}, 1, true).ok());
    EXPECT_EQ(group->sums(), 0);
    EXPECT_EQ(rank.backward({outputs[1]}, 1, true).code(), Code::kSecondBackward);
  }
}

TEST(ReducerPassUnused, P8ARankThatUsedNothingJoinsEveryCollective) {
  const auto memberships = local_memberships(2);
  on_ranks(2, [&](int r) {
    TestRank rank;
    const auto p = rank.add("p");
    const auto q = rank.add("q");
    const Membership& membership = memberships[static_cast<std::size_t>(r)];
    ASSERT_TRUE(rank.create(membership, quick_options(true)).ok());
    const auto outputs = r == 0 ? rank.forward_of({p}) : rank.forward({{rank.stop(), 0}});
    const Status status = rank.backward(outputs, 8);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(values_of(p->grad()), (Values{4, 4.5}));
    EXPECT_FALSE(q->grad().defined());
    const auto& group = static_cast<LocalGroup&>(*membership.group);
    EXPECT_EQ(buckets_of(group), (std::vector<int>{0, 1}));
    EXPECT_EQ(group.started.back().collective.dtype, DType::kInt32);
  });
}

TEST_F(ReducerPass, P8InPlainModeARankThatUsedNothingRaises) {
  create(false);
  const Status status = rank_.backward(rank_.forward({{rank_.stop(), 0}}), 1);
  ASSERT_EQ(status.code(), Code::kIncomplete);
  EXPECT_EQ(status.failure().parameters, (Names{"p", "q"}));
}

TEST_F(ReducerPass, P9NoSyncAccumulatesAndTheNextSyncedPassReducesTheWholeSum) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    rank_.undefine_grads();
    {
      const DataParallel::NoSync no_sync(parallel());
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
        ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 2).ok());
    }
    EXPECT_EQ(group_->sums(), 0);
    EXPECT_EQ(first(p_), 4);
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 2).ok());
    EXPECT_EQ(first(p_), 6);
    EXPECT_EQ(first(q_), 6);
    const Started& sum = group_->started[group_->started.size() - (dynamic ? 3 : 2)];
    EXPECT_EQ(sum.collective.bucket, 0);
    // The whole gradient was scaled once.
    EXPECT_EQ(element(DType::kFloat32, sum.sent.data(), 0), 3);
  }
}

TEST_F(ReducerPass, P9AParameterUsedOnlyInsideNoSyncIsReducedInDynamicMode) {
  create(true);
  {
    const DataParallel::NoSync no_sync(parallel());
    ASSERT_TRUE(rank_.backward(rank_.forward_of({q_}), 2).ok());
  }
  // The other rank has not used q at all.
  group_->peers = [](const Collective&) {};
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 2).ok());
  EXPECT_EQ(first(q_), 1);  // (2 + 0) / 2
}

TEST_F(ReducerPass, P9NestedNoSyncRestoresTheOuterState) {
  create(false);
  {
    const DataParallel::NoSync outer(parallel());
    { const DataParallel::NoSync inner(parallel()); }
    EXPECT_FALSE(parallel().synced());
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
    EXPECT_EQ(group_->sums(), 0);
  }
  EXPECT_TRUE(parallel().synced());
}

TEST_F(ReducerPass, P9AnExceptionThatLeavesNoSyncRestoresTheOuterState) {
  create(false);
  try {
    const DataParallel::NoSync outer(parallel());
    const DataParallel::NoSync inner(parallel());
    throw std::runtime_error("the user's");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(parallel().synced());
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
  EXPECT_EQ(group_->sums(), 2);
}

TEST_F(ReducerPass, P9AModuleThatThrowsLeavesThePassesAsTheyWere) {
  create(false);
  const auto armed = rank_.forward_of({p_, q_});
  std::vector<Edge> outputs;
  const auto module = [](std::vector<Edge>&) -> Status { throw std::runtime_error("no"); };
  EXPECT_THROW(parallel().forward(module, outputs).ignore(), std::runtime_error);
  ASSERT_TRUE(rank_.backward(armed, 1).ok());
  EXPECT_EQ(group_->sums(), 2);
}

// Forwards of two parameters, with auto_sync off.
class ReducerManualSync : public ReducerTest {
 protected:
  void create_manual(bool dynamic) {
    ReducerOptions options = quick_options(dynamic);
    options.auto_sync = false;
    ASSERT_TRUE(rank_.create(membership(), options).ok());
  }
};

TEST_F(ReducerManualSync, P13ForwardsAreLocalUntilTheirOutputsAreSynced) {
  create_manual(false);
  EXPECT_FALSE(parallel().synced());
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 2).ok());
  EXPECT_EQ(group_->sums(), 0);
  EXPECT_EQ(first(p_), 2);
  std::vector<Edge> outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(parallel().sync_gradients(outputs).ok());
  ASSERT_TRUE(rank_.backward(outputs, 4).ok());
  EXPECT_EQ(group_->sums(), 2);
  EXPECT_EQ(first(p_), 6);  // The accumulated gradient is reduced, too.
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 2).ok());
  EXPECT_EQ(group_->sums(), 2);  // The next pass is local again.
}

TEST_F(ReducerManualSync, P13BucketsAreLaunchedWhileTheBackwardRuns) {
  create_manual(false);
  int launched = -1;
  const auto last = rank_.node({{p_, 0}}, [&](auto in, auto out, const auto&) {
    launched = group_->sums();
    out[0] = in[0];
    return Status();
  });
  // The later node runs first: the bucket of q, which is launched first, is full before p's hook.
  const auto fan = rank_.fan({{last, 0}, {q_, 0}});
  std::vector<Edge> outputs = rank_.forward({{fan, 0}});
  ASSERT_TRUE(parallel().sync_gradients(outputs).ok());
  ASSERT_TRUE(rank_.backward(outputs, 4).ok());
  EXPECT_EQ(launched, 1);
  EXPECT_EQ(group_->sums(), 2);
}

TEST_F(ReducerManualSync, P13SeveralForwardsAndCallsAreOnePass) {
  for (const bool dynamic : {false, true}) {
    create_manual(dynamic);
    std::vector<Edge> outputs = rank_.forward_of({p_});
    const std::vector<Edge> second = rank_.forward_of({q_});
    outputs.insert(outputs.end(), second.begin(), second.end());
    ASSERT_TRUE(parallel().sync_gradients(outputs).ok());
    ASSERT_TRUE(rank_.backward(outputs, 3).ok());
    EXPECT_EQ(group_->sums(), dynamic ? 3 : 2);
    EXPECT_EQ(group_->started.back().collective.pass, 0);
    rank_.undefine_grads();
    std::vector<Edge> one = rank_.forward_of({p_});
    std::vector<Edge> other = rank_.forward_of({q_});
    ASSERT_TRUE(parallel().sync_gradients(one).ok());
    ASSERT_TRUE(parallel().sync_gradients(other).ok());
    ASSERT_TRUE(rank_.backward({one[0], other[0]}, 5).ok());
    EXPECT_EQ(group_->started.back().collective.pass, 1);
    EXPECT_EQ(first(q_), 5);
    rank_.undefine_grads();
  }
}

TEST_F(ReducerManualSync, P13ADroppedCallStartsNothing) {
  create_manual(false);
  {
    std::vector<Edge> outputs = rank_.forward_of({p_, q_});
    ASSERT_TRUE(parallel().sync_gradients(outputs).ok());
  }
  std::vector<Edge> none;
  ASSERT_TRUE(parallel().sync_gradients(none).ok());
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 1).ok());
  EXPECT_EQ(group_->sums(), 0);
  ASSERT_TRUE(parallel().check_complete().ok());
}

TEST_F(ReducerManualSync, P13RefusedUnderNoSyncAndWithAutomaticSync) {
  create_manual(false);
  std::vector<Edge> outputs = rank_.forward_of({p_, q_});
  const Node* const before = outputs[0].node.get();
  {
    const DataParallel::NoSync guard(parallel());
    EXPECT_EQ(parallel().sync_gradients(outputs).code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(outputs[0].node.get(), before);
  outputs.clear();
  create(false);
  outputs = rank_.forward_of({p_, q_});
  EXPECT_EQ(parallel().sync_gradients(outputs).code(), Code::kInvalidArgument);
  ASSERT_TRUE(rank_.backward(outputs, 4).ok());
  EXPECT_EQ(group_->sums(), 2);
}

TEST_F(ReducerManualSync, P13AnEarlierPassThatIsNotCompleteIsRefused) {
  create_manual(false);
  std::vector<Edge> outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(parallel().sync_gradients(outputs).ok());
  ASSERT_TRUE(rank_.backward({outputs[0]}, 1).ok());
  std::vector<Edge> next = {{p_, 0}};
  EXPECT_EQ(parallel().sync_gradients(next).code(), Code::kIncomplete);
}

TEST_F(ReducerPass, P10ZeroingReplacingAndReducingAGradientForgetsItsUse) {
  create(true);
  const std::function<void()> forgets[] = {
      [&] { q_->undefine_grad(); },
      [&] { q_->fill_grad_with_zeros(); },
      [&] {
        q_->set_grad(rank_.tensor({7, 7}));
      },
      [&] {
        ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
      },
  };
  for (const auto& forget : forgets) {
    {
      const DataParallel::NoSync no_sync(parallel());
      ASSERT_TRUE(rank_.backward(rank_.forward_of({q_}), 2).ok());
    }
    ASSERT_TRUE(q_->used());
    forget();
    EXPECT_FALSE(q_->used());
    const auto before = q_->grad().defined() ? values_of(q_->grad()) : Values{};
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 2).ok());
    const auto after = q_->grad().defined() ? values_of(q_->grad()) : Values{};
    EXPECT_EQ(after, before);
    const Started& map = group_->started.back();
    EXPECT_EQ(element(DType::kInt32, map.sent.data(), 0), 1);
    EXPECT_EQ(element(DType::kInt32, map.sent.data(), 1), 0);
  }
}

}  // namespace
}  // namespace lockstep::testing
