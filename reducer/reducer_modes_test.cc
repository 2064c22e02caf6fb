// Static mode (P11), gradients as views (B7, G5), buckets in ready order (B2), and their
// combinations.
#include <gtest/gtest.h>

#include <algorithm>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using Names = std::vector<std::string>;

class ReducerModes : public ReducerTest {
 protected:
  void create_with(const std::function<void(ReducerOptions&)>& change,
                   std::vector<std::uint64_t> limits = {1}) {
    ReducerOptions options = quick_options(false, std::move(limits));
    change(options);
    const Status status = rank_.create(membership(), options);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  void create_static() {
    create_with([](ReducerOptions& o) { o.static_graph = true; });
  }
  void create_views(bool dynamic = false) {
    create_with(
        [&](ReducerOptions& o) {
          o.gradient_as_bucket_view = true;
          o.find_unused_parameters = dynamic;
        },
        {1024});
  }
  void create_rebuilding(bool views = false) {
    create_with([&](ReducerOptions& o) {
      o.rebuild_buckets = true;
      o.gradient_as_bucket_view = views;
    });
  }
  // Makes a node that uses p twice, the second time from a nested backward.
  Ref<Node> nested_use() {
    return rank_.node({{p_, 0}}, [this](auto in, auto out, const BackwardContext& context) {
      out[0] = in[0];
      const std::vector<Edge> roots{{p_, 0}};
      const std::vector<Tensor> gradients{in[0]};
      return context.engine.backward_nested(context, roots, gradients, false);
    });
  }
  void swap_gradients() {
    const Tensor held = p_->grad();
    p_->set_grad(q_->grad());
    q_->set_grad(held);
  }
  Tensor square(const Values& values) {
    return Tensor(rank_.tensor(values).storage(), 0, DType::kFloat32, Shape::row_major({2, 2}));
  }
  static bool is_view(const Ref<Parameter>& a, const Ref<Parameter>& b) {
    return a->grad().defined() && b->grad().defined() && a->grad().storage() == b->grad().storage();
  }
  std::vector<Op> ops() const {
    std::vector<Op> ops;
    for (const Started& s : group_->started)
      if (s.collective.op != Op::kAllGather) ops.push_back(s.collective.op);
    return ops;
  }
};

TEST_F(ReducerModes, P11StaticModeAndUnusedDetectionExcludeEachOther) {
  ReducerOptions options = quick_options(true);
  options.static_graph = true;
  const Status status = rank_.create(membership(), options);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
}

// A node that was created before the other one runs after it: q is ready, and its bucket, the first
// one, is complete when the node above p looks at what was launched.
TEST_F(ReducerModes, P11TheFirstPassIsReducedAtItsEndAfterTheUsageMapAndLaterOnesOverlap) {
  create_static();
  for (int pass = 0; pass < 3; ++pass) {
    rank_.undefine_grads();
    const std::size_t before = group_->started.size();
    std::size_t in_the_middle = 0;
    const auto above_p = rank_.node({{p_, 0}}, [&](auto in, auto out, const auto&) {
      in_the_middle = group_->started.size() - before;
      out[0] = in[0];
      return Status();
    });
    const auto above_q = rank_.fan({{q_, 0}});
    ASSERT_TRUE(rank_.backward(rank_.forward({{above_p, 0}, {above_q, 0}}), 6).ok());
    const bool is_first = pass == 0;
    EXPECT_EQ(in_the_middle, is_first ? 0u : 1u) << "pass " << pass;
    ASSERT_EQ(group_->started.size(), before + (is_first ? 3 : 2));
    if (is_first) {
      EXPECT_EQ(group_->started[before].collective.dtype, DType::kInt32);
    }
    const std::size_t buckets = before + (is_first ? 1 : 0);
    EXPECT_EQ(group_->started[buckets].collective.bucket, 0);
    EXPECT_EQ(group_->started[buckets + 1].collective.bucket, 1);
    EXPECT_EQ(first(p_), 6);
    EXPECT_EQ(first(q_), 6);
  }
}

TEST_F(ReducerModes, P11AParameterMayBeUsedSeveralTimesAndIsReadyWithItsLastHook) {
  create_static();
  for (int pass = 0; pass < 3; ++pass) {
    rank_.undefine_grads();
    const Status status = rank_.backward(rank_.forward({{nested_use(), 0}, {q_, 0}}), 6);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(first(p_), 12);
    EXPECT_EQ(first(q_), 6);
  }
}

TEST_F(ReducerModes, P11MoreHooksThanInTheFirstPassRaiseBeforeTheGradientIsTouched) {
  create_static();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  rank_.undefine_grads();
  const Status status = rank_.backward(rank_.forward({{nested_use(), 0}, {q_, 0}}), 6);
  ASSERT_EQ(status.code(), Code::kReadyTwice) << status.to_string();
  EXPECT_EQ(status.failure().parameters, Names{"p"});
  EXPECT_EQ(status.failure().pass, 1);
  EXPECT_EQ(first(p_), 6);  // This is the first gradient that arrived, not twice that.
}

TEST_F(ReducerModes, P11FewerHooksThanInTheFirstPassAreMissing) {
  create_static();
  ASSERT_TRUE(rank_.backward(rank_.forward({{nested_use(), 0}, {q_, 0}}), 6).ok());
  rank_.undefine_grads();
  const Status status = rank_.backward(rank_.forward_of({p_, q_}), 6);
  ASSERT_EQ(status.code(), Code::kIncomplete) << status.to_string();
  EXPECT_EQ(status.failure().parameters, Names{"p"});
}

TEST_F(ReducerModes, P11WhatNoRankUsedStaysUntouchedAndMayNotBeUsedLater) {
  create_static();
  group_->peers = [](const Collective&) {};  // The other rank contributes nothing.
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 6).ok());
  EXPECT_FALSE(q_->grad().defined());
  {
    const DataParallel::NoSync no_sync(parallel());
    ASSERT_TRUE(rank_.backward(rank_.forward_of({q_}), 4).ok());
  }
  p_->undefine_grad();
  const Status status = rank_.backward(rank_.forward_of({p_}), 6);
  ASSERT_EQ(status.code(), Code::kUsageChanged) << status.to_string();
  EXPECT_EQ(status.failure().parameters, Names{"q"});
  EXPECT_EQ(first(q_), 4);
}

// A rank without a hook of its own contributes only what it accumulated.
TEST_F(ReducerModes, P11WithoutAHookANewUseIsToldBeforeAnythingIsLaunched) {
  for (const Schedule schedule : {Schedule::kOverlapped, Schedule::kAfterBackward}) {
    create_with([&](ReducerOptions& o) {
      o.static_graph = true;
      o.schedule = schedule;
    });
    group_->peers = [](const Collective& collective) {  // The other rank uses p.
      if (collective.dtype == DType::kInt32) *reinterpret_cast<std::int32_t*>(collective.data) += 1;
    };
    const auto step = [this] {
      const Ref<Node> nothing = rank_.node({}, [](auto, auto, const auto&) { return Status(); });
      return rank_.backward(rank_.forward({{nothing, 0}}), 6);
    };
    ASSERT_TRUE(step().ok());
    ASSERT_FALSE(q_->grad().defined());
    {
      const DataParallel::NoSync no_sync(parallel());
      ASSERT_TRUE(rank_.backward(rank_.forward_of({q_}), 4).ok());
    }
    const int sums = group_->sums();
    const Status status = step();
    ASSERT_EQ(status.code(), Code::kUsageChanged) << status.to_string();
    EXPECT_EQ(status.failure().parameters, Names{"q"});
    EXPECT_EQ(group_->sums(), sums);
    EXPECT_TRUE(parallel().poisoned().ok());
    rank_.undefine_grads();
  }
}

// Nothing was launched, so the reducer is clean (P12); the ranks still have to agree on the used
// parameters.
TEST_F(ReducerModes, P11AFirstPassThatCannotStartIsCountedAgain) {
  create_static();
  group_->failure = Status(Code::kOutOfMemory, "no memory for it");
  EXPECT_EQ(rank_.backward(rank_.forward_of({p_, q_}), 1).code(), Code::kOutOfMemory);
  ASSERT_TRUE(parallel().poisoned().ok());
  group_->failure = Status();
  for (int pass = 1; pass < 3; ++pass) {
    rank_.undefine_grads();
    const Status status = rank_.backward(rank_.forward_of({p_, q_}), 6);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(first(p_), 6);
    EXPECT_EQ(parallel().reducer().last_pass().pass, pass);
  }
  EXPECT_EQ(group_->sums(), 1 + 2 + 2);
}

// The outputs that stay alive are features, or a metric, retained or not.
TEST_F(ReducerModes, P11TheFirstPassEndsWithItsFirstBackwardWhateverOutputsLive) {
  for (const bool retain : {false, true}) {
    create_static();
    group_->peers = [](const Collective&) {};  // The other rank contributes nothing.
    rank_.undefine_grads();
    const auto outputs = rank_.forward({{p_, 0}, {q_, 0}, {}});
    ASSERT_TRUE(rank_.backward({outputs[0]}, 6, retain).ok());
    EXPECT_EQ(first(p_), 3);
    EXPECT_FALSE(q_->grad().defined());
    EXPECT_EQ(group_->sums(), 3);  // The usage map, and two buckets.
    EXPECT_TRUE(parallel().check_complete().ok());
    EXPECT_EQ(rank_.backward({outputs[1]}, 6).code(), Code::kSecondBackward);
    EXPECT_TRUE(parallel().poisoned().ok());
    rank_.undefine_grads();
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 4).ok());
    EXPECT_EQ(first(p_), 2);
  }
}

TEST_F(ReducerModes, P11ALaterPassMayHaveTheSameHooksInSeveralBackwards) {
  create_static();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  rank_.undefine_grads();
  const auto outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(rank_.backward({outputs[0]}, 4).ok());
  ASSERT_TRUE(rank_.backward({outputs[1]}, 2).ok());
  EXPECT_EQ(first(p_), 4);
  EXPECT_EQ(first(q_), 2);
  EXPECT_TRUE(parallel().check_complete().ok());
}

TEST_F(ReducerModes, B7GradientsAreViewsOfOneBucketAfterTheFirstPass) {
  create_views();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  ASSERT_TRUE(is_view(p_, q_));
  const std::byte* place = p_->grad().data();
  rank_.undefine_grads();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 8).ok());
  EXPECT_EQ(p_->grad().data(), place);
  EXPECT_EQ(first(p_), 8);
  // The gradient is added, not zeroed first.
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 2).ok());
  EXPECT_EQ(p_->grad().data(), place);
  EXPECT_EQ(first(p_), 10);
}

TEST_F(ReducerModes, B7AReplacedGradientIsCopiedAndPointedBack) {
  create_views();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  const std::byte* place = p_->grad().data();
  p_->set_grad(rank_.tensor({100, 200}));
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
  EXPECT_EQ(p_->grad().data(), place);
  EXPECT_EQ(first(p_), 101);
}

// A user swaps two gradients that lie in one bucket.
TEST_F(ReducerModes, B7SwappedGradientsAreThoseOfCopyingMode) {
  for (const bool views : {false, true}) {
    SCOPED_TRACE(views ? "views" : "copying");
    rank_.undefine_grads();
    create_with([&](ReducerOptions& o) { o.gradient_as_bucket_view = views; }, {1024});
    p_->set_grad(rank_.tensor({10, 20}));
    q_->set_grad(rank_.tensor({30, 40}));
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
    EXPECT_EQ(is_view(p_, q_), views);
    swap_gradients();
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 5).ok());
    EXPECT_EQ(values_of(p_->grad()), (Values{36, 48}));
    EXPECT_EQ(values_of(q_->grad()), (Values{16, 28}));
    EXPECT_EQ(is_view(p_, q_), views);
  }
}

// A gradient that was copied to its bucket may be in flight while the user changes gradients.
TEST_F(ReducerModes, B7BetweenTwoBackwardsOfAPassNothingThatIsTakenCanBeSeenNorChanged) {
  for (const bool views : {false, true}) {
    SCOPED_TRACE(views ? "views" : "copying");
    rank_.undefine_grads();
    create_with([&](ReducerOptions& o) { o.gradient_as_bucket_view = views; });
    for (int pass = 0; pass < 2; ++pass) {
      const auto outputs = rank_.forward_of({p_, q_});
      ASSERT_TRUE(rank_.backward({outputs[1]}, 6).ok());
      EXPECT_NE(q_->grad().defined(), views);
      q_->fill_grad_with_zeros();
      p_->fill_grad_with_zeros();
      ASSERT_TRUE(rank_.backward({outputs[0]}, 2).ok());
      EXPECT_EQ(values_of(q_->grad()), (pass == 0 ? Values{6, 7} : Values{12, 14}));
      EXPECT_EQ(values_of(p_->grad()), (Values{2, 3}));
    }
  }
}

TEST_F(ReducerModes, B7WhatNobodyUsesIsTheUsersBetweenTwoBackwardsOfAPass) {
  const auto r = rank_.add("r");
  for (const bool is_zeroed : {false, true}) {
    create_with([](ReducerOptions& o) { o.static_graph = o.gradient_as_bucket_view = true; });
    rank_.undefine_grads();
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_, r}), 6).ok());
    // The first pass is counted again, and r's gradient is still a view.
    ASSERT_TRUE(parallel().reset(membership()).ok());
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
    EXPECT_EQ(values_of(r->grad()), (Values{6, 7}));
    const auto outputs = rank_.forward_of({p_, q_});
    ASSERT_TRUE(rank_.backward({outputs[0]}, 1).ok());
    ASSERT_TRUE(r->grad().defined());
    EXPECT_EQ(values_of(r->grad()), (Values{6, 7}));
    if (is_zeroed) r->fill_grad_with_zeros();
    ASSERT_TRUE(rank_.backward({outputs[1]}, 1).ok());
    EXPECT_EQ(values_of(r->grad()), (is_zeroed ? Values{0, 0} : Values{6, 7}));
  }
}

TEST_F(ReducerModes, B7ASwappedGradientThatNobodyUsesKeepsItsElements) {
  create_views(true);
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  q_->set_grad(rank_.tensor({70, 80}));
  ASSERT_TRUE(rank_.backward(rank_.forward_of({q_}), 1).ok());
  swap_gradients();  // The gradient of q lies where p's sum will be.
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 3).ok());
  EXPECT_EQ(values_of(q_->grad()), (Values{6, 7}));
  EXPECT_EQ(values_of(p_->grad()), (Values{74, 86}));
}

TEST_F(ReducerModes, B7AGradientOfOtherStridesOverItsOwnPlaceMovesThere) {
  rank_.parameters = {};
  p_ = rank_.add("m", {.shape = Shape::row_major({2, 2})});
  create_views();
  const auto pass = [&] {
    const std::vector<Tensor> gradients{square({1, 2, 3, 4})};
    const Status status = rank_.engine.backward(rank_.forward_of({p_}), gradients, false);
    ASSERT_TRUE(status.ok()) << status.to_string();
  };
  pass();
  const Tensor& view = p_->grad();
  const std::byte* place = view.data();
  const std::int64_t offset = (view.data() - view.storage()->data()) / 4;
  const std::int64_t sizes[] = {2, 2};
  p_->set_grad(Tensor(view.storage(), offset, DType::kFloat32, Shape::column_major(sizes)));
  pass();  // The pass adds to {1, 3, 2, 4}.
  EXPECT_EQ(p_->grad().data(), place);
  EXPECT_TRUE(p_->grad().shape().same_strides(p_->shape()));
  EXPECT_EQ(values_of(p_->grad()), (Values{2, 5, 5, 8}));
}

TEST_F(ReducerModes, TheSumOfAnExpandedGradientHasRoom) {
  create_with([](ReducerOptions& o) { o.find_unused_parameters = true; });
  Shape expanded = Shape::row_major({2});
  expanded.strides[0] = 0;
  const Tensor one = rank_.tensor({4});
  p_->set_grad(Tensor(one.storage(), 0, DType::kFloat32, expanded));
  group_->peers = [](const Collective& c) {  // The other rank used p, and sends 1 and 2.
    for (std::size_t i = 0; i < c.count; ++i)
      set_element(c.dtype, c.data, i,
                  element(c.dtype, c.data, i) + (c.bucket == 1 ? 1.0 + static_cast<double>(i) : 1));
  };
  ASSERT_TRUE(rank_.backward(rank_.forward_of({q_}), 6).ok());
  EXPECT_EQ(values_of(p_->grad()), (Values{3, 4}));
  EXPECT_EQ(values_of(one), Values{4});
}

// Measures the peak of the allocated memory while a bucket is summed.
TEST_F(ReducerModes, B7AtItsPeakAViewPassHasOneGradientSizedMemory) {
  constexpr std::int64_t kElements = 4096;
  constexpr std::uint64_t kGradients = 2 * kElements * sizeof(float);
  const ParameterSpec spec{.shape = Shape::row_major({kElements})};
  rank_.parameters = {};
  p_ = rank_.add("p", spec);
  q_ = rank_.add("q", spec);
  for (const bool views : {true, false}) {
    rank_.undefine_grads();
    create_with([&](ReducerOptions& o) { o.gradient_as_bucket_view = views; }, {1 << 20});
    HostDevice& device = rank_.devices[0];
    std::uint64_t peak = 0;
    group_->peers = [&](const Collective&) { peak = std::max(peak, device.allocated_bytes()); };
    for (int pass = 0; pass < 3; ++pass) {
      peak = 0;
      for (const auto& parameter : rank_.parameters) parameter->fill_grad_with_zeros();
      std::vector<Tensor> arriving;
      for (int i = 0; i < 2; ++i) {
        arriving.push_back(*Tensor::empty(device, DType::kFloat32, spec.shape));
        device.fill_zero({}, arriving.back().data(), kGradients / 2);
      }
      const std::vector<Edge> roots = rank_.forward_of({p_, q_});
      ASSERT_TRUE(rank_.engine.backward(roots, arriving, false).ok());
    }
    // In addition, the test holds the gradients that arrive.
    EXPECT_EQ(peak, kGradients + (views ? 1 : 2) * kGradients);
  }
}

TEST_F(ReducerModes, B7ThereIsOneGradientSizedMemory) {
  create_views();
  rank_.undefine_grads();
  const std::uint64_t empty = rank_.devices[0].allocated_bytes();
  for (int pass = 0; pass < 3; ++pass) {
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
    EXPECT_EQ(rank_.devices[0].allocated_bytes(), empty) << "pass " << pass;
  }
}

TEST_F(ReducerModes, G5AStaleViewThatNobodyUsesKeepsItsBits) {
  create_views(true);
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  const std::byte* place = q_->grad().data();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 3).ok());
  EXPECT_EQ(first(p_), 9);
  EXPECT_EQ(first(q_), 6);
  EXPECT_EQ(q_->grad().data(), place);
}

TEST_F(ReducerModes, G7ABucketThatNobodyUsesIsSkippedWhereThatIsAskedFor) {
  create_with([](ReducerOptions& o) { o.find_unused_parameters = o.skip_unused_buckets = true; });
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  EXPECT_EQ(parallel().reducer().launched_in_pass(), 3);  // Both buckets, and the usage map.
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 3).ok());
  EXPECT_EQ(parallel().reducer().launched_in_pass(), 2);
  EXPECT_EQ(first(p_), 9);
  EXPECT_EQ(first(q_), 6);
  const PassStatistics& pass = parallel().reducer().last_pass();
  EXPECT_EQ(pass.buckets[0].completed, platform::Duration());  // It is q's.
  EXPECT_GT(pass.buckets[1].completed, platform::Duration());
  EXPECT_EQ(parallel().reducer().usage_counts()[1], 0);
}

TEST_F(ReducerModes, G7SkippingNeedsDynamicModeAndNoJoin) {
  ReducerOptions options = quick_options(false);
  options.skip_unused_buckets = true;
  EXPECT_EQ(rank_.create(membership(), options).code(), Code::kInvalidArgument);
  create_with([](ReducerOptions& o) { o.find_unused_parameters = o.skip_unused_buckets = true; });
  EXPECT_EQ(parallel().begin_join({}).code(), Code::kInvalidArgument);
}

TEST(ReducerRanks, G7RanksThatSkipOtherBucketsFailWithAMismatch) {
  const auto memberships = local_memberships(2);
  std::vector<Status> ended(2);
  on_ranks(2, [&](int r) {
    TestRank rank;
    rank.add("p");
    rank.add("q");
    ReducerOptions options = quick_options(false);
    options.find_unused_parameters = options.skip_unused_buckets = true;
    ASSERT_TRUE(rank.create(memberships[static_cast<std::size_t>(r)], options).ok());
    const Ref<Parameter>& used = rank.parameters[static_cast<std::size_t>(r)];
    ended[static_cast<std::size_t>(r)] = rank.backward(rank.forward_of({used}), 1);
  });
  for (const Status& status : ended)
    EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
}

TEST_F(ReducerModes, B2BucketsFollowTheReadyOrderFromTheSecondSyncedForwardOn) {
  create_rebuilding();
  const auto first_member = [&] {
    return parallel().reducer().layout().buckets[0].members[0].parameter;
  };
  EXPECT_EQ(first_member(), 1u);  // It is q, the last one.
  // p is ready before q, because the node above it was created later.
  const auto above_q = rank_.fan({{q_, 0}});
  const auto above_p = rank_.fan({{p_, 0}});
  ASSERT_TRUE(rank_.backward(rank_.forward({{above_q, 0}, {above_p, 0}}), 6).ok());
  EXPECT_TRUE(parallel().reducer().rebuilt_order().empty());
  EXPECT_EQ(first_member(), 1u);
  const auto outputs = rank_.forward_of({p_, q_});
  EXPECT_EQ(parallel().reducer().rebuilt_order(), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(first_member(), 0u);
  EXPECT_EQ(ops().back(), Op::kBroadcast);
  rank_.undefine_grads();
  ASSERT_TRUE(rank_.backward(outputs, 8).ok());
  EXPECT_EQ(first(p_), 8);
  EXPECT_EQ(first(q_), 8);
  const std::size_t started = group_->started.size();
  (void)rank_.forward_of({p_, q_});
  EXPECT_EQ(group_->started.size(), started);  // The rebuild happens once.
}

TEST_F(ReducerModes, B2ForwardsThatAreLocalOrWithoutGradientsDoNotMeet) {
  create_rebuilding();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  const std::size_t started = group_->started.size();
  ASSERT_TRUE(parallel().forward_without_gradients([](auto&) { return Status(); }).ok());
  {
    const DataParallel::NoSync no_sync(parallel());
    (void)rank_.forward_of({p_, q_});
  }
  EXPECT_EQ(group_->started.size(), started);
}

TEST_F(ReducerModes, B2LiveViewsMoveWithTheirBuckets) {
  create_rebuilding(true);
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  const std::byte* place = p_->grad().data();
  const auto outputs = rank_.forward_of({p_, q_});
  EXPECT_NE(p_->grad().data(), place);
  EXPECT_EQ(first(p_), 6);
  ASSERT_TRUE(rank_.backward(outputs, 1).ok());
  EXPECT_EQ(first(p_), 7);
}

// A device that notes how much memory it had at most.
class PeakDevice final : public HostDevice {
 public:
  Result<Ref<Storage>> allocate(std::size_t bytes) override {
    Result<Ref<Storage>> storage = HostDevice::allocate(bytes);
    peak = std::max(peak, allocated_bytes());
    return storage;
  }
  std::uint64_t peak = 0;
};

TEST(ReducerRebuild, B2OldAndNewBucketsAreNotInMemoryAtOnceIfNoGradientLiesInThem) {
  for (const bool views : {false, true}) {
    for (const bool keeps_gradients : {false, true}) {
      PeakDevice device;
      TestRank rank;
      for (const char* name : {"p", "q"})
        rank.parameters.push_back(make_ref<Parameter>(name, device, DType::kFloat32,
                                                      Shape::row_major({2}), true,
                                                      rank.engine.next_sequence()));
      ReducerOptions options = quick_options(false);
      options.rebuild_buckets = true;
      options.gradient_as_bucket_view = views;
      ASSERT_TRUE(rank.create(local_memberships(1)[0], options).ok());
      ASSERT_TRUE(rank.backward(rank.forward_of(rank.parameters), 6).ok());
      if (!keeps_gradients) rank.undefine_grads();
      const std::uint64_t before = device.allocated_bytes();
      device.peak = 0;
      const auto outputs = rank.forward_of(rank.parameters);
      EXPECT_FALSE(rank.parallel->reducer().rebuilt_order().empty());
      EXPECT_EQ(device.peak > before, views && keeps_gradients);
      ASSERT_TRUE(rank.backward(outputs, 8).ok());
      EXPECT_EQ(values_of(rank.parameters[0]->grad())[0], keeps_gradients ? 14 : 8);
    }
  }
}

TEST_F(ReducerModes, B2AResetGoesBackToTheFirstLayout) {
  create_rebuilding();
  const Layout first_layout = parallel().reducer().layout();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  (void)rank_.forward_of({p_, q_});
  ASSERT_TRUE(parallel().reset(membership()).ok());
  EXPECT_TRUE(parallel().reducer().layout() == first_layout);
  rank_.undefine_grads();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 4).ok());
  EXPECT_EQ(first(p_), 4);
}

class OrderHook final : public GradientHook {
 public:
  explicit OrderHook(std::vector<std::size_t>& order) : order_(order) {}
  Status gradient_ready(Parameter&, std::size_t index, GraphTask&) override {
    order_.push_back(index);
    return {};
  }

 private:
  std::vector<std::size_t>& order_;
};

// Makes a node above each parameter, created in an order of the rank's own; the node that is
// created last runs first.
std::vector<Edge> turned(TestRank& rank, int by) {
  std::vector<Edge> edges;
  const std::size_t count = rank.parameters.size();
  for (std::size_t i = 0; i < count; ++i)
    edges.push_back(
        {rank.fan({{rank.parameters[(i + static_cast<std::size_t>(by)) % count], 0}}), 0});
  return edges;
}

// Ranks whose hooks run in different orders end with the buckets of rank 0.
TEST(ReducerRebuild, B2AllRanksTakeTheOrderOfRankZero) {
  constexpr int kRanks = 3;
  const std::vector<Membership> memberships = local_memberships(kRanks);
  std::vector<Layout> layouts(kRanks);
  std::vector<std::vector<std::size_t>> orders(kRanks);  // The order of each rank's own hooks.
  std::vector<double> sums(kRanks);
  on_ranks(kRanks, [&](int r) {
    TestRank rank(0, static_cast<std::uint64_t>(r) + 7);
    for (int i = 0; i < 6; ++i) rank.add("p" + std::to_string(i));
    ReducerOptions options = quick_options(false);
    options.rebuild_buckets = true;
    ASSERT_TRUE(rank.create(memberships[static_cast<std::size_t>(r)], options).ok());
    OrderHook hook{orders[static_cast<std::size_t>(r)]};
    for (std::size_t i = 0; i < rank.parameters.size(); ++i) rank.parameters[i]->add_hook(&hook, i);
    for (int pass = 0; pass < 3; ++pass) {
      if (pass == 1)
        for (const auto& parameter : rank.parameters) parameter->remove_hook(&hook);
      rank.undefine_grads();
      const Status status = rank.backward(rank.forward(turned(rank, r)), r + pass);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    layouts[static_cast<std::size_t>(r)] = rank.parallel->reducer().layout();
    sums[static_cast<std::size_t>(r)] = values_of(rank.parameters[3]->grad())[0];
  });
  EXPECT_NE(orders[1], orders[0]);
  std::vector<std::size_t> followed;
  for (const BucketLayout& bucket : layouts[0].buckets)
    followed.push_back(bucket.members[0].parameter);
  EXPECT_EQ(followed, orders[0]);
  for (int r = 1; r < kRanks; ++r) {
    EXPECT_TRUE(layouts[static_cast<std::size_t>(r)] == layouts[0]);
    EXPECT_EQ(sums[static_cast<std::size_t>(r)], sums[0]);
  }
}

TEST_F(ReducerModes, F2ARebuildThatFailsNamesThePassThatItComesBefore) {
  create_rebuilding();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
  group_->stalls_gathering = true;
  group_->limit = std::chrono::milliseconds(1);
  EXPECT_TRUE(rank_.forward_of({p_, q_}).empty());
  ASSERT_EQ(rank_.forward_status.code(), Code::kTimeout) << rank_.forward_status.to_string();
  EXPECT_EQ(rank_.forward_status.failure().pass, 1);
}

// Rank r never uses parameter r, and no rank uses the last one. The window of the first synced pass
// begins with a local one.
TEST(ReducerStaticRanks, P11EachRankHasItsOwnUnusedParametersInEveryPass) {
  constexpr int kRanks = 3;
  const auto memberships = local_memberships(kRanks);
  // The mean of what all ranks but `unused` contribute, `times` over, in rank order.
  const auto mean_without = [](int unused, int times) {
    double sum = 0;
    for (int r = 0; r < kRanks; ++r) {
      const double own = r == unused ? 0 : 3.0 * (r + 1) * times;
      sum = rounded(DType::kFloat32,
                    sum + rounded(DType::kFloat32, own * factor_of(DType::kFloat32, kRanks)));
    }
    return sum;
  };
  on_ranks(kRanks, [&](int r) {
    TestRank rank;
    for (int i = 0; i <= kRanks; ++i) rank.add("p" + std::to_string(i));
    ReducerOptions options = quick_options(false);
    options.static_graph = true;
    ASSERT_TRUE(rank.create(memberships[static_cast<std::size_t>(r)], options).ok());
    std::vector<Ref<Parameter>> used;
    for (int i = 0; i < kRanks; ++i)
      if (i != r) used.push_back(rank.parameters[static_cast<std::size_t>(i)]);
    {
      const DataParallel::NoSync no_sync(*rank.parallel);
      ASSERT_TRUE(rank.backward(rank.forward_of(used), 3.0 * (r + 1)).ok());
    }
    for (int pass = 0; pass < 4; ++pass) {
      if (pass > 0) rank.undefine_grads();
      const Status status = rank.backward(rank.forward_of(used), 3.0 * (r + 1));
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (int i = 0; i < kRanks; ++i) {
        const Ref<Parameter>& p = rank.parameters[static_cast<std::size_t>(i)];
        ASSERT_TRUE(p->grad().defined());
        EXPECT_EQ(values_of(p->grad())[0], mean_without(i, pass == 0 ? 2 : 1))
            << "rank " << r << ", pass " << pass << ", p" << i;
      }
      EXPECT_FALSE(rank.parameters[kRanks]->grad().defined());
    }
  });
}

}  // namespace
}  // namespace lockstep::testing
