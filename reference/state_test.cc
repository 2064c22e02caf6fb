// S3 in the model.
#include "reference/state.h"

#include <gtest/gtest.h>

#include "reference/model.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

Buffer buffer_of(std::uint32_t key, std::vector<std::uint32_t> sizes, std::uint32_t device = 0) {
  Buffer buffer;
  buffer.key = key;
  buffer.sizes = std::move(sizes);
  buffer.device = device;
  return buffer;
}

// Two ranks, a parameter that all use, `steps` steps and one buffer.
Program program_of(const std::vector<PassKind>& kinds) {
  Program program;
  program.parameters.resize(1);
  Forward forward;
  forward.nodes.resize(1);
  forward.outputs.resize(1);
  for (const PassKind kind : kinds) {
    Step& step = program.steps.emplace_back();
    step.key = static_cast<std::uint32_t>(program.steps.size());
    step.kind = kind;
    step.variants.resize(1);
    step.variants[0].forwards = {forward};
  }
  program.buffers = {buffer_of(7, {2})};
  normalize(program);
  return program;
}

std::vector<bool> broadcasts(const Expectation& expectation) {
  std::vector<bool> out;
  for (const ExpectedStep& step : expectation.steps) {
    out.push_back(false);
    for (const ExpectedCollective& each : step.collectives)
      if (each.op == ExpectedCollective::Op::kBroadcastBuffers) out.back() = true;
  }
  return out;
}

TEST(State, S3ChunksCloseAtTheirLimitOnOneDeviceAndBeginAt64Bytes) {
  Program program = program_of({});
  program.buffers = {buffer_of(1, {4}), buffer_of(2, {1}), buffer_of(3, {1}), buffer_of(4, {0}),
                     buffer_of(5, {3}, 1)};
  EXPECT_EQ(buffer_chunks(program.options, state_tensors(program)),
            (std::vector<std::uint64_t>{64 + 64 + 4, 12}));
  program.options.chunk_bytes = 16;
  EXPECT_EQ(buffer_chunks(program.options, state_tensors(program)),
            (std::vector<std::uint64_t>{16, 64 + 4, 12}));
  program.buffers[1].ignored = true;
  EXPECT_EQ(buffer_chunks(program.options, state_tensors(program)),
            (std::vector<std::uint64_t>{16, 4, 12}));
}

TEST(State, S3TheFirstForwardOfAWindowBroadcasts) {
  using enum PassKind;
  const Program program = program_of({kNoGrad, kNoSync, kNoSync, kSynced, kSynced, kNoSync});
  const Expectation expectation = run(program, Contract::lockstep());
  EXPECT_EQ(broadcasts(expectation), (std::vector<bool>{false, true, false, false, true, true}));
}

TEST(State, S3RanksPartInAWindowAndMeetInTheNext) {
  using enum PassKind;
  const Program program = program_of({kNoSync, kSynced, kSynced});
  const Expectation expectation = run(program, Contract::lockstep());
  const StateTensor tensor = state_tensors(program)[0];
  const std::vector<std::uint64_t> start = {start_of_state(program, tensor, 0, 0),
                                            start_of_state(program, tensor, 0, 1)};
  std::vector<std::vector<std::uint64_t>> expected = {start, start};  // elements by rank
  for (std::uint32_t s = 0; s < 3; ++s) {
    if (s == 2) expected[1] = expected[0];
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      for (std::uint64_t e = 0; e < 2; ++e)
        expected[rank][e] = after_forward(program, tensor, rank, s + 1, 0, e, expected[rank][e]);
      EXPECT_EQ(expectation.steps[s].ranks[rank].state,
                std::vector<std::uint64_t>{hash_of_state(expected[rank])})
          << "step " << s << ", rank " << rank;
    }
    EXPECT_NE(expected[0], expected[1]);
  }
}

TEST(State, S3ARecoveryBeginsAnewWithTheFirstSurvivor) {
  using enum PassKind;
  const Program program = program_of({kSynced, kNoGrad});
  const Expectation expectation = run(program, Contract::lockstep(), {{1, {1}}});
  const StateTensor tensor = state_tensors(program)[0];
  EXPECT_EQ(expectation.steps[1].ranks[1].state,
            std::vector<std::uint64_t>{hash_of_state(
                {start_of_state(program, tensor, 1, 0), start_of_state(program, tensor, 1, 1)})});
}

TEST(State, S3AnIgnoredParameterKeepsItsLocalSum) {
  using enum PassKind;
  Program program = program_of({kSynced});
  program.parameters.push_back(program.parameters[0]);
  program.parameters[1].key = 5;
  program.parameters[0].ignored = true;
  Node second;
  second.parameter = 1;
  second.inputs.resize(1);
  program.steps[0].variants[0].forwards[0].nodes.push_back(second);
  normalize(program);
  const Expectation expectation = run(program, Contract::lockstep());
  const ExpectedStep& step = expectation.steps[0];
  ASSERT_EQ(expectation.buckets.size(), 1u);
  EXPECT_EQ(expectation.buckets[0].parameters, std::vector<std::uint32_t>{1});
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const ExpectedGradient& left = step.ranks[rank].gradients[0];
    EXPECT_TRUE(left.defined && !left.reduced);
    EXPECT_EQ(expectation.bits[left.offset],
              value_of(program, program.parameters[0], rank, 1, 0, 0));
    EXPECT_TRUE(step.ranks[rank].gradients[1].reduced);
  }
}

}  // namespace
}  // namespace lockstep::reference
