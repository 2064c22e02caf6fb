#include "reducer/autograd/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <set>
#include <stdexcept>
#include <thread>

#include "reducer/autograd/parameter.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
namespace {

using Function =
    std::function<Status(std::span<const Tensor>, std::span<Tensor>, const BackwardContext&)>;

// A node made of a lambda.
class TestNode final : public Node {
 public:
  TestNode(Engine& engine, std::vector<Edge> edges, Function function, std::uint32_t outputs = 1,
           int worker = 0)
      : Node(engine.next_sequence(), outputs, worker), function_(std::move(function)) {
    edges_ = std::move(edges);
  }
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext& context) override {
    return function_(incoming, outgoing, context);
  }
  void release() override { ++released; }
  int released = 0;

 private:
  Function function_;
};

class EngineTest : public ::testing::Test {
 protected:
  Tensor vector_of(std::vector<float> values, int device = 0) {
    Tensor tensor = *Tensor::empty(devices_[device], DType::kFloat32,
                                   Shape::row_major({static_cast<std::int64_t>(values.size())}));
    std::memcpy(tensor.data(), values.data(), values.size() * sizeof(float));
    return tensor;
  }

  static std::vector<float> values_of(const Tensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    std::memcpy(values.data(), tensor.data(), values.size() * sizeof(float));
    return values;
  }

  Ref<Parameter> parameter(Engine& engine, const std::string& name, std::int64_t size = 1,
                           int device = 0) {
    return make_ref<Parameter>(name, devices_[device], DType::kFloat32, Shape::row_major({size}),
                               true, engine.next_sequence());
  }

  static Function pass_on() {
    return [](std::span<const Tensor> in, std::span<Tensor> out, const BackwardContext&) {
      for (Tensor& o : out) o = in[0];
      return Status();
    };
  }

  Ref<Node> node(Engine& engine, std::vector<Edge> edges, Function function,
                 std::uint32_t outputs = 1, int worker = 0) {
    return Ref<Node>(new TestNode(engine, std::move(edges), std::move(function), outputs, worker));
  }

  Status backward(Engine& engine, std::vector<Edge> roots, bool retain = false, float seed = 1) {
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < roots.size(); ++i) gradients.push_back(vector_of({seed}));
    return engine.backward(roots, gradients, retain);
  }

  HostDevice devices_[2] = {HostDevice(0, FreshMemory::kNaN), HostDevice(1, FreshMemory::kNaN)};
};

TEST_F(EngineTest, PassesAGradientToAParameterUsedDirectly) {
  Engine engine(0);
  const auto p = parameter(engine, "p");
  ASSERT_TRUE(backward(engine, {{p, 0}}, false, 3).ok());
  EXPECT_EQ(values_of(p->grad()), std::vector<float>{3});
  EXPECT_TRUE(p->used());
}

TEST_F(EngineTest, AccumulatesOverBackwards) {
  Engine engine(0);
  const auto p = parameter(engine, "p");
  ASSERT_TRUE(backward(engine, {{p, 0}}, false, 3).ok());
  ASSERT_TRUE(backward(engine, {{p, 0}}, false, 4).ok());
  EXPECT_EQ(values_of(p->grad()), std::vector<float>{7});
}

TEST_F(EngineTest, AddsWhatSeveralNodesSendInDescendingCreationOrder) {
  // (1e8 + -1e8) + 1 is 1, and another order gives 0: the node that was created last sends first.
  Engine engine(0);
  const auto p = parameter(engine, "p");
  const auto send = [this](float value) {
    return [this, value](std::span<const Tensor>, std::span<Tensor> out, const BackwardContext&) {
      out[0] = vector_of({value});
      return Status();
    };
  };
  const auto first = node(engine, {{p, 0}}, send(1));
  const auto second = node(engine, {{p, 0}}, send(-1e8f));
  const auto third = node(engine, {{p, 0}}, send(1e8f));
  ASSERT_TRUE(backward(engine, {{first, 0}, {second, 0}, {third, 0}}).ok());
  EXPECT_EQ(values_of(p->grad()),
            std::vector<float>{1});  // (1e8 - 1e8) + 1; (1 - 1e8) + 1e8 would be 0
}

TEST_F(EngineTest, DoesNotWriteIntoATensorThatAnotherReceiverShares) {
  Engine engine(0);
  const auto p = parameter(engine, "p");
  const auto q = parameter(engine, "q");
  const auto fan = node(engine, {{p, 0}, {q, 0}}, pass_on());
  const auto more = node(engine, {{p, 0}}, pass_on());
  ASSERT_TRUE(backward(engine, {{fan, 0}, {more, 0}}, false, 5).ok());
  EXPECT_EQ(values_of(p->grad()), std::vector<float>{10});
  EXPECT_EQ(values_of(q->grad()), std::vector<float>{5});
  EXPECT_FALSE(p->grad().storage() == q->grad().storage());
}

class CountingHook final : public GradientHook {
 public:
  Status gradient_ready(Parameter& parameter, std::size_t index, GraphTask&) override {
    order.push_back(index);
    defined.push_back(parameter.grad().defined());
    return result;
  }
  std::vector<std::size_t> order;
  std::vector<bool> defined;
  Status result;
};

TEST_F(EngineTest, UndefinedGradientsFlowAndStillFireHooks) {
  Engine engine(0);
  const auto p = parameter(engine, "p");
  CountingHook hook;
  p->add_hook(&hook, 7);
  const auto stop = node(engine, {{p, 0}}, [](auto, auto, const auto&) { return Status(); });
  const auto below = node(engine, {{stop, 0}}, pass_on());
  ASSERT_TRUE(backward(engine, {{below, 0}}).ok());
  EXPECT_EQ(hook.order, std::vector<std::size_t>{7});
  EXPECT_FALSE(p->grad().defined());
  EXPECT_FALSE(p->used());
}

TEST_F(EngineTest, TiesBetweenAccumulatorsFollowTheSeed) {
  std::vector<std::vector<std::size_t>> orders;
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u, 4u}) {
    Engine engine(0, seed);
    std::vector<Ref<Parameter>> parameters;
    CountingHook hook;
    std::vector<Edge> edges;
    for (std::size_t i = 0; i < 6; ++i) {
      parameters.push_back(parameter(engine, "p"));
      parameters.back()->add_hook(&hook, i);
      edges.push_back({parameters.back(), 0});
    }
    ASSERT_TRUE(backward(engine, {{node(engine, edges, pass_on()), 0}}).ok());
    orders.push_back(hook.order);
    ASSERT_EQ(hook.order.size(), 6u);
  }
  EXPECT_EQ(orders[0], (std::vector<std::size_t>{5, 4, 3, 2, 1, 0}));
  EXPECT_NE(orders[1], orders[2]);
}

TEST_F(EngineTest, GradientsAreAccumulatedAsSoonAsTheyAreComplete) {
  Engine engine(0);
  const auto p = parameter(engine, "p");
  std::vector<std::string> order;
  const auto note = [&order](const char* name) {
    return
        [&order, name](std::span<const Tensor> in, std::span<Tensor> out, const BackwardContext&) {
          order.push_back(name);
          for (Tensor& o : out) o = in[0];
          return Status();
        };
  };
  for (int pass = 0; pass < 2;
       ++pass) {  // on later passes, too: the accumulator is older than every node
    order.clear();
    p->undefine_grad();
    const auto early = node(engine, {}, [&](auto, auto, const auto&) {
      order.push_back(p->grad().defined() ? "early after p" : "early before p");
      return Status();
    });
    const auto late = node(engine, {{p, 0}, {early, 0}}, note("late"));
    ASSERT_TRUE(backward(engine, {{late, 0}}).ok());
    EXPECT_EQ(order, (std::vector<std::string>{"late", "early after p"}));
  }
}

TEST_F(EngineTest, AThrowingNodeFailsTheCallAndLeavesTheEngineUsable) {
  Engine engine(1);
  const auto p = parameter(engine, "p");
  const auto thrower = node(
      engine, {{p, 0}},
      [](auto, auto, const auto&) -> Status { throw std::runtime_error("no luck"); }, 1, 1);
  const Status status = backward(engine, {{thrower, 0}});
  EXPECT_EQ(status.code(), Code::kUserFailure);
  EXPECT_NE(status.to_string().find("no luck"), std::string::npos);
  EXPECT_FALSE(p->grad().defined());
  ASSERT_TRUE(backward(engine, {{p, 0}}).ok());
  EXPECT_TRUE(p->grad().defined());
}

class CountingEnd final : public BackwardEnd {
 public:
  Status backward_succeeded() override {
    ++succeeded;
    return {};
  }
  Status backward_failed(Status failure) override {
    ++failures;
    return failure;
  }
  int succeeded = 0;
  int failures = 0;
};

// Registers `end` when a backward that contains the node begins.
class ObservedNode final : public Node, public BackwardObserver {
 public:
  ObservedNode(Engine& engine, std::vector<Edge> edges, BackwardEnd* end)
      : Node(engine.next_sequence(), 1, 0), end_(end) {
    edges_ = std::move(edges);
    Node::observer_ = this;
  }
  Status backward_begins(GraphTask& task, std::span<Node* const> observed) override {
    ++begun;
    seen = observed.size();
    if (!refusal.ok()) return refusal;
    task.outermost().at_end(end_);
    return {};
  }
  Status apply(std::span<const Tensor> in, std::span<Tensor> out, const BackwardContext&) override {
    for (Tensor& o : out) o = in[0];
    return {};
  }
  Status refusal;
  int begun = 0;
  std::size_t seen = 0;

 private:
  BackwardEnd* end_;
};

TEST_F(EngineTest, CallbacksRunOnceAfterTheLastNodeAndLearnOfAFailure) {
  Engine engine(0);
  const auto p = parameter(engine, "p");
  CountingEnd end;
  const auto good = make_ref<ObservedNode>(engine, std::vector<Edge>{{p, 0}}, &end);
  ASSERT_TRUE(backward(engine, {{good, 0}}).ok());
  EXPECT_EQ(good->begun, 1);
  EXPECT_EQ(end.succeeded, 1);
  const auto thrower = node(engine, {}, [](auto, auto, const auto&) -> Status { throw 1; });
  const auto bad = make_ref<ObservedNode>(engine, std::vector<Edge>{{thrower, 0}}, &end);
  EXPECT_FALSE(backward(engine, {{bad, 0}}).ok());
  EXPECT_EQ(end.succeeded, 1);
  EXPECT_EQ(end.failures, 1);
}

TEST_F(EngineTest, AnObserverCanRefuseBeforeAnyNodeRuns) {
  Engine engine(0);
  const auto p = parameter(engine, "p");
  CountingEnd end;
  const auto node = make_ref<ObservedNode>(engine, std::vector<Edge>{{p, 0}}, &end);
  node->refusal = Status(Code::kSecondBackward, "no");
  EXPECT_EQ(backward(engine, {{node, 0}}).code(), Code::kSecondBackward);
  EXPECT_FALSE(p->grad().defined());
}

TEST_F(EngineTest, ANestedBackwardFinishesInsideItsNodeOnEveryWorker) {
  for (const int worker : {0, 1}) {
    Engine engine(1);
    const auto inner = parameter(engine, "inner", 1, 1);
    const auto outer = parameter(engine, "outer");
    bool finished_inside = false;
    const auto checkpoint = node(
        engine, {{outer, 0}},
        [&](std::span<const Tensor> in, std::span<Tensor> out, const BackwardContext& context) {
          const std::vector<Edge> roots = {{inner, 0}};
          const std::vector<Tensor> gradients = {in[0]};
          const Status status = context.engine.backward_nested(context, roots, gradients, false);
          finished_inside = inner->grad().defined() && !outer->grad().defined();
          out[0] = in[0];
          return status;
        },
        1, worker);
    ASSERT_TRUE(backward(engine, {{checkpoint, 0}}, false, 2).ok());
    EXPECT_TRUE(finished_inside);
    EXPECT_EQ(values_of(inner->grad()), std::vector<float>{2});
    EXPECT_EQ(values_of(outer->grad()), std::vector<float>{2});
  }
}

// A communication hook has no context, and may be called on any thread of the engine.
TEST_F(EngineTest, ABackwardWithoutAContextRunsOnEveryWorkerAndGoesFirst) {
  for (const int worker : {0, 1}) {
    Engine engine(1);
    const auto on_worker = parameter(engine, "on_worker", 1, 1);
    const auto on_host = parameter(engine, "on_host");
    const auto outer = parameter(engine, "outer", 1, 1);
    Status inside(Code::kInternal, "it did not run");
    bool finished_inside = false;
    const auto caller = node(
        engine, {{outer, 0}},
        [&](std::span<const Tensor> in, std::span<Tensor> out, const BackwardContext&) {
          const auto fan = node(engine, {{on_worker, 0}, {on_host, 0}}, pass_on());
          inside = backward(engine, {{fan, 0}}, false, 3);
          finished_inside =
              on_worker->grad().defined() && on_host->grad().defined() && !outer->grad().defined();
          out[0] = in[0];
          return Status();
        },
        1, worker);
    ASSERT_TRUE(backward(engine, {{caller, 0}}, false, 2).ok());
    ASSERT_TRUE(inside.ok()) << inside.to_string();
    EXPECT_TRUE(finished_inside);
    EXPECT_EQ(values_of(on_worker->grad()), std::vector<float>{3});
    EXPECT_EQ(values_of(on_host->grad()), std::vector<float>{3});
    EXPECT_EQ(values_of(outer->grad()), std::vector<float>{2});
    // The thread is free again: later backwards are not nested.
    ASSERT_TRUE(backward(engine, {{outer, 0}}, false, 1).ok());
  }
}

// A slow hook, which records whether another call enters meanwhile.
class SlowHook final : public GradientHook {
 public:
  Status gradient_arriving(Parameter&, std::size_t, GraphTask&) override {
    overlaps += is_there_.exchange(true) ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    is_there_ = false;
    return {};
  }
  Status gradient_ready(Parameter&, std::size_t, GraphTask&) override { return {}; }
  std::atomic<int> overlaps{0};

 private:
  std::atomic<bool> is_there_{false};
};

// A nested backward on worker 1 reaches a parameter of worker 0 while this thread does.
TEST_F(EngineTest, TwoBackwardsThatMeetAtAParameterAccumulateOneAfterTheOther) {
  Engine engine(1);
  const auto shared = parameter(engine, "shared");
  SlowHook hook;
  shared->add_hook(&hook, 0);
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> there{0};
    const Function meet = [&](std::span<const Tensor> in, std::span<Tensor> out,
                              const BackwardContext&) {
      ++there;
      while (there < 2) std::this_thread::yield();
      out[0] = in[0];
      return Status();
    };
    const auto here = node(engine, {{shared, 0}}, meet);
    const auto inside = node(engine, {{shared, 0}}, meet);
    const auto checkpoint = node(
        engine, {},
        [&](std::span<const Tensor> in, std::span<Tensor>, const BackwardContext& context) {
          const std::vector<Edge> roots = {{inside, 0}};
          return context.engine.backward_nested(context, roots, in, false);
        },
        1, 1);
    ASSERT_TRUE(backward(engine, {{here, 0}, {checkpoint, 0}}, false, 1).ok());
  }
  EXPECT_EQ(hook.overlaps, 0);
  EXPECT_EQ(values_of(shared->grad()), std::vector<float>{2.0F * kRounds});
  shared->remove_hook(&hook);
}

TEST_F(EngineTest, AFreedGraphRefusesASecondBackward) {
  Engine engine(0);
  const auto p = parameter(engine, "p");
  const auto n = node(engine, {{p, 0}}, pass_on());
  ASSERT_TRUE(backward(engine, {{n, 0}}, true).ok());
  ASSERT_TRUE(backward(engine, {{n, 0}}, false).ok());
  EXPECT_EQ(static_cast<TestNode&>(*n).released, 1);
  EXPECT_EQ(backward(engine, {{n, 0}}, false).code(), Code::kGraphFreed);
  EXPECT_EQ(values_of(p->grad()), std::vector<float>{2});
}

TEST_F(EngineTest, OutputsOfOneNodeGetTheirOwnGradients) {
  Engine engine(0);
  std::vector<bool> defined;
  const auto split = node(
      engine, {},
      [&](std::span<const Tensor> in, auto, const auto&) {
        defined = {in[0].defined(), in[1].defined()};
        return Status();
      },
      2);
  ASSERT_TRUE(backward(engine, {{split, 1}}).ok());
  EXPECT_EQ(defined, (std::vector<bool>{false, true}));
}

TEST_F(EngineTest, ManyBackwardsWithTwoWorkersGiveTheSameSums) {
  Engine engine(1);
  std::vector<Ref<Parameter>> parameters;
  for (int i = 0; i < 16; ++i) parameters.push_back(parameter(engine, "p", 1, i % 2));
  for (int round = 0; round < 200; ++round) {
    std::vector<Edge> edges;
    for (int i = 0; i < 16; ++i)
      edges.push_back(
          {node(engine, {{parameters[static_cast<std::size_t>(i)], 0}}, pass_on(), 1, i % 2), 0});
    ASSERT_TRUE(backward(engine, {{node(engine, edges, pass_on()), 0}}).ok());
  }
  for (const auto& p : parameters) EXPECT_EQ(values_of(p->grad()), std::vector<float>{200});
}

TEST_F(EngineTest, TheSearchFindsEachReachableParameterOnce) {
  Engine engine(0);
  const auto p = parameter(engine, "p");
  const auto q = parameter(engine, "q");
  const auto unreached = parameter(engine, "r");
  const auto a = node(engine, {{p, 0}, {q, 0}}, pass_on());
  const auto b = node(engine, {{a, 0}, {p, 0}}, pass_on());
  ParameterSearch search;
  for (int round = 0; round < 3; ++round) {
    const std::vector<Node*> roots = {b.get(), a.get()};
    const auto found = search.reachable_from(roots);
    EXPECT_EQ(std::set<Node*>(found.begin(), found.end()), (std::set<Node*>{p.get(), q.get()}));
    EXPECT_EQ(found.size(), 2u);
  }
}

// A nested call for each node would need more stack than there is.
TEST_F(EngineTest, ADeepGraphIsWalkedAndLetGo) {
  constexpr int kDepth = 300'000;
  Engine engine(0);
  for (const std::size_t edges : {1u, 2u}) {  // With two edges, every node has two owners.
    const auto p = parameter(engine, "p");
    Ref<Node> top = p;
    for (int i = 0; i < kDepth; ++i)
      top = node(engine, std::vector<Edge>(edges, {top, 0}), pass_on());
    if (edges == 1) {
      ASSERT_TRUE(backward(engine, {{top, 0}}, false, 3).ok());
      EXPECT_EQ(values_of(p->grad()), std::vector<float>{3});
    }
    EXPECT_EQ(p->use_count(), 1 + edges);
    top.reset();
    EXPECT_EQ(p->use_count(), 1u);
  }
}

TEST_F(EngineTest, ANodeGoesBeforeWhatItsEdgesOwn) {
  struct Leaving final : Node {
    Leaving(Engine& engine, std::vector<Edge> edges, std::vector<std::size_t>& told)
        : Node(engine.next_sequence(), 1, 0), told_(told) {
      edges_ = std::move(edges);
    }
    ~Leaving() override {
      told_.push_back(edges_.size());
      for (const Edge& edge : edges_) EXPECT_TRUE(static_cast<bool>(edge.node));
    }
    Status apply(std::span<const Tensor>, std::span<Tensor>, const BackwardContext&) override {
      return {};
    }
    std::vector<std::size_t>& told_;
  };
  Engine engine(0);
  std::vector<std::size_t> log;
  const auto leaving = [&](std::vector<Edge> edges) {
    return Ref<Node>(new Leaving(engine, std::move(edges), log));
  };
  Ref<Node> kept = leaving({});
  const Edge shared{leaving({}), 0};
  log.clear();
  {
    const Ref<Node> left = leaving({shared});
    const Ref<Node> right = leaving({shared, {kept, 0}});
    kept = leaving({{left, 0}, {right, 0}, {leaving({shared, {left, 0}, {right, 0}, shared}), 0}});
  }
  EXPECT_TRUE(log.empty());
  kept.reset();
  EXPECT_EQ(log.size(), 5u);  // All nodes but the shared one are destroyed.
  EXPECT_EQ(log[0], 3u);
  EXPECT_EQ(shared.node->use_count(), 1u);
}

}  // namespace
}  // namespace lockstep
