// Outputs that are dropped in any order, and a data-parallel model that a node of a graph runs, as
// a checkpoint does: clauses P1, P4, P5 and P12. reducer_pass_test.cc tests passes one by one.
#include <gtest/gtest.h>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using ReducerDroppedOutputs = ReducerTest;

// Outputs are dropped and used up in any order; the pass still knows those that are left.
TEST_F(ReducerDroppedOutputs, P5OutputsMayGoInAnyOrder) {
  create(false);
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{40}}) {
    rank_.undefine_grads();
    std::vector<Edge> edges(41, Edge{rank_.stop(), 0});
    edges.front() = {p_, 0};
    edges.back() = {q_, 0};
    std::vector<Edge> outputs = rank_.forward(edges);
    for (std::size_t i = 0, at = 0; i < outputs.size() - 2; ++i) {
      at = (at + step) % outputs.size();
      while (at == 0 || at == outputs.size() - 1 || !outputs[at].node)
        at = (at + 1) % outputs.size();
      outputs[at] = {};
    }
    // One of the two that are left is used, and the pass stays open for the other one.
    ASSERT_TRUE(rank_.backward({outputs.front()}, 6).ok());
    const Status status = rank_.backward({outputs.back()}, 6);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(first(q_), 6);
  }
}

// A forward may have very many outputs, and the removal of one neither searches nor shifts the
// others. With both, this test takes longer than its time limit in ctest.
TEST_F(ReducerDroppedOutputs, P5AMillionOutputsAreDroppedWithoutASearch) {
  create(false);
  constexpr std::size_t kMany = 1'000'000;
  constexpr std::size_t kStep = 7'919;  // This is a prime, so the steps visit every output.
  std::vector<Edge> edges(kMany, Edge{rank_.stop(), 0});
  edges.front() = {p_, 0};
  edges.back() = {q_, 0};
  std::vector<Edge> outputs = rank_.forward(edges);
  ASSERT_EQ(outputs.size(), kMany);
  for (std::size_t i = 0, at = 0; i < kMany; ++i, at = (at + kStep) % kMany)
    if (at != 0 && at != kMany - 1) outputs[at] = {};
  ASSERT_TRUE(rank_.backward({outputs.front()}, 6).ok());
  const Status status = rank_.backward({outputs.back()}, 6);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(first(q_), 6);
}

// The DataParallel itself is recomputed: its forward is a synced one, whose pass begins inside the
// outer backward and ends with it (P4). So a backward may have one such forward; a second one is
// refused, and the node decides whether the backward continues.
class ReducerCheckpointed : public ReducerTest {
 protected:
  Ref<Node> whole_model(std::vector<Edge> next, bool passes_on) {
    return rank_.node(std::move(next),
                      [=, this](auto in, auto out, const BackwardContext& context) {
                        const std::vector<Edge> outputs = rank_.forward_of({p_, q_});
                        if (!rank_.forward_status.ok()) refused_ = rank_.forward_status;
                        for (Tensor& o : out) o = in[0];
                        if (!rank_.forward_status.ok())
                          return passes_on ? rank_.forward_status : Status();
                        const std::vector<Tensor> gradients = {in[0], in[0]};
                        return context.engine.backward_nested(context, outputs, gradients, false);
                      });
  }
  Status refused_;
};

TEST_F(ReducerCheckpointed, P4ACheckpointOfTheWholeModelIsAPassOfItsOwn) {
  create(false);
  for (int step = 0; step < 3; ++step) {
    rank_.undefine_grads();
    const auto node = whole_model({}, true);
    const Status status = rank_.backward({{node, 0}}, 6);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(first(p_), 6);
  }
  EXPECT_EQ(group_->sums(), 6);
}

TEST_F(ReducerCheckpointed, P1_11ASecondOneInABackwardIsRefusedAndThePassGoesOn) {
  create(false);
  const auto second = whole_model({}, false);
  const auto node = whole_model({{second, 0}}, false);
  const Status status = rank_.backward({{node, 0}}, 6);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(refused_.code(), Code::kInvalidArgument);
  EXPECT_NE(refused_.to_string().find("inside of a backward of the pass"), std::string::npos);
  EXPECT_EQ(first(p_), 6);
  EXPECT_TRUE(parallel().poisoned().ok());
}

TEST_F(ReducerCheckpointed, P1_12ANodeThatPassesTheRefusalOnFailsTheBackwardWhichPoisons) {
  create(false);
  const auto second = whole_model({}, true);
  const auto node = whole_model({{second, 0}}, true);
  EXPECT_EQ(rank_.backward({{node, 0}}, 6).code(), Code::kInvalidArgument);
  EXPECT_EQ(parallel().poisoned().code(), Code::kInvalidArgument);
  EXPECT_NE(parallel().poisoned().to_string().find("inside of a backward of the pass"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::testing
