#include "properties/observe/taken_gradients.h"

#include <gtest/gtest.h>

#include "reducer/autograd/engine.h"
#include "reducer/base/check.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

class TakenGradientsTest : public ::testing::Test {
 protected:
  TakenGradientsTest() {
    program_.options.views = true;
    program_.parameters.resize(2);
    for (const char* name : {"p0", "p1"})
      parameters_.push_back(make_ref<Parameter>(name, device_, DType::kFloat32,
                                                Shape::row_major({1}), true, std::uint64_t{0},
                                                Parameter::Gradients::kDense));
  }
  Tensor gradient() {
    Result<Tensor> made = Tensor::empty(device_, DType::kFloat32, Shape::row_major({1}));
    LOCKSTEP_CHECK(made.has_value());
    return *std::move(made);
  }
  // A backward brings a gradient.
  void define(std::uint32_t parameter) {
    const Edge edge{parameters_[parameter], 0};
    const Tensor arrived = gradient();
    EXPECT_TRUE(engine_.backward({&edge, 1}, {&arrived, 1}, false).ok());
  }

  HostDevice device_;
  Engine engine_{1};
  reference::Program program_;
  std::vector<Ref<Parameter>> parameters_;
};

TEST_F(TakenGradientsTest, B7AGradientThatIsStillThereIsWrong) {
  TakenGradients taken(program_);
  define(0);
  taken.note(parameters_, {{0, 0}});
  EXPECT_NE(taken.flaw({{0, 0}, {1, 0}}).find("p0"), std::string::npos);
  taken.begin();
  EXPECT_EQ(taken.flaw({{0, 0}, {1, 0}}), "");
}

TEST_F(TakenGradientsTest, B7AGradientThatIsUndefinedOrNotTakenYetIsRight) {
  TakenGradients taken(program_);
  taken.note(parameters_, {{0, 0}});
  define(0);
  define(1);
  taken.note(parameters_, {});
  EXPECT_EQ(taken.flaw({{0, 0}, {1, 0}}), "");
  taken.note(parameters_, {{0, 0}});
  EXPECT_EQ(taken.flaw({{0, 0}, {0, 0}}), "") << "the pass took it with its second hook";
}

TEST_F(TakenGradientsTest, B7AGradientOfThePassBeforeMayStayWhereNoneArrived) {
  TakenGradients taken(program_);
  parameters_[0]->set_grad(gradient());
  taken.note(parameters_, {{0, 0}});
  EXPECT_EQ(taken.flaw({{0, 0}, {1, 0}}), "");
}

TEST_F(TakenGradientsTest, B7OnlyGradientsThatAreViewsOfOneReplicaCount) {
  program_.parameters[0].sparse = true;
  EXPECT_FALSE(TakenGradients(program_).is_empty());
  program_.parameters[1].copy_of = 1;
  EXPECT_TRUE(TakenGradients(program_).is_empty());
  program_.parameters.resize(1);
  program_.parameters[0].sparse = false;
  EXPECT_FALSE(TakenGradients(program_).is_empty());
  program_.options.views = false;
  EXPECT_TRUE(TakenGradients(program_).is_empty());
}

}  // namespace
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
