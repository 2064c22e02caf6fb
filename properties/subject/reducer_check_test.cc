#include "properties/subject/reducer_check.h"

#include <gtest/gtest.h>

#include "reducer/base/check.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

const std::vector<std::uint64_t> kLimits = {64, 1'000};

std::vector<ParameterInfo> infos() {
  return {{"p0", DType::kFloat32, 1, 3, true, false}, {"p1", DType::kFloat32, 1, 5, true, false}};
}

Layout layout() {
  Result<Layout> made = assign_buckets(infos(), kLimits);
  LOCKSTEP_CHECK(made.has_value());
  return std::move(*made);
}

std::string flaw_of(const Layout& changed) {
  const std::vector<ParameterInfo> all = infos();
  return flaw_of_layout({changed, all}, kLimits, false);
}

TEST(FlawOfLayout, B3ALayoutAsItIsMadeHasNone) { EXPECT_EQ(flaw_of(layout()), ""); }

TEST(FlawOfLayout, B3SaysThatLimitsDeviceOrHashAreNotThoseOfTheLayout) {
  Layout without_limits = layout();
  without_limits.limits.clear();
  EXPECT_NE(flaw_of(without_limits).find("limits"), std::string::npos);
  const std::vector<ParameterInfo> all = infos();
  EXPECT_EQ(flaw_of_layout({without_limits, all}, kLimits, true), "");
  Layout elsewhere = layout();
  elsewhere.buckets[0].device = 0;
  EXPECT_NE(flaw_of(elsewhere).find("device 0"), std::string::npos);
  Layout with_another_hash = layout();
  with_another_hash.hash += 1;
  EXPECT_NE(flaw_of(with_another_hash).find("hash"), std::string::npos);
}

// A layout that was saved by any version can be loaded: the hash of this one never changes.
TEST(FlawOfLayout, B3TheHashIsThatOfTheContract) {
  EXPECT_EQ(layout().hash, 13741658452338790596u);
}

class MostMemory : public ::testing::Test {
 protected:
  MostMemory() {
    program_.parameters.resize(2);
    program_.parameters[0].sizes = {3};
    program_.parameters[1].sizes = {5};
    for (const ParameterInfo& info : infos())
      parameters_.push_back(make_ref<Parameter>(info.name, device_, info.dtype,
                                                Shape::row_major({info.elements}), true,
                                                std::uint64_t{0}, Parameter::Gradients::kDense));
  }

  Tensor tensor(std::int64_t elements) {
    Result<Tensor> made = Tensor::empty(device_, DType::kFloat32, Shape::row_major({elements}));
    LOCKSTEP_CHECK(made.has_value());
    return std::move(*made);
  }
  std::uint64_t most(const std::vector<Ref<Buffer>>& buffers = {}) const {
    return most_memory({{layout_, infos_}}, parameters_, buffers, program_);
  }

  HostDevice device_{1};
  const std::vector<ParameterInfo> infos_ = infos();
  const Layout layout_ = layout();  // one bucket of 3 elements, padding, and 5 more: 84 bytes
  reference::Program program_;
  std::vector<Ref<Parameter>> parameters_;
};

TEST_F(MostMemory, F5_2IsThatOfBucketsAndGradients) {
  EXPECT_EQ(most(), 84u);
  parameters_[0]->set_grad(tensor(3));
  EXPECT_EQ(most(), 84u + 12u);
}

TEST_F(MostMemory, F5ABucketViewHasNoMemoryOfItsOwn) {
  program_.options.views = true;
  const Tensor bucket = tensor(21);
  parameters_[0]->set_grad(Tensor(bucket.storage(), 0, DType::kFloat32, parameters_[0]->shape()));
  parameters_[1]->set_grad(Tensor(bucket.storage(), 16, DType::kFloat32, parameters_[1]->shape()));
  EXPECT_EQ(most(), 84u);
  parameters_[1]->set_grad(tensor(5));
  EXPECT_EQ(most(), 84u + 20u);
}

TEST_F(MostMemory, F5AGradientWithGapsHasMemoryOfItsOwnEvenIfThatIsAsLargeAsTheBucket) {
  program_.options.views = true;
  Shape with_gaps = parameters_[0]->shape();
  with_gaps.strides[0] = 10;
  const Tensor whole = tensor(21);
  parameters_[0]->set_grad(Tensor(whole.storage(), 0, DType::kFloat32, with_gaps));
  EXPECT_EQ(most(), 84u + 84u);
}

TEST_F(MostMemory, F5BuiltInHooksAndBuffersHaveMemoryToo) {
  program_.options.hook = reference::Hook::kFloat16;
  EXPECT_EQ(most(), 84u + 42u);
  const auto buffer = make_ref<Buffer>("b0", tensor(1));
  EXPECT_EQ(most({buffer}), 84u + 42u + 64u);
  program_.options.keep_buffers = true;
  EXPECT_EQ(most({buffer}), 84u + 42u);
}

Collective gather(DType dtype, std::uint64_t count, void* data) {
  Collective collective;
  collective.op = Op::kAllGather;
  collective.dtype = dtype;
  collective.count = count;
  collective.bucket = 2;
  collective.data = static_cast<std::byte*>(data);
  return collective;
}

TEST(SparsePadding, S1RowsBehindItsOwnAreZeros) {
  std::vector<std::int64_t> numbers = {4, -1, -1};
  std::vector<float> values = {1, 2, 0, 0, 0, 0};
  SparsePadding padding;
  EXPECT_NE(padding.look_at(gather(DType::kFloat32, 6, values.data())), "");
  EXPECT_EQ(padding.look_at(gather(DType::kByte, 24, numbers.data())), "");
  EXPECT_EQ(padding.look_at(gather(DType::kFloat32, 6, values.data())), "");
  values[2] = 3;
  EXPECT_EQ(padding.look_at(gather(DType::kFloat32, 6, values.data())),
            "bucket 2 is sent with values behind its rows that are not zero");
}

}  // namespace
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
