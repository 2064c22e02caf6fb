// Gradients that the user sets: any strides, gaps, and expanded ones (B7, G10).
#include "reducer/autograd/parameter.h"

#include <gtest/gtest.h>

#include "reducer/autograd/engine.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

class ParameterGradient : public ::testing::Test {
 protected:
  // Makes a tensor whose values lie `step` elements apart, from `offset` on, in memory that is full
  // of nines.
  Tensor spread(std::int64_t offset, std::int64_t rows, std::int64_t row_step, std::int64_t step) {
    Tensor memory = *Tensor::empty(device(), DType::kFloat32, Shape::row_major({kMemory}));
    for (std::size_t i = 0; i < kMemory; ++i) set_element(DType::kFloat32, memory.data(), i, 9);
    Shape shape = Shape::row_major({rows, 2});
    shape.strides[0] = row_step;
    shape.strides[1] = step;
    return Tensor(memory.storage(), offset, DType::kFloat32, shape);
  }
  static Values memory_of(const Tensor& tensor) {
    Values values;
    for (std::size_t i = 0; i < kMemory; ++i)
      values.push_back(element(DType::kFloat32, tensor.storage()->data(), i));
    return values;
  }
  Tensor arriving() {
    Tensor made = *Tensor::empty(device(), DType::kFloat32, Shape::row_major({2, 2}));
    for (std::size_t i = 0; i < 4; ++i)
      set_element(DType::kFloat32, made.data(), i, static_cast<double>(i + 1));
    return made;
  }
  Status backward() {
    const std::vector<Edge> roots{{p_, 0}};
    const std::vector<Tensor> gradients{arriving()};
    return rank_.engine.backward(roots, gradients, false);
  }
  Device& device() { return rank_.devices[0]; }

  static constexpr std::size_t kMemory = 12;
  TestRank rank_;
  Ref<Parameter> p_ = rank_.add("p", {.shape = Shape::row_major({2, 2})});
};

TEST_F(ParameterGradient, G10ZerosAreFilledWhereTheElementsAreAndNowhereElse) {
  p_->set_grad(spread(1, 2, 6, 2));  // It is two columns of a matrix.
  p_->fill_grad_with_zeros();
  EXPECT_EQ(memory_of(p_->grad()), (Values{9, 0, 9, 0, 9, 9, 9, 0, 9, 0, 9, 9}));
}

TEST_F(ParameterGradient, G10ADenseGradientInTheMiddleOfATensorIsFilledAlone) {
  p_->set_grad(spread(3, 2, 1, 2));  // It is column-major.
  p_->fill_grad_with_zeros();
  EXPECT_EQ(memory_of(p_->grad()), (Values{9, 9, 9, 0, 0, 0, 0, 9, 9, 9, 9, 9}));
}

TEST_F(ParameterGradient, G10AnExpandedGradientIsFilledWhereItsElementsAre) {
  p_->set_grad(spread(2, 2, 0, 3));
  p_->fill_grad_with_zeros();
  EXPECT_EQ(memory_of(p_->grad()), (Values{9, 9, 0, 9, 9, 0, 9, 9, 9, 9, 9, 9}));
}

TEST_F(ParameterGradient, WhatArrivesIsAddedBetweenTheGaps) {
  p_->set_grad(spread(1, 2, 6, 2));
  ASSERT_TRUE(backward().ok());
  EXPECT_EQ(memory_of(p_->grad()), (Values{9, 10, 9, 11, 9, 9, 9, 12, 9, 13, 9, 9}));
}

TEST_F(ParameterGradient, AnExpandedGradientMakesRoomForTheSum) {
  const Tensor expanded = spread(0, 2, 0, 0);
  p_->set_grad(expanded);
  ASSERT_TRUE(backward().ok());
  EXPECT_EQ(values_of(p_->grad()), (Values{10, 11, 12, 13}));
  EXPECT_EQ(memory_of(expanded), Values(kMemory, 9));
}

// Adds its name to a list when it is called.
class NamedHook final : public GradientHook {
 public:
  NamedHook(char name, std::string& calls) : name_(name), calls_(calls) {}
  Status gradient_ready(Parameter&, std::size_t index, GraphTask&) override {
    calls_ += name_;
    calls_ += std::to_string(index);
    return {};
  }

 private:
  const char name_;
  std::string& calls_;
};

TEST_F(ParameterGradient, HooksAreCalledInTheOrderInWhichTheyWereAdded) {
  std::string calls;
  NamedHook a('a', calls);
  NamedHook b('b', calls);
  NamedHook c('c', calls);
  const auto calls_of_a_backward = [&] {
    calls.clear();
    EXPECT_TRUE(backward().ok());
    return calls;
  };
  p_->add_hook(&a, 0);
  p_->add_hook(&b, 1);
  p_->add_hook(&c, 2);
  EXPECT_EQ(calls_of_a_backward(), "a0b1c2");
  p_->remove_hook(&a);
  EXPECT_EQ(calls_of_a_backward(), "b1c2");
  p_->add_hook(&a, 3);
  EXPECT_EQ(calls_of_a_backward(), "b1c2a3");
  p_->remove_hook(&c);
  EXPECT_EQ(calls_of_a_backward(), "b1a3");
  p_->remove_hook(&b);
  p_->remove_hook(&a);
  EXPECT_EQ(calls_of_a_backward(), "");
  p_->add_hook(&c, 4);
  p_->add_hook(&c, 5);
  EXPECT_EQ(calls_of_a_backward(), "c4c5");
  p_->remove_hook(&c);
  EXPECT_EQ(calls_of_a_backward(), "");
}

TEST_F(ParameterGradient, AComplexTensorIsTheSameMemoryAsItsRealParts) {
  const Tensor memory = *Tensor::empty(device(), DType::kComplex64, Shape::row_major({6}));
  const Tensor last(memory.storage(), 4, DType::kComplex64, Shape::row_major({2}));
  const Tensor real = last.as_real();
  EXPECT_EQ(real.data(), memory.data() + 4 * size_of(DType::kComplex64));
  EXPECT_EQ(real.elements(), 4);
}

}  // namespace
}  // namespace lockstep::testing
