// S2 in the model: ranks that run out of inputs.
#include <gtest/gtest.h>

#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/state.h"
#include "reference/test_values.h"

namespace lockstep::reference {
namespace {

using Op = ExpectedCollective::Op;

// Three ranks that use one parameter in each of three steps.
Program program_of(Join join, std::vector<std::uint32_t> inputs) {
  Program program;
  program.world = 3;
  program.options.join = join;
  program.options.order = Order::kRankOrder;
  program.steps_per_rank = std::move(inputs);
  program.parameters.resize(1);
  Forward forward;
  forward.nodes.resize(1);
  forward.outputs.resize(1);
  for (std::uint32_t s = 0; s < 3; ++s) {
    Step& step = program.steps.emplace_back();
    step.key = s;
    step.variants.resize(1);
    step.variants[0].forwards = {forward};
  }
  normalize(program);
  return program;
}

// Of those ranks, each divided by `divisor`, in rank order.
float mean(const Program& program, std::uint32_t step, const std::vector<std::uint32_t>& ranks,
           int divisor) {
  float sum = 0;
  const float factor = 1.0f / static_cast<float>(divisor);
  for (const std::uint32_t rank : ranks) {
    const std::uint64_t bits = value_of(program, program.parameters[0], rank, step, 0, 0);
    sum += static_cast<float>(to_double(DType::kFloat32, bits)) * factor;
  }
  return sum;
}

float gradient_of(const Expectation& expectation, const ExpectedRankStep& rank) {
  return static_cast<float>(to_double(DType::kFloat32, expectation.bits[rank.gradients[0].offset]));
}

std::vector<Op> collectives_of(const ExpectedStep& step) {
  std::vector<Op> ops;
  for (const ExpectedCollective& each : step.collectives) ops.push_back(each.op);
  return ops;
}

TEST(ModelJoin, S2ARankOutOfInputsCountsAsZeroInTheMeanOverAll) {
  const Program program = program_of(Join::kByAll, {3, 1, 3});
  const Expectation expectation = run(program, Contract::lockstep());
  EXPECT_EQ(gradient_of(expectation, expectation.steps[0].ranks[0]),
            mean(program, 0, {0, 1, 2}, 3));
  for (const std::uint32_t rank : {0u, 1u, 2u})
    EXPECT_EQ(gradient_of(expectation, expectation.steps[1].ranks[rank]),
              mean(program, 1, {0, 2}, 3));
  EXPECT_EQ(gradient_of(expectation, expectation.ending[1]), mean(program, 2, {0, 2}, 3));
}

TEST(ModelJoin, S2TheMeanOverThoseThatTrain) {
  const Program program = program_of(Join::kByActive, {0, 2, 3});
  const Expectation expectation = run(program, Contract::lockstep());
  EXPECT_EQ(gradient_of(expectation, expectation.steps[1].ranks[0]), mean(program, 1, {1, 2}, 2));
  EXPECT_EQ(gradient_of(expectation, expectation.steps[2].ranks[0]), mean(program, 2, {2}, 1));
}

TEST(ModelJoin, S2EarlyTerminationEndsTheStepInTheCallThatAnnounces) {
  Program program = program_of(Join::kByAll, {3, 1, 3});
  program.options.early_termination = true;
  const auto expect_ended = [&](std::uint32_t call) {
    const Expectation expectation = run(program, Contract::lockstep());
    EXPECT_FALSE(expectation.steps[0].any_error);
    for (const std::uint32_t rank : {0u, 2u}) {
      EXPECT_EQ(expectation.steps[1].ranks[rank].error, Error::kUnevenInputs);
      EXPECT_EQ(expectation.steps[1].ranks[rank].error_call, call);
    }
    EXPECT_EQ(expectation.steps[1].ranks[1].error, Error::kNone);
    EXPECT_EQ(collectives_of(expectation.steps[1]), (std::vector<Op>{Op::kAnnounce}));
  };
  expect_ended(0);
  program.buffers.resize(1);
  expect_ended(kForwardCall);
}

TEST(ModelJoin, S2EventsAreAnnouncedAndLocalPassesAreNone) {
  Program program = program_of(Join::kByAll, {3, 1, 3});
  program.options.rebuild = true;
  program.buffers.resize(1);
  program.steps[0].kind = PassKind::kNoSync;
  const Expectation expectation = run(program, Contract::lockstep());
  EXPECT_EQ(collectives_of(expectation.steps[0]),
            (std::vector<Op>{Op::kAnnounce, Op::kBroadcastBuffers}));
  EXPECT_EQ(collectives_of(expectation.steps[1]),
            (std::vector<Op>{Op::kAnnounce, Op::kAllReduceBucket}));
  // Shadowed by rank 1: not a pass to follow.
  EXPECT_EQ(
      collectives_of(expectation.steps[2]),
      (std::vector<Op>{Op::kAnnounce, Op::kBroadcastBuffers, Op::kAnnounce, Op::kAllReduceBucket}));
  EXPECT_EQ(expectation.steps[1].collectives[0].count, 8u);
}

TEST(ModelJoin, S2APassOfAllIsFollowedAlsoByARankWithoutInputs) {
  Program program = program_of(Join::kByAll, {1, 3, 3});
  program.options.rebuild = true;
  const Expectation expectation = run(program, Contract::lockstep());
  EXPECT_EQ(
      collectives_of(expectation.steps[1]),
      (std::vector<Op>{Op::kAnnounce, Op::kBroadcastOrder, Op::kAnnounce, Op::kAllReduceBucket}));
}

TEST(ModelJoin, S2AllEndWithTheStateOfTheLowestThatTrainedLast) {
  Program program = program_of(Join::kByAll, {1, 3, 3});
  program.options.with_values = true;
  program.buffers.resize(1);
  const Expectation expectation = run(program, Contract::lockstep());
  const auto& last = expectation.steps[2].ranks;
  EXPECT_NE(last[0].state, last[1].state);
  EXPECT_NE(last[1].state, last[2].state);  // buffers: each forward's own
  for (const ExpectedRankStep& rank : expectation.ending) EXPECT_EQ(rank.state, last[1].state);
}

// Buffers of rank 0 are as old as its last forward.
TEST(ModelJoin, S2BuffersComeFromTheLowestRankThatTrains) {
  Program program = program_of(Join::kByAll, {1, 3, 3});
  program.buffers.resize(1);
  const StateTensor tensor = state_tensors(program)[0];
  const Expectation expectation = run(program, Contract::lockstep());
  std::uint64_t bits = start_of_state(program, tensor, 0, 0);  // broadcast at construction
  bits = after_forward(program, tensor, 0, 0, 0, 0, bits);
  EXPECT_EQ(expectation.steps[0].ranks[0].state[0], hash_of_state({bits}));
  // Before the second step rank 1 sends what its own first forward made of that.
  bits = start_of_state(program, tensor, 0, 0);
  bits = after_forward(program, tensor, 1, 0, 0, 0, bits);
  EXPECT_EQ(expectation.steps[1].ranks[0].state[0], hash_of_state({bits}));
  bits = after_forward(program, tensor, 2, 1, 0, 0, bits);
  EXPECT_EQ(expectation.steps[1].ranks[2].state[0], hash_of_state({bits}));
}

TEST(ModelJoin, S2WithoutJoinInputsMeanNothing) {
  const Program program = program_of(Join::kNone, {0, 0, 0});
  const Expectation expectation = run(program, Contract::lockstep());
  EXPECT_TRUE(expectation.ending.empty());
  EXPECT_EQ(gradient_of(expectation, expectation.steps[2].ranks[0]),
            mean(program, 2, {0, 1, 2}, 3));
}

}  // namespace
}  // namespace lockstep::reference
