// How many kernels a step of the reducer launches on a GPU, over a CUDA runtime without one.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "reducer/comm/mirror_peer_group.h"
#include "reducer/data_parallel.h"
#include "reducer/device/cuda/cuda_device.h"
#include "reducer/device/cuda/test_fake_cuda.h"

namespace lockstep {
namespace {

// Sends zeros of its own to each parameter.
class ZeroNode final : public Node {
 public:
  ZeroNode(Engine& engine, Device& device, std::vector<Edge> edges)
      : Node(engine.next_sequence(), 1, device.index()), device_(device) {
    edges_ = std::move(edges);
  }
  Status apply(std::span<const Tensor>, std::span<Tensor> outgoing,
               const BackwardContext&) override {
    for (Tensor& each : outgoing) {
      each = *Tensor::empty(device_, DType::kFloat32, Shape::row_major({64}));
      device_.fill_zero(device_.current_stream(), each.data(), each.storage()->bytes());
    }
    return {};
  }

 private:
  Device& device_;
};

class ReducerLaunches : public ::testing::Test {
 protected:
  ReducerLaunches() { reset_fake_cuda(); }
  void SetUp() override {
    auto opened = CudaDevice::open(0);
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    device_ = std::move(*opened);
    engine_ = std::make_unique<Engine>(device_->index());
    for (int i = 0; i < 300; ++i)
      parameters_.push_back(make_ref<Parameter>("p" + std::to_string(i), *device_, DType::kFloat32,
                                                Shape::row_major({64}), true,
                                                engine_->next_sequence()));
  }
  void TearDown() override {
    parallel_.reset();
    parameters_.clear();
    engine_.reset();
    fake_cuda().run();
    device_.reset();
    EXPECT_TRUE(fake_cuda().violations.empty());
  }
  // One bucket has all of them.
  void create(bool views) {
    ReducerOptions options;
    options.gradient_as_bucket_view = views;
    options.bucket_limits = {std::uint64_t{1} << 20};
    auto made =
        DataParallel::create(parameters_, *engine_, options,
                             {std::make_shared<MirrorPeerGroup>(1), std::make_shared<HashStore>()});
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    parallel_ = std::move(*made);
  }
  int launches_of_a_pass() {
    for (const auto& parameter : parameters_) parameter->undefine_grad();
    std::vector<Edge> outputs;
    const Status forward = parallel_->forward(
        [&](std::vector<Edge>& made) {
          std::vector<Edge> edges;
          for (const auto& parameter : parameters_) edges.push_back({parameter, 0});
          made = {{Ref<Node>(new ZeroNode(*engine_, *device_, std::move(edges))), 0}};
          return Status();
        },
        outputs);
    EXPECT_TRUE(forward.ok()) << forward.to_string();
    const int before = fake_cuda().calls["launch"];
    const std::vector<Tensor> roots(1);
    const Status status = engine_->backward(outputs, roots, false);
    EXPECT_TRUE(status.ok()) << status.to_string();
    fake_cuda().run();
    return fake_cuda().calls["launch"] - before;
  }

  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Engine> engine_;
  std::vector<Ref<Parameter>> parameters_;
  std::unique_ptr<DataParallel> parallel_;
};

TEST_F(ReducerLaunches, ABucketIsGatheredByOneAndScatteredByOne) {
  create(false);
  for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(launches_of_a_pass(), 2);
}

// P7: between two backwards of a pass the gradients are the user's.
TEST_F(ReducerLaunches, WhatABackwardLeavesToALaterOneIsGatheredWhenItEnds) {
  parameters_.resize(2);
  create(false);
  std::vector<Edge> outputs;
  const Status forward = parallel_->forward(
      [&](std::vector<Edge>& made) {
        for (const auto& parameter : parameters_)
          made.push_back({Ref<Node>(new ZeroNode(*engine_, *device_, {{parameter, 0}})), 0});
        return Status();
      },
      outputs);
  ASSERT_TRUE(forward.ok()) << forward.to_string();
  const std::vector<Tensor> roots(1);
  ASSERT_TRUE(engine_->backward({&outputs[0], 1}, roots, false).ok());
  const std::vector<float> ones(64, 1.0F);
  Tensor other = *Tensor::empty(*device_, DType::kFloat32, Shape::row_major({64}));
  std::memcpy(other.data(), ones.data(), 64 * sizeof(float));
  parameters_[0]->set_grad(other);
  ASSERT_TRUE(engine_->backward({&outputs[1], 1}, roots, false).ok());
  fake_cuda().run();
  const std::vector<float> zeros(64, 0.0F);
  EXPECT_EQ(std::memcmp(other.data(), zeros.data(), 64 * sizeof(float)), 0);
}

TEST_F(ReducerLaunches, ViewsAreGatheredByOne) {
  create(true);
  for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(launches_of_a_pass(), 1);
}

}  // namespace
}  // namespace lockstep
