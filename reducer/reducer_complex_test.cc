// Gradients of complex numbers (G12), and of tensors with strides of 0.
#include <gtest/gtest.h>

#include "reducer/hooks/builtin_hooks.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

constexpr DType kComplex = DType::kComplex64;

Values parts_of(const Tensor& tensor) { return values_of(tensor.as_real()); }

Tensor complex(Device& device, const Shape& shape, const Values& parts) {
  Tensor made = *Tensor::empty(device, kComplex, shape);
  for (std::size_t i = 0; i < parts.size(); ++i)
    set_element(DType::kFloat32, made.data(), i, parts[i]);
  return made;
}

Values scaled(Values parts, int ranks) {
  const double k = factor_of(DType::kFloat32, ranks);
  for (double& part : parts) part = rounded(DType::kFloat32, part * k);
  return parts;
}

TEST(HostDeviceComplex, G12PartsAreAddedAndScaledWhateverTheStrides) {
  HostDevice device(0);
  const Stream stream = device.current_stream();
  const Shape rows = Shape::row_major({2, 2});
  const Shape columns = Shape::column_major(std::vector<std::int64_t>{2, 2});
  const Tensor a = complex(device, rows, {1, 2, 3, 4, 5, 6, 7, 8});
  Tensor b = *Tensor::empty(device, kComplex, columns);
  device.copy(stream, a, b);
  EXPECT_EQ(parts_of(b), (Values{1, 2, 5, 6, 3, 4, 7, 8}));
  device.add(stream, a, b);
  EXPECT_EQ(parts_of(b), (Values{2, 4, 10, 12, 6, 8, 14, 16}));
  Tensor slot = *Tensor::empty(device, kComplex, rows);
  const Transfer in{&b, slot.data(), &rows};
  device.pack_bucket(stream, {&in, 1}, 0.5);
  EXPECT_EQ(parts_of(slot), parts_of(a));
  device.convert(stream, a, slot, 3);
  EXPECT_EQ(parts_of(slot), (Values{3, 6, 9, 12, 15, 18, 21, 24}));
}

class ReducerComplex : public ReducerTest {
 protected:
  void create_complex(ReducerOptions options, const Shape& shape = Shape::row_major({2})) {
    rank_.parameters.clear();
    ParameterSpec spec;
    spec.dtype = kComplex;
    spec.shape = shape;
    c_ = rank_.add("c", spec);
    const Status status = rank_.create(membership(), std::move(options));
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  Status step(const Values& parts) {
    const std::vector<Tensor> gradients{complex(rank_.devices[0], c_->shape(), parts)};
    return rank_.engine.backward(rank_.forward_of({c_}), gradients, false);
  }
  Ref<Parameter> c_;
};

// The peers of a ScriptedGroup hold the same values as this rank.
TEST_F(ReducerComplex, G12TheMeanIsThatOfItsPartsAndTheSumOneOfFloats) {
  size_ = 3;
  for (const bool views : {false, true}) {
    ReducerOptions options = quick_options(false);
    options.gradient_as_bucket_view = views;
    create_complex(std::move(options));
    ASSERT_TRUE(step({1, -3, 5, 7}).ok());
    const Collective& sum = group_->started.back().collective;
    EXPECT_EQ(sum.dtype, DType::kFloat32);
    EXPECT_EQ(sum.count, 4U);
    Values expected = scaled({1, -3, 5, 7}, 3);
    for (double& part : expected) part = rounded(DType::kFloat32, 3 * part);
    EXPECT_EQ(parts_of(c_->grad()), expected);
    EXPECT_EQ(c_->grad().dtype(), kComplex);
    EXPECT_EQ(c_->grad().elements(), 2);
  }
}

TEST_F(ReducerComplex, G12LayoutsCountWholeElements) {
  create_complex(quick_options(false), Shape::row_major({9}));
  const BucketLayout& bucket = parallel().reducer().layout().buckets[0];
  EXPECT_EQ(bucket.dtype, kComplex);
  EXPECT_EQ(bucket.elements, 9);
}

TEST_F(ReducerComplex, G12S4CompressingHooksLeaveThemAsTheyAre) {
  ReducerOptions options = quick_options(false);
  options.hook = make_fp16_compress_hook();
  create_complex(std::move(options));
  const double fine = 1 + 1.0 / 4096;  // This is not a float16.
  ASSERT_TRUE(step({fine, -fine, 2, 3}).ok());
  EXPECT_EQ(group_->started.back().collective.dtype, DType::kFloat32);
  EXPECT_EQ(parts_of(c_->grad()), (Values{fine, -fine, 2, 3}));
}

TEST_F(ReducerComplex, G12AGroupThatCannotSumFloatsIsRefused) {
  rank_.parameters.clear();
  ParameterSpec spec;
  spec.dtype = kComplex;
  rank_.add("c", spec);
  Membership refusing = membership();
  group_->refused_dtype = DType::kFloat32;
  const Status status = rank_.create(std::move(refusing), quick_options(false));
  ASSERT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("complex64, the dtype of parameter c"), std::string::npos);
}

using ReducerExpanded = ReducerTest;

TEST_F(ReducerExpanded, G1AnExpandedGradientCountsElementByElement) {
  create(false);
  Shape expanded = Shape::row_major({2});
  expanded.strides[0] = 0;
  const Tensor one = rank_.tensor({3});
  const Ref<Node> use = rank_.node({{p_, 0}, {q_, 0}}, [&](auto, auto out, const auto&) {
    out[0] = out[1] = Tensor(one.storage(), 0, DType::kFloat32, expanded);
    return Status();
  });
  // The first gradient is taken over, the second one is added.
  for (const double expected : {3.0, 6.0}) {
    ASSERT_TRUE(rank_.backward(rank_.forward({{use, 0}}), 1, true).ok());
    EXPECT_EQ(values_of(p_->grad()), (Values{expected, expected}));
    EXPECT_TRUE(p_->grad().shape().same_strides(p_->shape()));
  }
  EXPECT_EQ(values_of(one), Values{3});
}

TEST_F(ReducerExpanded, B5AnExpandedParameterIsRefusedUnlessItIsIgnoredOrFrozen) {
  ParameterSpec spec;
  spec.shape.strides[0] = 0;
  const auto e = rank_.add("e", spec);
  Status status = rank_.create(membership(), quick_options(false));
  ASSERT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("parameter e is expanded"), std::string::npos);
  ReducerOptions options = quick_options(false);
  options.ignored = {"e"};
  ASSERT_TRUE(rank_.create(membership(), std::move(options)).ok());
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_, e}), 3).ok());
  EXPECT_EQ(first(p_), 3);
  EXPECT_EQ(values_of(e->grad()), (Values{3, 4}));  // It has memory of its own, and is dense.
  rank_.parallel.reset();
  rank_.parameters.pop_back();
  spec.requires_grad = false;
  rank_.add("e", spec);
  EXPECT_TRUE(rank_.create(membership(), quick_options(false)).ok());
}

}  // namespace
}  // namespace lockstep::testing
