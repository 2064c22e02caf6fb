// Several replicas of a model in one process (P15). The peers of a ScriptedGroup send the same as
// this rank, so an average equals this rank's own sum over its replicas.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "reducer/device/test_queue_device.h"
#include "reducer/hooks/builtin_hooks.h"
#include "reducer/tensor/sparse.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

class ReducerReplicas : public ReducerTest {
 protected:
  ReducerReplicas() : ReducerTest(1) {}
  // Makes a replica of p and q, which are all parameters of the first replica.
  void SetUp() override {
    rank_.parameters = {p_, q_};
    options_.replicas = {replica({p1_, q1_})};
  }
  static Replica replica(std::vector<Ref<Parameter>> parameters) {
    return {std::move(parameters), {}};
  }
  Status create() { return rank_.create(membership(), options_); }
  void create_well() {
    const Status status = create();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  // Makes a parameter of another replica, on the other device.
  Ref<Parameter> add_copy(const std::string& name, const ParameterSpec& spec = {}) {
    return make_ref<Parameter>(name, rank_.devices[1], spec.dtype, spec.shape, spec.requires_grad,
                               rank_.engine.next_sequence(), spec.gradients);
  }
  // Runs a pass with one output for each of `parameters`; each gets the gradient {value, value +
  // 1}.
  Status step(const std::vector<Ref<Parameter>>& parameters, double value) {
    const std::vector<Edge> outputs = rank_.forward_of(parameters);
    if (!rank_.forward_status.ok()) return rank_.forward_status;
    return rank_.backward(outputs, value);
  }
  std::size_t sums() const {
    std::size_t count = 0;
    for (const Started& each : group_->started)
      count += each.collective.op == Op::kAllReduceSum && each.collective.bucket != kNone ? 1 : 0;
    return count;
  }

  Ref<Parameter> p1_ = add_copy("p of replica 1");
  Ref<Parameter> q1_ = add_copy("q of replica 1");
  ReducerOptions options_ = quick_options(false);
};

TEST_F(ReducerReplicas, P15TheSumOverTheReplicasLandsInTheFirstOne) {
  create_well();
  ASSERT_TRUE(step({p_, p1_, q_, q1_}, 4).ok());
  EXPECT_EQ(values_of(p_->grad()), (Values{8, 10}));
  EXPECT_EQ(values_of(q_->grad()), (Values{8, 10}));
  EXPECT_FALSE(p1_->grad().defined());
  EXPECT_FALSE(q1_->grad().defined());
  EXPECT_EQ(sums(), 2u);  // There is one sum for each bucket, not one for each replica.
}

TEST_F(ReducerReplicas, P15ReplicasAreAddedInTheirOrderAndRoundedBeforeTheScale) {
  const auto p2 = add_copy("p of replica 2");
  options_.replicas = {replica({p1_, {}}), replica({p2, {}})};
  create_well();
  p_->set_grad(rank_.tensor({1, 0}));
  p1_->set_grad(rank_.tensor({1e8, 0}, DType::kFloat32, 1));
  p2->set_grad(rank_.tensor({-1e8, 0}, DType::kFloat32, 1));
  {
    const DataParallel::NoSync guard(parallel());
    ASSERT_TRUE(step({q_}, 2).ok());
  }
  ASSERT_TRUE(step({p_, p1_, p2, q_}, 0).ok());
  const double sum = rounded(DType::kFloat32, rounded(DType::kFloat32, 1 + 1e8) - 1e8);
  ASSERT_NE(sum, 1);  // Otherwise the order of additions would not show.
  EXPECT_EQ(first(p_), sum);
}

TEST_F(ReducerReplicas, P15ABucketWaitsForEveryReplica) {
  create_well();
  std::vector<Edge> outputs = rank_.forward_of({p_, q_, p1_, q1_});
  ASSERT_TRUE(rank_.backward({outputs[0], outputs[1]}, 1, true).ok());
  EXPECT_EQ(sums(), 0u);
  ASSERT_TRUE(rank_.backward({outputs[2], outputs[3]}, 1).ok());
  EXPECT_EQ(sums(), 2u);
  EXPECT_EQ(values_of(p_->grad()), (Values{2, 4}));
}

TEST_F(ReducerReplicas, P5AMissingReplicaIsNamed) {
  create_well();
  const Status status = step({p_, q_, p1_}, 1);
  EXPECT_EQ(status.code(), Code::kIncomplete);
  EXPECT_EQ(status.failure().parameters, (std::vector<std::string>{"q of replica 1"}));
}

TEST_F(ReducerReplicas, P6AHookThatFiresTwiceNamesItsReplica) {
  create_well();
  const auto call_again = [this](auto in, auto out, const BackwardContext& context) {
    for (Tensor& each : out) each = in[0];
    const std::vector<Edge> roots = {{p1_, 0}};
    const std::vector<Tensor> gradients = {in[0]};
    return context.engine.backward_nested(context, roots, gradients, false);
  };
  const Ref<Node> nested = rank_.node({{q_, 0}, {p_, 0}, {p1_, 0}, {q1_, 0}}, call_again);
  const Status status = rank_.backward(rank_.forward({{nested, 0}}), 1);
  EXPECT_EQ(status.code(), Code::kReadyTwice);
  EXPECT_EQ(status.failure().parameters, (std::vector<std::string>{"p of replica 1"}));
}

TEST_F(ReducerReplicas, G5DynamicUseByOneReplicaIsUse) {
  options_ = quick_options(true);
  options_.replicas = {replica({p1_, q1_})};
  create_well();
  ASSERT_TRUE(step({p1_}, 4).ok());
  EXPECT_EQ(values_of(p_->grad()), (Values{4, 5}));
  EXPECT_FALSE(p1_->grad().defined());
  EXPECT_FALSE(q_->grad().defined());
}

TEST_F(ReducerReplicas, P11StaticCountsTheHooksOfEachReplica) {
  options_.static_graph = true;
  create_well();
  const auto twice = [&] { return rank_.fan({{p_, 0}, {q_, 0}, {q1_, 0}, {p1_, 0}, {p1_, 0}}); };
  for (int pass = 0; pass < 3; ++pass) {
    rank_.undefine_grads();
    ASSERT_TRUE(rank_.backward(rank_.forward({{twice(), 0}}), 2).ok());
    EXPECT_EQ(first(p_), 6);  // 2, and twice 2 in the other replica.
  }
}

TEST_F(ReducerReplicas, P9UseUnderNoSyncCountsInEveryReplica) {
  options_ = quick_options(true);
  options_.replicas = {replica({p1_, q1_})};
  create_well();
  {
    const DataParallel::NoSync guard(parallel());
    ASSERT_TRUE(step({p1_}, 4).ok());
  }
  ASSERT_TRUE(step({q_}, 1).ok());
  EXPECT_EQ(first(p_), 4);
  EXPECT_FALSE(p1_->grad().defined());
}

TEST_F(ReducerReplicas, B7TheSumLiesInTheBucketOfTheFirst) {
  options_.gradient_as_bucket_view = true;
  create_well();
  ASSERT_TRUE(step({p_, p1_, q_, q1_}, 4).ok());
  const auto storage = p_->grad().storage();
  // The gradient was 8 and 10, and each replica adds 2 and 3.
  ASSERT_TRUE(step({p_, p1_, q_, q1_}, 2).ok());
  EXPECT_EQ(p_->grad().storage(), storage);
  EXPECT_EQ(values_of(p_->grad()), (Values{12, 16}));
  EXPECT_FALSE(p1_->grad().defined());
}

TEST_F(ReducerReplicas, S1EntriesOfReplicasFollowEachOther) {
  const ParameterSpec table{DType::kFloat32, Shape::row_major({4}), true, 0,
                            Parameter::Gradients::kSparse};
  const auto t = rank_.add("t", table);
  const auto t1 = add_copy("t of replica 1", table);
  rank_.parameters = {t};
  options_.replicas = {replica({t1})};
  create_well();
  const auto entry = [&](std::int64_t row, double value, int device) {
    Tensor made = *empty_sparse(rank_.devices[device], DType::kFloat32, table.shape, {row});
    set_element(DType::kFloat32, made.data(), 0, value);
    return made;
  };
  const Ref<Node> use = rank_.node({{t, 0}, {t1, 0}}, [&](auto, auto out, const auto&) {
    out[0] = entry(2, 4, 0);
    out[1] = entry(1, 6, 1);
    return Status();
  });
  const Status status = rank_.backward(rank_.forward({{use, 0}}), 1);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(std::vector<std::int64_t>(t->grad().rows().begin(), t->grad().rows().end()),
            (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(values_of(t->grad()), (Values{6, 4}));
  EXPECT_FALSE(t1->grad().defined());
}

TEST_F(ReducerReplicas, S3ValuesAndBuffersAreCopiedOnceAWindow) {
  const auto b = make_ref<Buffer>("b", rank_.tensor({1, 2}));
  const auto b1 = make_ref<Buffer>("b of replica 1", rank_.tensor({7, 7}, DType::kFloat32, 1));
  p_->set_value(rank_.tensor({3, 4}));
  p1_->set_value(rank_.tensor({8, 8}, DType::kFloat32, 1));
  options_.buffers = {b};
  options_.replicas[0].buffers = {b1};
  create_well();
  // Values are copied only before the first forward.
  EXPECT_EQ(values_of(p1_->value()), (Values{8, 8}));
  {
    const DataParallel::NoSync guard(parallel());
    ASSERT_TRUE(step({p_}, 1).ok());
    EXPECT_EQ(values_of(p1_->value()), (Values{3, 4}));
    EXPECT_EQ(values_of(b1->value()), (Values{1, 2}));
    p1_->set_value(rank_.tensor({9, 9}, DType::kFloat32, 1));
    ASSERT_TRUE(step({p_}, 1).ok());
    // Values are not copied while gradients accumulate.
    EXPECT_EQ(values_of(p1_->value()), (Values{9, 9}));
  }
  ASSERT_TRUE(step({p_, p1_, q_, q1_}, 1).ok());
  EXPECT_EQ(values_of(p1_->value()), (Values{9, 9}));
  rank_.forward_of({p_});
  EXPECT_EQ(values_of(p1_->value()), (Values{3, 4}));
}

TEST_F(ReducerReplicas, S3AForwardWithoutGradientsSeesWhatTheFirstReplicaHas) {
  p_->set_value(rank_.tensor({3, 4}));
  p1_->set_value(rank_.tensor({8, 8}, DType::kFloat32, 1));
  create_well();
  const auto look = [](std::vector<Edge>&) { return Status(); };
  ASSERT_TRUE(parallel().forward_without_gradients(look).ok());
  EXPECT_EQ(values_of(p1_->value()), (Values{3, 4}));
}

TEST_F(ReducerReplicas, S3AValueThatOneReplicaAloneHasEndsTheForwardAndTheGroup) {
  p_->set_value(rank_.tensor({3, 4}));
  p1_->set_value(rank_.tensor({8, 8}, DType::kFloat32, 1));
  create_well();
  p1_->set_value(Tensor());
  rank_.forward_of({p_});
  EXPECT_EQ(rank_.forward_status.code(), Code::kInvalidArgument);
  EXPECT_NE(rank_.forward_status.to_string().find("p of replica 1"), std::string::npos);
  EXPECT_FALSE(parallel().poisoned().ok());
}

// The other rank is out of inputs when this one announces its backward. The forward was the first
// of a sync window (S3), which ends with the join.
TEST_F(ReducerReplicas, P15AJoinThatEndsEarlyClosesTheWindow) {
  p_->set_value(rank_.tensor({3, 4}));
  p1_->set_value(rank_.tensor({8, 8}, DType::kFloat32, 1));
  create_well();
  ASSERT_TRUE(parallel().begin_join({.throw_on_early_termination = true}).ok());
  group_->peers = [](const Collective& c) {
    // The entry behind the events; the other rank sets nothing else, since it is out of inputs.
    constexpr std::size_t kThrows = 3;
    set_element(c.dtype, c.data, kThrows, element(c.dtype, c.data, kThrows) + 1);
  };
  EXPECT_EQ(step({p_, p1_, q_, q1_}, 4).code(), Code::kUnevenInputs);
  EXPECT_EQ(values_of(p1_->value()), (Values{3, 4}));
  p1_->set_value(rank_.tensor({9, 9}, DType::kFloat32, 1));
  group_->peers = nullptr;
  ASSERT_TRUE(step({p_, p1_, q_, q1_}, 4).ok());
  EXPECT_EQ(values_of(p1_->value()), (Values{3, 4}));
}

// A copy that failed is made when it becomes possible, because no forward of this group has made it
// yet.
TEST_F(ReducerReplicas, P15ACopyThatFailedIsMadeUpFor) {
  const auto b = make_ref<Buffer>("b", rank_.tensor({1, 2}));
  const auto b1 = make_ref<Buffer>("b of replica 1", rank_.tensor({7, 7}, DType::kFloat32, 1));
  options_.broadcast_buffers = false;
  options_.buffers = {b};
  options_.replicas[0].buffers = {b1};
  create_well();
  p_->set_value(rank_.tensor({3, 4}));  // The p of replica 1 has no value.
  const auto look = [](std::vector<Edge>&) { return Status(); };
  EXPECT_EQ(parallel().forward_without_gradients(look).code(), Code::kInvalidArgument);
  ASSERT_TRUE(parallel().poisoned().ok());
  p1_->set_value(rank_.tensor({8, 8}, DType::kFloat32, 1));
  ASSERT_TRUE(parallel().forward_without_gradients(look).ok());
  EXPECT_EQ(values_of(p1_->value()), (Values{3, 4}));
  EXPECT_EQ(values_of(b1->value()), (Values{1, 2}));
}

TEST_F(ReducerReplicas, P16AGradientOfAReplicaIsRefusedByName) {
  create_well();
  const Ref<Node> use =
      rank_.node({{p_, 0}, {q_, 0}, {p1_, 0}, {q1_, 0}}, [&](auto in, auto out, const auto&) {
        for (Tensor& each : out) each = in[0];
        out[3].set_requires_grad(true);
        return Status();
      });
  const Status status = rank_.backward(rank_.forward({{use, 0}}), 1);
  EXPECT_EQ(status.code(), Code::kRequiresGrad);
  EXPECT_EQ(status.failure().parameters, (std::vector<std::string>{"q of replica 1"}));
}

TEST_F(ReducerReplicas, G4AHookGetsTheSumOverTheReplicas) {
  options_.hook = make_all_reduce_hook();
  options_.ignored = {"q"};
  create_well();
  ASSERT_TRUE(step({p_, p1_, q_, q1_}, 4).ok());
  EXPECT_EQ(values_of(p_->grad()), (Values{8, 10}));
  EXPECT_EQ(values_of(q1_->grad()), (Values{4, 5}));  // It is ignored in every replica.
}

TEST_F(ReducerReplicas, F4AResetLeavesTheReplicas) {
  create_well();
  ASSERT_TRUE(step({p_, p1_, q_, q1_}, 4).ok());
  ASSERT_TRUE(parallel().reset(membership()).ok());
  rank_.undefine_grads();
  ASSERT_TRUE(step({p_, p1_, q_, q1_}, 2).ok());
  EXPECT_EQ(values_of(q_->grad()), (Values{4, 6}));
}

TEST_F(ReducerReplicas, B6WhatIsListedAgainIsSoInEveryReplica) {
  rank_.parameters = {p_, q_, p_};
  options_.replicas = {replica({p1_, q1_, p1_})};
  create_well();
  ASSERT_TRUE(step({p_, p1_, q_, q1_}, 4).ok());
  EXPECT_EQ(values_of(p_->grad()), (Values{8, 10}));
  options_.replicas = {replica({p1_, {}, q1_})};
  const Status status = create();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("lists p again"), std::string::npos) << status.to_string();
}

// Makes two ranks, and `change` changes the model of the second one.
void expect_disagreement(const std::function<void(TestRank&, ReducerOptions&)>& change) {
  const auto memberships = local_memberships(2);
  on_ranks(2, [&](int r) {
    TestRank rank(1);
    rank.add("p");
    ReducerOptions options = quick_options(false);
    options.buffers = {make_ref<Buffer>("b", rank.tensor({1, 2}))};
    options.replicas = {{{Ref<Parameter>()}, {}}};
    if (r == 1) change(rank, options);
    const Status status = rank.create(memberships[static_cast<std::size_t>(r)], options);
    EXPECT_EQ(status.code(), Code::kDisagreement) << status.to_string();
  });
}

TEST(ReducerReplicaRanks, B4OtherReplicasOnOtherRanksAreADisagreement) {
  expect_disagreement([](TestRank& rank, ReducerOptions& options) {
    options.replicas[0].parameters[0] =
        rank.add("p of replica 1", {DType::kFloat32, rank.parameters[0]->shape(), true, 1});
    rank.parameters.resize(1);
  });
}

TEST(ReducerReplicaRanks, B4OtherBuffersOfAReplicaAreADisagreement) {
  expect_disagreement([](TestRank& rank, ReducerOptions& options) {
    options.replicas[0].buffers = {
        make_ref<Buffer>("b of replica 1", rank.tensor({1, 2}, DType::kFloat32, 1))};
  });
}

// Nothing copies from GPU to GPU within a process.
TEST_F(ReducerReplicas, P15AReplicaOnAnotherGpuIsRefused) {
  QueueDevice gpus[] = {QueueDevice(1), QueueDevice(2)};
  EXPECT_TRUE(can_hold_replicas(rank_.devices[0], rank_.devices[1]));
  EXPECT_TRUE(can_hold_replicas(gpus[0], gpus[0]));
  EXPECT_FALSE(can_hold_replicas(gpus[0], gpus[1]));
  EXPECT_FALSE(can_hold_replicas(gpus[0], rank_.devices[1]));
  const auto on_gpu =
      make_ref<Parameter>("q on a GPU", gpus[0], DType::kFloat32, q_->shape(), true,
                          rank_.engine.next_sequence(), Parameter::Gradients::kDense);
  options_.replicas = {replica({p1_, on_gpu})};
  const Status status = create();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("replica 1 has parameter q on a GPU for q, on another GPU"),
            std::string::npos)
      << status.to_string();
}

// Buckets and other ranks identify a device by its number.
TEST_F(ReducerReplicas, B5AHostsDeviceAndAGpuOfOneNumberAreRefused) {
  QueueDevice gpu(1);
  TestRank rank;
  rank.add("p", {.device = 1});
  rank.parameters.push_back(make_ref<Parameter>("q", gpu, DType::kFloat32, Shape::row_major({2}),
                                                true, rank.engine.next_sequence(),
                                                Parameter::Gradients::kDense));
  const Status status = rank.create(membership(), quick_options(false));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("parameter q is on another device of number 1"),
            std::string::npos)
      << status.to_string();
}

TEST_F(ReducerReplicas, B5WhatDoesNotFitIsRefused) {
  const auto refused = [&](std::vector<Replica> replicas) {
    options_.replicas = std::move(replicas);
    const Status status = create();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    return status.failure().detail;
  };
  EXPECT_NE(refused({replica({p1_})}).find("lists 1 parameters"), std::string::npos);
  EXPECT_NE(refused({replica({q_, {}})}).find("it is elsewhere"), std::string::npos);
  EXPECT_NE(refused({replica({p1_, q1_}), replica({p1_, {}})}).find("replica 2"),
            std::string::npos);
  const auto b = make_ref<Buffer>("b", rank_.tensor({1, 2}));
  options_.buffers = {b};
  Replica same_buffer = replica({p1_, q1_});
  same_buffer.buffers = {b};
  EXPECT_NE(refused({same_buffer}).find("buffer b"), std::string::npos);
  options_.buffers.clear();
  const auto other = add_copy("other", {DType::kFloat32, Shape::row_major({3})});
  EXPECT_NE(refused({replica({p1_, other})}).find("another shape"), std::string::npos);
}

// A user's hook, which runs before the reducer's or after it, and continues only when the given
// number of hooks are in it at once.
class MeetingHook final : public GradientHook {
 public:
  MeetingHook(int hooks, platform::Duration patience) : missing_(hooks), patience_(patience) {}
  Status gradient_ready(Parameter&, std::size_t, GraphTask&) override {
    platform::MutexLock lock(mutex_);
    if (--missing_ == 0) all_there_.notify_all();
    const auto limit = platform::Deadline::in(patience_);
    if (all_there_.wait(mutex_, limit, [this] { return missing_ == 0; })) return {};
    return Status(Code::kUserFailure, "no other hook came");
  }

 private:
  platform::Mutex mutex_{"test.meeting"};
  platform::CondVar all_there_{"test.meeting.all_there"};
  int missing_;
  const platform::Duration patience_;
};

TEST_F(ReducerReplicas, P15HooksOfReplicasRunAtTheSameTime) {
  for (const bool before : {true, false}) {
    MeetingHook hook(2, std::chrono::seconds(20));
    const auto add = [&] {
      p_->add_hook(&hook, 0);
      p1_->add_hook(&hook, 1);
    };
    if (before) add();
    create_well();
    if (!before) add();
    rank_.undefine_grads();
    const Status status = step({p_, p1_, q_, q1_}, 4);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(values_of(p_->grad()), (Values{8, 10}));
    for (const auto& parameter : {p_, p1_}) parameter->remove_hook(&hook);
    rank_.parallel.reset();
  }
}

// The control: hooks of one worker run one after the other.
TEST_F(ReducerReplicas, P15HooksOfOneReplicaDoNot) {
  create_well();
  MeetingHook hook(2, std::chrono::milliseconds(50));
  for (const auto& parameter : {p_, q_}) parameter->add_hook(&hook, 0);
  const Status status = step({p_, p1_, q_, q1_}, 4);
  EXPECT_EQ(status.code(), Code::kUserFailure) << status.to_string();
  for (const auto& parameter : {p_, q_}) parameter->remove_hook(&hook);
}

}  // namespace
}  // namespace lockstep::testing
