#include "reducer/reducer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
namespace {

// A group of two ranks whose other rank always holds the same data: a sum doubles it.
class TwinGroup final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool can_reduce(DType dtype) const override { return dtype != DType::kFloat16; }
  Status start(const Collective& collective, Work& work) override {
    if (!failure.ok()) return failure;
    started.push_back(collective);
    work.begin(static_cast<std::int64_t>(started.size()));
    if (collective.op == Op::kAllGather) {
      const std::size_t bytes = collective.count * size_of(collective.dtype);
      std::memcpy(collective.gathered, collective.data, bytes);
      std::memcpy(collective.gathered + bytes, collective.data, bytes);
    } else if (collective.dtype == DType::kFloat32) {
      auto* data = reinterpret_cast<float*>(collective.data);
      for (std::uint64_t i = 0; i < collective.count; ++i) data[i] *= 2;
    } else if (collective.dtype == DType::kInt32) {
      auto* data = reinterpret_cast<std::int32_t*>(collective.data);
      for (std::uint64_t i = 0; i < collective.count; ++i) data[i] *= 2;
    }
    work.complete(Status());
    return {};
  }
  void abort(const Status&) override { aborted = true; }
  platform::Duration timeout() const override { return std::chrono::seconds(5); }

  int sums() const {
    int count = 0;
    for (const Collective& collective : started) count += collective.op == Op::kAllReduceSum;
    return count;
  }

  std::vector<Collective> started;
  Status failure;
  bool aborted = false;
};

class ReducerTest : public ::testing::Test {
 protected:
  void create(bool dynamic, std::vector<std::uint64_t> limits = {1}) {
    ReducerOptions options;
    options.find_unused_parameters = dynamic;
    options.bucket_limits = std::move(limits);
    options.failure_grace = std::chrono::milliseconds(1);
    auto parallel = DataParallel::create({p_, q_}, engine_, options, membership());
    ASSERT_TRUE(parallel.has_value()) << parallel.error().to_string();
    parallel_ = std::move(*parallel);
  }

  Membership membership() {
    group_ = std::make_shared<TwinGroup>();
    return {group_, std::make_shared<HashStore>()};
  }

  Ref<Parameter> parameter(const std::string& name) {
    return make_ref<Parameter>(name, device_, DType::kFloat32, Shape::row_major({2}), true,
                               engine_.next_sequence());
  }

  // A forward whose outputs are the parameters themselves.
  std::vector<Edge> forward(const std::vector<Ref<Parameter>>& outputs) {
    std::vector<Edge> made;
    status_ = parallel_->forward(
        [&](std::vector<Edge>& edges) {
          for (const auto& output : outputs) edges.push_back({output, 0});
          return Status();
        },
        made);
    return made;
  }

  Status backward(const std::vector<Edge>& roots, float value, bool retain = false) {
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < roots.size(); ++i) {
      gradients.push_back(*Tensor::empty(device_, DType::kFloat32, Shape::row_major({2})));
      const float values[2] = {value, value + 1};
      std::memcpy(gradients.back().data(), values, sizeof values);
    }
    return engine_.backward(roots, gradients, retain);
  }

  static float first(const Ref<Parameter>& parameter) {
    float value = 0;
    std::memcpy(&value, parameter->grad().data(), sizeof value);
    return value;
  }

  HostDevice device_;
  Engine engine_{0};
  Ref<Parameter> p_ = parameter("p");
  Ref<Parameter> q_ = parameter("q");
  std::shared_ptr<TwinGroup> group_;
  std::unique_ptr<DataParallel> parallel_;
  Status status_;
};

TEST_F(ReducerTest, EveryBucketIsLaunchedOnceAscendingAndTheMeanComesBack) {
  create(false);
  for (int pass = 0; pass < 3; ++pass) {
    p_->undefine_grad();
    q_->undefine_grad();
    const std::size_t before = group_->started.size();
    ASSERT_TRUE(backward(forward({p_, q_}), 6).ok());
    EXPECT_EQ(first(p_), 6);
    ASSERT_EQ(group_->started.size(), before + 2);
    EXPECT_EQ(group_->started[before].bucket, 0);
    EXPECT_EQ(group_->started[before + 1].bucket, 1);
    EXPECT_EQ(group_->started[before].pass, pass);
  }
}

TEST_F(ReducerTest, ADiscardedForwardStartsNoCollective) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    (void)forward({p_});
    EXPECT_EQ(group_->sums(), 0);
    EXPECT_TRUE(backward(forward({p_, q_}), 1).ok());
  }
}

TEST_F(ReducerTest, AMissingParameterIsNamedInTheSameCall) {
  create(false);
  const Status status = backward(forward({p_}), 1);
  ASSERT_EQ(status.code(), Code::kIncomplete);
  EXPECT_EQ(status.failure().parameters, std::vector<std::string>{"q"});
  EXPECT_EQ(status.failure().pass, 0);
}

TEST_F(ReducerTest, AnOutputStillAliveKeepsThePassOpen) {
  create(false);
  std::vector<Edge> outputs = forward({p_, q_});
  ASSERT_TRUE(backward({outputs[0]}, 1).ok());
  EXPECT_LT(group_->sums(), 2);
  ASSERT_TRUE(backward({outputs[1]}, 1).ok());
  EXPECT_EQ(group_->sums(), 2);
}

TEST_F(ReducerTest, ASecondBackwardRaisesBeforeAnyGradientIsTouched) {
  create(false);
  const std::vector<Edge> outputs = forward({p_, q_});
  ASSERT_TRUE(backward(outputs, 4, true).ok());
  EXPECT_EQ(backward(outputs, 4, true).code(), Code::kSecondBackward);
  EXPECT_EQ(first(p_), 4);
  EXPECT_TRUE(parallel_->poisoned().ok());
}

TEST_F(ReducerTest, NoSyncAccumulatesAndLaunchesNothing) {
  create(false);
  {
    const DataParallel::NoSync outer(*parallel_);
    { const DataParallel::NoSync inner(*parallel_); }
    EXPECT_FALSE(parallel_->synced());
    ASSERT_TRUE(backward(forward({p_, q_}), 2).ok());
  }
  EXPECT_EQ(group_->sums(), 0);
  EXPECT_EQ(first(p_), 2);
  ASSERT_TRUE(backward(forward({p_, q_}), 2).ok());
  EXPECT_EQ(first(p_), 4);
}

TEST_F(ReducerTest, WhatNobodyUsedStaysUndefinedInDynamicMode) {
  create(true);
  ASSERT_TRUE(backward(forward({p_}), 3).ok());
  EXPECT_EQ(first(p_), 3);
  EXPECT_FALSE(q_->grad().defined());
  EXPECT_EQ(group_->started.back().dtype, DType::kInt32);  // the usage map is last
}

TEST_F(ReducerTest, AFailureOfTheGroupPoisonsUntilReset) {
  create(false);
  group_->failure = Status(Code::kPeerLost, "gone");
  const auto broken = group_;
  EXPECT_EQ(backward(forward({p_, q_}), 1).code(), Code::kPeerLost);
  EXPECT_TRUE(broken->aborted);
  (void)forward({p_, q_});
  EXPECT_EQ(status_.code(), Code::kPoisoned);
  EXPECT_NE(status_.to_string().find("gone"), std::string::npos);
  ASSERT_TRUE(parallel_->reset(membership()).ok());
  p_->undefine_grad();
  q_->undefine_grad();
  ASSERT_TRUE(backward(forward({p_, q_}), 5).ok());
  EXPECT_EQ(first(p_), 5);
}

TEST_F(ReducerTest, DestructionLeavesNoHookAndOutputsSayThatItIsGone) {
  create(false);
  const std::vector<Edge> outputs = forward({p_, q_});
  parallel_.reset();
  EXPECT_EQ(backward(outputs, 1).code(), Code::kSecondBackward);
  EXPECT_TRUE(backward({{p_, 0}}, 1).ok());
}

TEST_F(ReducerTest, ADtypeThatTheGroupCannotReduceIsRefused) {
  const auto half = make_ref<Parameter>("half", device_, DType::kFloat16, Shape::row_major({2}),
                                        true, engine_.next_sequence());
  const auto parallel = DataParallel::create({half}, engine_, ReducerOptions(), membership());
  ASSERT_FALSE(parallel.has_value());
  EXPECT_EQ(parallel.error().code(), Code::kInvalidArgument);
  EXPECT_NE(parallel.error().to_string().find("half"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
