// The reducer on the graph of an engine that is not Lockstep's: a toy that keeps gradients in
// memory of its own, and adds to them by itself.
#include "reducer/autograd/foreign_graph.h"

#include <gtest/gtest.h>

#include "reducer/reducer.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

class ToyTask final : public GraphTask {
 public:
  void at_end(BackwardEnd* callback) override { ends_.add(callback); }
  Status finish(Status status) { return ends_.run(std::move(status)); }

 private:
  BackwardEnds ends_;
};

class ToyGraph final : public ForeignGraph {
 public:
  ToyGraph(NodeNumbers& numbers, std::vector<Node*> leads_to, bool runs_backward)
      : ForeignGraph(numbers.next(), 1), leads_to_(std::move(leads_to)), nests_(runs_backward) {}
  bool find_parameters(std::vector<Node*>& found) const override {
    found.insert(found.end(), leads_to_.begin(), leads_to_.end());
    return nests_;
  }

 private:
  const std::vector<Node*> leads_to_;
  const bool nests_;
};

// A leaf of the toy: its gradient lies in a vector.
struct ToyLeaf {
  Ref<Parameter> parameter;
  Ref<Storage> place;
  std::vector<float> gradient;

  Status add(GraphTask& task, float value) {
    LOCKSTEP_RETURN_IF_ERROR(parameter->accumulation_begins(task));
    if (gradient.empty()) gradient.resize(2);
    for (float& element : gradient) element += value;
    place->point_to(reinterpret_cast<std::byte*>(gradient.data()), 2 * sizeof(float));
    parameter->move_grad(Tensor(place, 0, DType::kFloat32, Shape::row_major({2})));
    return parameter->accumulation_ended(task, true);
  }
};

class ForeignEngine : public ::testing::Test {
 protected:
  void make(bool dynamic, int leaves = 2) {
    for (int i = 0; i < leaves; ++i) {
      ToyLeaf& leaf = leaves_.emplace_back();
      leaf.parameter = make_ref<Parameter>("p" + std::to_string(i), device_, DType::kFloat32,
                                           Shape::row_major({2}), true, numbers_.next());
      leaf.place = Storage::of_others(device_);
    }
    std::vector<Ref<Parameter>> parameters;
    for (ToyLeaf& leaf : leaves_) parameters.push_back(leaf.parameter);
    auto made = Reducer::create(parameters, quick_options(dynamic),
                                {group_, std::make_shared<HashStore>()});
    ASSERT_TRUE(made);
    reducer_ = std::move(*made);
  }
  // A synced forward with one output.
  Ref<Node> forward(std::vector<Node*> leads_to, bool runs_backward = false) {
    EXPECT_TRUE(reducer_->begin_forward().ok());
    std::vector<Edge> outputs{
        {make_ref<ToyGraph>(numbers_, std::move(leads_to), runs_backward), 0}};
    EXPECT_TRUE(reducer_->arm(outputs, numbers_).ok());
    return outputs[0].node;
  }
  std::vector<Node*> all() {
    std::vector<Node*> nodes;
    for (ToyLeaf& leaf : leaves_) nodes.push_back(leaf.parameter.get());
    return nodes;
  }

  // Declared so that what lies on the device goes first.
  HostDevice device_;
  NodeNumbers numbers_;
  std::shared_ptr<ScriptedGroup> group_ = std::make_shared<ScriptedGroup>();
  std::vector<ToyLeaf> leaves_;
  ToyTask task_;
  std::unique_ptr<Reducer> reducer_;
};

TEST_F(ForeignEngine, G1GradientsInItsMemoryAreAveragedThere) {
  make(false);
  group_->peers = [](const Collective& sum) {  // The other rank adds (5 / 2).
    for (std::size_t i = 0; i < sum.count; ++i)
      set_element(sum.dtype, sum.data, i, element(sum.dtype, sum.data, i) + 2.5);
  };
  const Ref<Node> output = forward(all());
  ASSERT_TRUE(output->observer()->backward_begins(task_, {}).ok());
  ASSERT_TRUE(leaves_[0].add(task_, 1).ok());
  ASSERT_TRUE(leaves_[1].add(task_, 3).ok());
  EXPECT_EQ(leaves_[1].gradient, (std::vector<float>{3, 3}));  // Until the backward ends.
  ASSERT_TRUE(task_.finish({}).ok());
  EXPECT_EQ(leaves_[0].gradient, (std::vector<float>{3, 3}));
  EXPECT_EQ(leaves_[1].gradient, (std::vector<float>{4, 4}));
}

TEST_F(ForeignEngine, G5AParameterThatItsGraphDoesNotLeadToIsUnused) {
  make(true);
  group_->peers = [](const Collective&) {};  // The other rank uses nothing.
  const Ref<Node> output = forward({leaves_[0].parameter.get()});
  ASSERT_TRUE(output->observer()->backward_begins(task_, {}).ok());
  ASSERT_TRUE(leaves_[0].add(task_, 2).ok());
  ASSERT_TRUE(task_.finish({}).ok());
  EXPECT_EQ(leaves_[0].gradient, (std::vector<float>{1, 1}));
  EXPECT_FALSE(leaves_[1].parameter->grad().defined());
}

TEST_F(ForeignEngine, P5AnOutputThatLeadsToNoMissingParameterKeepsNoPassOpen) {
  make(false);
  const Ref<Node> output = forward({leaves_[0].parameter.get()});
  ASSERT_TRUE(output->observer()->backward_begins(task_, {}).ok());
  ASSERT_TRUE(leaves_[0].add(task_, 1).ok());
  EXPECT_EQ(task_.finish({}).code(), Code::kIncomplete);
}

TEST_F(ForeignEngine, P5ABackwardInsideOfItsGraphMayLeadToAnyParameter) {
  make(false);
  const Ref<Node> output = forward({leaves_[0].parameter.get()}, true);
  ASSERT_TRUE(output->observer()->backward_begins(task_, {}).ok());
  ASSERT_TRUE(leaves_[0].add(task_, 1).ok());
  EXPECT_TRUE(task_.finish({}).ok());  // A later backward may bring the other one.
  EXPECT_EQ(reducer_->begin_forward().code(), Code::kIncomplete);
}

TEST_F(ForeignEngine, P8ASecondAccumulationIsRefusedBeforeItHappens) {
  make(false);
  const Ref<Node> output = forward(all());
  ASSERT_TRUE(output->observer()->backward_begins(task_, {}).ok());
  ASSERT_TRUE(leaves_[0].add(task_, 1).ok());
  Status status = leaves_[0].add(task_, 1);
  EXPECT_EQ(status.code(), Code::kReadyTwice);
  EXPECT_EQ(leaves_[0].gradient, (std::vector<float>{1, 1}));
  EXPECT_EQ(task_.finish(std::move(status)).code(), Code::kReadyTwice);
}

TEST_F(ForeignEngine, ItsGraphDoesNotRunInLockstepsEngine) {
  make(false);
  Engine engine(0);
  const std::vector<Edge> roots{{make_ref<ToyGraph>(numbers_, all(), false), 0}};
  Tensor one = *Tensor::empty(device_, DType::kFloat32, Shape::row_major({2}));
  const std::vector<Tensor> gradients{one};
  EXPECT_EQ(engine.backward(roots, gradients, false).code(), Code::kInternal);
}

TEST(BackwardEnds, ACallbackIsRegisteredOnceAndDecidesWhatTheNextOneSees) {
  struct Count final : BackwardEnd {
    Status backward_succeeded() override { return ++ok, Status(Code::kInternal, "no"); }
    Status backward_failed(Status failure) override { return ++failed, failure; }
    int ok = 0, failed = 0;
  };
  Count first, second;
  BackwardEnds ends;
  ends.add(&first), ends.add(&second), ends.add(&first);
  EXPECT_EQ(ends.run({}).code(), Code::kInternal);
  EXPECT_EQ(first.ok + first.failed, 1);
  EXPECT_EQ(second.failed, 1);
}

TEST(Storage, MemoryOfOthersIsNotReturnedToTheDevice) {
  HostDevice device;
  std::array<std::byte, 8> bytes{};
  {
    const Ref<Storage> storage = Storage::of_others(device);
    storage->point_to(bytes.data(), bytes.size());
    EXPECT_EQ(storage->data(), bytes.data());
    EXPECT_EQ(device.allocated_bytes(), 0u);
  }
  EXPECT_EQ(device.allocated_bytes(), 0u);
}

}  // namespace
}  // namespace lockstep::testing
