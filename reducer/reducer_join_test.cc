// Ranks with uneven inputs (S2).
#include <gtest/gtest.h>

#include <optional>

#include "reducer/hooks/builtin_hooks.h"
#include "reducer/module_state.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

constexpr int kJoiningRanks = 3;

// What one rank saw.
struct SeenInJoin {
  std::vector<double> sums;  // The gradient of p after each of its own steps.
  Status training;           // The status of the first step that failed.
  Status joined;             // The status of end_join().
  double p = 0;              // The gradient of p after end_join().
  double value = 0;          // The value of p.
  double buffer = 0;
  Layout layout;
  std::vector<std::size_t> rebuilt_order;
  std::vector<std::size_t> hooks;  // The parameters whose hooks ran: p is 0, q is 1.
  // The gradient of q after each of its own steps, and after end_join().
  std::vector<std::optional<double>> of_q;
  bool has_moved = false;  // Whether end_join() moved q's gradient.
  bool poisoned = false;
  Status after;  // The status of one more step.
};

struct Plan {
  ReducerOptions options = quick_options(false);
  JoinOptions join;
  bool has_hook = false;
  bool is_local = false;    // Every other step is local.
  bool skips_q = false;     // Rank 1 does not use q.
  std::vector<int> inputs;  // By rank.
};

class HookOrder final : public GradientHook {
 public:
  explicit HookOrder(std::vector<std::size_t>& order) : order_(order) {}
  Status gradient_ready(Parameter&, std::size_t index, GraphTask&) override {
    order_.push_back(index);
    return {};
  }

 private:
  std::vector<std::size_t>& order_;
};

std::optional<double> first_of(const Parameter& parameter) {
  if (!parameter.grad().defined()) return std::nullopt;
  return values_of(parameter.grad())[0];
}

// Rank r trains with gradients r + 1; after each synced pass its value of p is one higher.
SeenInJoin run_rank(const Plan& plan, Membership membership, int r) {
  SeenInJoin seen;
  TestRank rank;
  const Ref<Parameter> p = rank.add("p");
  const Ref<Parameter> q = rank.add("q");
  p->set_value(rank.tensor({0, 0}));
  const auto buffer = make_ref<Buffer>("b", rank.tensor({100.0 * r}));
  ReducerOptions options = plan.options;
  options.buffers = {buffer};
  if (plan.has_hook) options.hook = make_bf16_compress_hook();  // Its memory is on this rank.
  seen.training = rank.create(std::move(membership), options);
  if (!seen.training.ok()) return seen;
  HookOrder hook(seen.hooks);
  p->add_hook(&hook, 0);
  q->add_hook(&hook, 1);
  seen.training = rank.parallel->begin_join(plan.join);
  double value = 0;
  for (int step = 0; step < plan.inputs[static_cast<std::size_t>(r)]; ++step) {
    const bool is_local = plan.is_local && step % 2 == 0;
    std::optional<DataParallel::NoSync> guard;
    if (is_local) guard.emplace(*rank.parallel);
    if (!is_local || !plan.is_local) rank.undefine_grads();
    const std::vector<Ref<Parameter>> used =
        plan.skips_q && r == 1 ? std::vector<Ref<Parameter>>{p} : std::vector<Ref<Parameter>>{p, q};
    const auto outputs = rank.forward_of(used);
    seen.training = rank.forward_status;
    if (seen.training.ok()) seen.training = rank.backward(outputs, r + 1);
    if (!seen.training.ok()) break;
    if (!is_local) p->set_value(rank.tensor({++value, 0}));
    buffer->set_value(rank.tensor({values_of(buffer->value())[0] + 1}));
    seen.sums.push_back(values_of(p->grad())[0]);
    seen.of_q.push_back(first_of(*q));
  }
  const std::byte* const place = q->grad().defined() ? q->grad().data() : nullptr;
  seen.joined = rank.parallel->end_join();
  seen.of_q.push_back(first_of(*q));
  seen.has_moved = place != (q->grad().defined() ? q->grad().data() : nullptr);
  if (p->grad().defined()) seen.p = values_of(p->grad())[0];
  seen.value = values_of(p->value())[0];
  seen.buffer = values_of(buffer->value())[0];
  seen.layout = rank.parallel->reducer().layout();
  seen.rebuilt_order = rank.parallel->reducer().rebuilt_order();
  seen.poisoned = !rank.parallel->poisoned().ok();
  rank.undefine_grads();
  seen.after = rank.backward(rank.forward_of({p, q}), 1);
  p->remove_hook(&hook);
  q->remove_hook(&hook);
  return seen;
}

std::vector<SeenInJoin> run_ranks(const Plan& plan) {
  const std::vector<Membership> memberships = local_memberships(kJoiningRanks);
  std::vector<SeenInJoin> seen(kJoiningRanks);
  on_ranks(kJoiningRanks, [&](int r) {
    const auto number = static_cast<std::size_t>(r);
    seen[number] = run_rank(plan, memberships[number], r);
  });
  return seen;
}

void expect_ended_well(const std::vector<SeenInJoin>& seen) {
  for (const SeenInJoin& rank : seen) {
    EXPECT_TRUE(rank.training.ok()) << rank.training.to_string();
    EXPECT_TRUE(rank.joined.ok()) << rank.joined.to_string();
  }
}

double rounded_mean(double sum, int ranks) {
  return rounded(DType::kFloat32, sum * factor_of(DType::kFloat32, ranks));
}

TEST(ReducerJoin, S2ARankOutOfInputsContributesZerosAndTheMeanIsOverAllRanks) {
  Plan plan;
  plan.inputs = {3, 1, 3};
  const std::vector<SeenInJoin> seen = run_ranks(plan);
  expect_ended_well(seen);
  const double all =
      rounded(DType::kFloat32, rounded(DType::kFloat32, rounded_mean(1, 3) + rounded_mean(2, 3)) +
                                   rounded_mean(3, 3));
  const double two = rounded(DType::kFloat32, rounded_mean(1, 3) + rounded_mean(3, 3));
  EXPECT_EQ(seen[0].sums, (Values{all, two, two}));
  EXPECT_EQ(seen[1].sums, (Values{all}));
  EXPECT_EQ(seen[1].p, two);  // The others' last pass gave it.
}

TEST(ReducerJoin, S2TheMeanCanBeOverThoseThatTrain) {
  Plan plan;
  plan.join.divide_by_active = true;
  plan.inputs = {1, 2, 3};
  const std::vector<SeenInJoin> seen = run_ranks(plan);
  expect_ended_well(seen);
  EXPECT_EQ(seen[2].sums[1], 2.5);
  EXPECT_EQ(seen[2].sums[2], 3);
}

TEST(ReducerJoin, S2AHookIsToldOfTheDivisorAndRunsOnARankWithoutInputs) {
  Plan plan;
  plan.has_hook = true;
  plan.join.divide_by_active = true;
  plan.inputs = {0, 2, 2};
  const std::vector<SeenInJoin> seen = run_ranks(plan);
  expect_ended_well(seen);
  EXPECT_EQ(seen[1].sums, (Values{2.5, 2.5}));
}

TEST(ReducerJoin, S2EndsWithWhatTheRanksHaveThatTrainedLast) {
  Plan plan;
  plan.inputs = {0, 1, 3};
  const std::vector<SeenInJoin> seen = run_ranks(plan);
  expect_ended_well(seen);
  for (const SeenInJoin& rank : seen) {
    EXPECT_EQ(rank.value, 3);
    EXPECT_EQ(rank.buffer, 3);
  }
}

// Each step adds one. The buffer of rank 0 is as old as its last forward.
TEST(ReducerJoin, S2BuffersComeFromTheLowestRankThatTrains) {
  Plan plan;
  plan.inputs = {1, 6, 4};
  const std::vector<SeenInJoin> seen = run_ranks(plan);
  expect_ended_well(seen);
  for (const SeenInJoin& rank : seen) EXPECT_EQ(rank.buffer, 6);
}

// Rank 2 trains one step, and shadows the others forward by forward: a local one that sends
// buffers, a synced one that does not, and a synced one that does.
TEST(ReducerJoin, S2ARankOutOfInputsCanShadowForwardByForward) {
  const std::vector<Membership> memberships = local_memberships(kJoiningRanks);
  const std::vector<bool> is_synced{true, false, true, true};
  const std::vector<bool> sends_buffers{true, true, false, true};
  on_ranks(kJoiningRanks, [&](int r) {
    TestRank rank;
    const Ref<Parameter> p = rank.add("p");
    ReducerOptions options = quick_options(false);
    options.buffers = {make_ref<Buffer>("b", rank.tensor({1}))};
    ASSERT_TRUE(rank.create(memberships[static_cast<std::size_t>(r)], options).ok());
    EXPECT_EQ(rank.parallel->shadow_forward(true, true).code(), Code::kInvalidArgument);
    ASSERT_TRUE(rank.parallel->begin_join({}).ok());
    for (std::size_t step = 0; step < is_synced.size(); ++step) {
      if (r == 2 && step > 0) {
        const Status status = rank.parallel->shadow_forward(is_synced[step], sends_buffers[step]);
        ASSERT_TRUE(status.ok()) << status.to_string();
        continue;
      }
      EXPECT_EQ(rank.parallel->reducer().sends_buffers(Reducer::Refresh::kOncePerWindow),
                sends_buffers[step]);
      std::optional<DataParallel::NoSync> guard;
      if (!is_synced[step]) guard.emplace(*rank.parallel);
      rank.undefine_grads();
      const Status status = rank.backward(rank.forward_of({p}), r + 1);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_EQ(values_of(p->grad())[0], rounded_mean(3, kJoiningRanks));
    const Status joined = rank.parallel->end_join();
    EXPECT_TRUE(joined.ok()) << joined.to_string();
    EXPECT_EQ(rank.parallel->reducer().last_that_trained(), 0);
  });
}

TEST(ReducerJoin, S2NobodyHasInputs) {
  Plan plan;
  plan.options.rebuild_buckets = true;
  plan.inputs = {0, 0, 0};
  const std::vector<SeenInJoin> seen = run_ranks(plan);
  expect_ended_well(seen);
  for (const SeenInJoin& rank : seen) {
    EXPECT_EQ(rank.buffer, 0);  // It is that of rank 0.
    EXPECT_EQ(rank.of_q, std::vector<std::optional<double>>{std::nullopt});
    EXPECT_TRUE(rank.rebuilt_order.empty());
    EXPECT_TRUE(rank.after.ok()) << rank.after.to_string();
  }
}

TEST(ReducerJoin, S2LocalPassesAreNotShadowed) {
  Plan plan;
  plan.is_local = true;
  plan.inputs = {4, 0, 4};
  const std::vector<SeenInJoin> seen = run_ranks(plan);
  expect_ended_well(seen);
  EXPECT_EQ(seen[0].sums[0], 1);
}

// With inputs {1, 3, 1} and skips_q no rank uses q from the second step on. Rank 1, which undefines
// it, has no gradient then, and the others keep the one of the first step.
void expect_unused_stays(const std::vector<SeenInJoin>& seen) {
  expect_ended_well(seen);
  const double mean = rounded(DType::kFloat32, rounded_mean(1, 3) + rounded_mean(3, 3));
  for (const std::size_t r : {0u, 2u}) {
    EXPECT_EQ(seen[r].of_q, (std::vector<std::optional<double>>{mean, mean}));
    EXPECT_FALSE(seen[r].has_moved);
    EXPECT_EQ(seen[r].p, rounded_mean(2, 3));  // It comes from rank 1's last pass.
  }
  EXPECT_EQ(seen[1].of_q,
            (std::vector<std::optional<double>>{mean, std::nullopt, std::nullopt, std::nullopt}));
}

TEST(ReducerJoin, S2DynamicModeHasNoUseOnARankWithoutInputs) {
  Plan plan;
  plan.options.find_unused_parameters = true;
  plan.skips_q = true;
  plan.inputs = {1, 3, 1};
  expect_unused_stays(run_ranks(plan));
}

TEST(ReducerJoin, S2OfStaticModeEachRankCountsItsOwnFirstPass) {
  Plan plan;
  plan.options.static_graph = true;
  plan.join.divide_by_active = true;
  std::vector<Status> first(kJoiningRanks);
  std::vector<Status> second(kJoiningRanks);
  std::vector<double> sums(kJoiningRanks);
  const std::vector<Membership> memberships = local_memberships(kJoiningRanks);
  on_ranks(kJoiningRanks, [&](int r) {
    const auto number = static_cast<std::size_t>(r);
    TestRank rank;
    const Ref<Parameter> p = rank.add("p");
    const Ref<Parameter> q = rank.add("q");
    ASSERT_TRUE(rank.create(memberships[number], plan.options).ok());
    ASSERT_TRUE(rank.parallel->begin_join(plan.join).ok());
    for (int step = 0; step < (r == 1 ? 0 : 2); ++step) {
      rank.undefine_grads();
      first[number] = rank.backward(rank.forward_of({p, q}), r + 1);
    }
    ASSERT_TRUE(rank.parallel->end_join().ok());
    for (int step = 0; step < 2; ++step) {
      rank.undefine_grads();
      second[number] = rank.backward(rank.forward_of({p, q}), 3 * (r + 1));
    }
    sums[number] = values_of(q->grad())[0];
  });
  for (const Status& status : first) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const Status& status : second) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const double sum : sums) EXPECT_NEAR(sum, 6, 1e-5);
}

TEST(ReducerJoin, S2APassThatARankShadowedIsNotTheOneThatBucketsFollow) {
  Plan plan;
  plan.options.rebuild_buckets = true;
  plan.inputs = {0, 3, 3};
  const std::vector<SeenInJoin> seen = run_ranks(plan);
  expect_ended_well(seen);
  for (const SeenInJoin& rank : seen) {
    EXPECT_TRUE(rank.layout == seen[0].layout);
    EXPECT_TRUE(rank.rebuilt_order.empty());
  }
  // Now rank 0 has an order, and is out of inputs when the others follow it.
  plan.inputs = {1, 3, 3};
  const std::vector<SeenInJoin> followed = run_ranks(plan);
  expect_ended_well(followed);
  const std::vector<std::size_t> order(followed[0].hooks.begin(), followed[0].hooks.begin() + 2);
  for (const SeenInJoin& rank : followed) {
    EXPECT_TRUE(rank.layout == followed[0].layout);
    EXPECT_EQ(rank.rebuilt_order, order);
  }
}

TEST(ReducerJoin, S2ViewsOfARankWithoutInputsKeepWhatNobodyUses) {
  Plan plan;
  plan.options.find_unused_parameters = true;
  plan.options.gradient_as_bucket_view = true;
  plan.skips_q = true;
  plan.inputs = {1, 3, 1};
  expect_unused_stays(run_ranks(plan));
}

TEST(ReducerJoin, S2EarlyTerminationIsRaisedOnAllRanksAndNamesThem) {
  Plan plan;
  plan.join.throw_on_early_termination = true;
  plan.inputs = {3, 1, 3};
  const std::vector<SeenInJoin> seen = run_ranks(plan);
  for (int r = 0; r < kJoiningRanks; ++r) {
    const SeenInJoin& rank = seen[static_cast<std::size_t>(r)];
    const Status& status = r == 1 ? rank.joined : rank.training;
    ASSERT_EQ(status.code(), Code::kUnevenInputs) << status.to_string();
    EXPECT_EQ(status.failure().rank, 1);
    EXPECT_EQ(status.failure().pass, 1);
    EXPECT_NE(status.to_string().find("out of inputs: rank 1, not yet: ranks 0 2"),
              std::string::npos)
        << status.to_string();
    EXPECT_FALSE(rank.poisoned);
    EXPECT_TRUE(rank.after.ok()) << rank.after.to_string();
  }
}

TEST(ReducerJoin, S2EvenInputsAreNoEarlyTermination) {
  Plan plan;
  plan.join.throw_on_early_termination = true;
  plan.inputs = {2, 2, 2};
  expect_ended_well(run_ranks(plan));
}

TEST(ReducerJoin, S2OtherOptionsOnOtherRanksAreAMismatchOnAll) {
  const std::vector<Membership> memberships = local_memberships(2);
  std::vector<Status> statuses(2);
  on_ranks(2, [&](int r) {
    const auto number = static_cast<std::size_t>(r);
    TestRank rank;
    (void)rank.add("p");
    ASSERT_TRUE(rank.create(memberships[number], quick_options(false)).ok());
    ASSERT_TRUE(rank.parallel->begin_join({.divide_by_active = r == 0}).ok());
    statuses[number] = rank.parallel->end_join();
  });
  for (const Status& status : statuses) {
    ASSERT_EQ(status.code(), Code::kMismatch) << status.to_string();
    EXPECT_EQ(status.failure().collective, "all_reduce");
    EXPECT_GE(status.failure().sequence, 0);
  }
}

TEST(ReducerJoin, S2CallsOutOfOrderAreRefusedAndChangeNothing) {
  TestRank rank;
  (void)rank.add("p");
  ASSERT_TRUE(rank.create(local_memberships(1)[0], quick_options(false)).ok());
  EXPECT_EQ(rank.parallel->end_join().code(), Code::kInvalidArgument);
  ASSERT_TRUE(rank.parallel->begin_join().ok());
  EXPECT_EQ(rank.parallel->begin_join().code(), Code::kInvalidArgument);
  EXPECT_TRUE(rank.parallel->end_join().ok());
}

// The rank that waits for the others' passes receives the reason why there are no more (F2).
TEST(ReducerJoin, F2ARankWithoutInputsIsToldOfAPeersError) {
  const std::vector<Membership> memberships = local_memberships(2);
  std::vector<Status> statuses(2);
  on_ranks(2, [&](int r) {
    const auto number = static_cast<std::size_t>(r);
    TestRank rank;
    const Ref<Parameter> p = rank.add("p");
    const Ref<Parameter> q = rank.add("q");
    ASSERT_TRUE(rank.create(memberships[number], quick_options(false)).ok());
    ASSERT_TRUE(rank.parallel->begin_join().ok());
    if (r == 1) {
      statuses[number] = rank.parallel->end_join();
      return;
    }
    statuses[number] = rank.backward(rank.forward_of({q}), 1);  // q's bucket is the first.
  });
  EXPECT_EQ(statuses[0].code(), Code::kIncomplete) << statuses[0].to_string();
  EXPECT_EQ(statuses[1].code(), Code::kIncomplete) << statuses[1].to_string();
  EXPECT_EQ(statuses[1].failure().rank, 0);
}

}  // namespace
}  // namespace lockstep::testing
