// The model against CONTRACT.md, several replicas of a model in one process (P15).
#include <gtest/gtest.h>

#include "reference/model/replicas.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;

// Parameters p and q, then their copies in another replica: 2 is p's, 3 is q's.
Case replicas(std::uint32_t world, Mode mode) {
  Case made(world, mode, 4);
  made.program.parameters[2].copy_of = made.program.parameters[3].copy_of = 2;
  made.program.parameters[2].device = made.program.parameters[3].device = 1;
  made.program.options.order = Order::kRankOrder;
  return made;
}

TEST(ModelReplicas, P15TheSumIsRoundedBeforeTheScaleAndLandsInTheFirst) {
  Case t = replicas(2, Mode::kPlain);
  t.step({uses({0, 1, 2, 3})}).run();
  const auto mean = [&](std::uint32_t first, std::uint32_t copy) {
    const auto own = [&](std::uint32_t rank) {
      const float sum = t.c(0, rank, first) + t.c(0, rank, copy);
      return sum * 0.5f;
    };
    return own(0) + own(1);
  };
  for (const std::uint32_t rank : {0u, 1u}) {
    EXPECT_EQ(t.value(0, rank, 0), mean(0, 2));
    EXPECT_EQ(t.value(0, rank, 1), mean(1, 3));
    for (const std::uint32_t copy : {2u, 3u}) {
      EXPECT_FALSE(t.gradient(0, rank, copy).defined);
      EXPECT_FALSE(t.gradient(0, rank, copy).untouched);
    }
  }
  EXPECT_EQ(t.expectation.steps[0].collectives.size(), 1u);
  EXPECT_EQ(t.expectation.buckets[0].parameters, (Indices{0, 1}));
}

TEST(ModelReplicas, P15CopiesHaveTheirOwnDevicesAndNoBuckets) {
  Case t = replicas(2, Mode::kPlain);
  t.step({uses({0, 1, 2, 3})}).run();
  ASSERT_EQ(t.expectation.buckets.size(), 1u);
  EXPECT_EQ(t.expectation.buckets[0].device, 0u);
}

TEST(ModelReplicas, P5APartThatIsMissingIsNamed) {
  Case t = replicas(2, Mode::kPlain);
  t.step({uses({0, 1, 2}), uses({0, 1, 2, 3})}).run();
  EXPECT_EQ(t.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(t.at(0, 0).parameters, (Indices{3}));
  EXPECT_EQ(t.at(0, 1).outcome, Outcome::kPeerError);
}

TEST(ModelReplicas, G6UseByOneReplicaIsUse) {
  Case t = replicas(2, Mode::kDynamic);
  t.step({uses({3}), nothing()}).run();
  EXPECT_EQ(t.value(0, 0, 1), t.c(0, 0, 3) * 0.5f + 0.0f);
  EXPECT_EQ(t.value(0, 1, 1), t.value(0, 0, 1));
  EXPECT_FALSE(t.gradient(0, 0, 0).defined);
  EXPECT_FALSE(t.gradient(0, 0, 3).defined);
}

TEST(ModelReplicas, G5WhatNobodyUsedStaysInEveryReplica) {
  Case t = replicas(1, Mode::kDynamic);
  t.step({uses({0, 1, 3})}, PassKind::kNoSync);
  t.step({uses({0})}, PassKind::kNoSync, ZeroGrad::kFill);  // p is used anew, q is not
  t.step({uses({2})}).run();
  EXPECT_TRUE(t.gradient(2, 0, 1).untouched);
  EXPECT_TRUE(t.gradient(2, 0, 3).untouched);
  EXPECT_TRUE(t.gradient(2, 0, 0).reduced);
  EXPECT_EQ(t.value(2, 0, 0), t.c(1, 0, 0) + t.c(2, 0, 2));
}

TEST(ModelReplicas, S3CopiesFollowAtTheBeginningOfAWindow) {
  Case t = replicas(2, Mode::kDynamic);
  t.program.options.with_values = true;
  t.program.buffers.resize(2);
  t.program.buffers[1].key = 9;
  t.program.buffers[1].copy_of = 1;
  t.step({uses({0})}, PassKind::kNoSync).step({uses({1})}).step({uses({0, 2})}).run();
  const auto state = [&](std::uint32_t step, std::size_t tensor) {
    return t.at(step, 1).state[tensor];
  };
  // Tensors: p, q, their copies, the buffer and its copy. Each is changed by a way of its own.
  EXPECT_EQ(state(0, 0), state(0, 2));  // copied, and not trained yet
  EXPECT_NE(state(1, 0), state(1, 2));  // trained
  EXPECT_NE(state(0, 4), state(0, 5));  // a forward has changed both
  const Contract contract;
  const Setting setting = make_setting(t.program, contract, 0);
  ModuleState other = receive(setting, initial_state(setting, 1), initial_state(setting, 0));
  other = copy_state_to_replicas(setting, true, other);
  EXPECT_EQ(hashes_of(other)[0], hashes_of(other)[2]);
  EXPECT_EQ(hashes_of(other)[4], hashes_of(other)[5]);
  // The copy is that of what two trainings of the first replica have made, but for the last one.
  other = train_values(setting, t.program.steps[1].key, other);
  other = copy_state_to_replicas(setting, true, other);
  other = train_values(setting, t.program.steps[2].key, other);
  EXPECT_EQ(hashes_of(other)[0], state(2, 0));
  EXPECT_EQ(hashes_of(other)[2], state(2, 2));
}

TEST(ModelReplicas, S3BuffersThatAreKeptAreCopiedOnce) {
  Case t = replicas(1, Mode::kPlain);
  t.program.options.keep_buffers = true;
  t.program.buffers.resize(2);
  t.program.buffers[1].key = 9;
  t.program.buffers[1].copy_of = 1;
  t.step({nothing()}, PassKind::kNoGrad).run();
  EXPECT_EQ(t.at(0, 0).state[0], t.at(0, 0).state[1]);
}

TEST(ModelReplicas, ACopyIsWhatItsOriginalIs) {
  Case t = replicas(2, Mode::kPlain);
  t.program.parameters[0].sizes = {3, 2};
  t.program.parameters[0].dtype = DType::kFloat16;
  t.program.parameters.push_back({});
  t.program.parameters[4].copy_of = 2;  // of 2, which is a copy of 0
  t.program.parameters.push_back({});
  t.program.parameters[5].copy_of = 5;  // one too many
  normalize(t.program);
  EXPECT_EQ(t.program.parameters[2].sizes, (std::vector<std::uint32_t>{3, 2}));
  EXPECT_EQ(t.program.parameters[4].copy_of, 4u);
  EXPECT_EQ(t.program.parameters[4].dtype, DType::kFloat16);
  EXPECT_EQ(t.program.parameters[5].copy_of, 0u);
  EXPECT_EQ(original_of(t.program, 4), 0u);
}

}  // namespace
}  // namespace lockstep::reference
