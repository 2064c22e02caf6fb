// Claims: bits that a known computation makes are explained by it, whatever the dtype and the
// number of ranks; what is right is called right; and what nothing makes is not explained.
#include "properties/explain/explain_bits.h"

#include <gtest/gtest.h>

#include <random>

#include "reference/order.h"
#include "reference/test_arithmetic.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using Bits = std::vector<std::uint64_t>;

constexpr std::size_t kCount = 500;

AverageInputs random_inputs(DType dtype, std::uint32_t world, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> values(0, 1);
  AverageInputs inputs;
  inputs.dtype = dtype;
  inputs.ranks.resize(world);
  for (Bits& rank : inputs.ranks)
    for (std::size_t i = 0; i < kCount; ++i)
      rank.push_back(reference::round_from_double(dtype, values(random)));
  for (std::size_t i = 0; i < kCount; ++i)
    inputs.before.push_back(reference::round_from_double(dtype, values(random)));
  return inputs;
}

// One element after the other, in rank order.
Bits average(const AverageInputs& inputs, std::uint32_t divisor) {
  Bits out;
  for (std::size_t i = 0; i < kCount; ++i) {
    std::uint64_t sum = reference::scale(inputs.dtype, inputs.ranks[0][i], divisor);
    for (std::size_t rank = 1; rank < inputs.ranks.size(); ++rank)
      sum = reference::add(inputs.dtype, sum,
                           reference::scale(inputs.dtype, inputs.ranks[rank][i], divisor));
    out.push_back(sum);
  }
  return out;
}

std::string explained(const AverageInputs& inputs, const Bits& result) {
  return to_text(explain_bits(inputs, result), result.size());
}

TEST(ExplainBits, TheAverageInRankOrderIsRight) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const std::uint32_t world : {3U, 4U, 5U, 8U}) {
      const AverageInputs inputs = random_inputs(dtype, world, world);
      EXPECT_EQ(explained(inputs, average(inputs, world)), "the average, added in rank order");
    }
  }
}

TEST(ExplainBits, OrdersThatGiveTheSameBitsAreListedTogether) {
  const AverageInputs inputs = random_inputs(DType::kFloat32, 2, 1);
  EXPECT_EQ(explained(inputs, average(inputs, 2)), "the average, in any order of additions");
}

// The average with these additions.
Bits average_in(const std::vector<reference::OrderRun>& runs, const AverageInputs& inputs) {
  const auto world = static_cast<std::uint32_t>(inputs.ranks.size());
  Bits result;
  for (std::size_t i = 0; i < kCount; ++i) {
    Bits x;
    for (const Bits& rank : inputs.ranks)
      x.push_back(reference::scale(inputs.dtype, rank[i], world));
    std::size_t run = 0;
    while (runs[run].end <= i) ++run;
    for (std::uint32_t k = 0; k + 1 < world; ++k)
      x[runs[run].additions[k].into] = reference::add(inputs.dtype, x[runs[run].additions[k].into],
                                                      x[runs[run].additions[k].from]);
    result.push_back(x[runs[run].result]);
  }
  return result;
}

TEST(ExplainBits, TellsTheDeclaredOrdersFromEachOther) {
  const std::uint32_t world = 4;
  const AverageInputs inputs = random_inputs(DType::kFloat32, world, 7);
  const auto explained_as = [&inputs](const std::vector<reference::OrderRun>& runs) {
    return explained(inputs, average_in(runs, inputs));
  };
  EXPECT_EQ(explained_as(reference::gloo_ring(world, kCount, 4, std::uint64_t{1} << 20)),
            "the average, added in Gloo's ring");
  EXPECT_EQ(explained_as(reference::gloo_bcube(world, kCount)),
            "the average, added in Gloo's bcube");
  EXPECT_EQ(explained_as(reference::nccl_ring(world, kCount, 4)),
            "the average, added in NCCL's ring (2.22 and newer)");
  // NCCL 2.20 puts so few values into one chunk.
  EXPECT_EQ(explained_as(reference::nccl_ring(world, kCount, 4, reference::kNcclChunkBytes,
                                              reference::NcclRing::kSince220)),
            "the average, added in NCCL's ring (2.20 and 2.21)");
}

TEST(ExplainBits, TellsNcclsRingsWithOtherChunksFromEachOther) {
  const std::uint32_t world = 3;
  AverageInputs inputs = random_inputs(DType::kFloat32, world, 9);
  // The array is the end of a larger buffer.
  inputs.buffer_count = 7000;
  inputs.offset = inputs.buffer_count - kCount;
  inputs.nccl_chunk_bytes = 8192;
  std::vector<reference::OrderRun> runs;
  for (reference::OrderRun run : reference::nccl_ring(world, inputs.buffer_count, 4, 8192)) {
    if (run.end <= inputs.offset) continue;
    run.end -= inputs.offset;
    runs.push_back(run);
  }
  const Bits result = average_in(runs, inputs);
  EXPECT_EQ(explained(inputs, result), "the average, added in NCCL's ring (2.22 and newer)");
  inputs.nccl_chunk_bytes = reference::kNcclChunkBytes;
  EXPECT_NE(explained(inputs, result), "the average, added in NCCL's ring (2.22 and newer)");
}

// One mistake a planted cause.
class ExplainMistake : public testing::Test {
 protected:
  AverageInputs inputs_ = random_inputs(DType::kFloat32, 3, 11);
  Bits right_ = average(inputs_, 3);
  AverageInputs wrong_ = inputs_;  // what the faulty reducer summed

  void expect(const std::string& text, const Bits& result) {
    const auto found = explain_bits(inputs_, result);
    ASSERT_FALSE(found.empty());
    EXPECT_FALSE(found.front().mistake.empty());
    EXPECT_EQ(to_text(found, result.size()), text);
  }
};

// Two ranks are left, and their sum has no order.
TEST_F(ExplainMistake, AMissingRank) {
  wrong_.ranks[1].assign(kCount, 0);
  expect("the average, in any order of additions, but rank 1 is missing", average(wrong_, 3));
}

TEST_F(ExplainMistake, ARankCountedTwice) {
  Bits result;
  for (std::size_t i = 0; i < kCount; ++i) {
    Bits x;
    for (const Bits& rank : inputs_.ranks)
      x.push_back(reference::scale(DType::kFloat32, rank[i], 3));
    x[2] = reference::add(DType::kFloat32, x[2], x[2]);
    result.push_back(
        reference::add(DType::kFloat32, reference::add(DType::kFloat32, x[0], x[1]), x[2]));
  }
  expect("the average, added in rank order, but rank 2 is counted twice", result);
}

TEST_F(ExplainMistake, TheValuesOfAnotherRank) {
  wrong_.ranks[0] = wrong_.ranks[2];
  // The older ring begins with rank 1, and so adds the same three in the same order.
  expect(
      "the average, added in rank order or NCCL's ring (2.20 and 2.21), but rank 0 has the values "
      "of rank 2",
      average(wrong_, 3));
}

TEST_F(ExplainMistake, TheDivisorOfASmallerGroup) {
  expect("the average, added in rank order, but it is divided by 2 and not by 3",
         average(inputs_, 2));
}

TEST_F(ExplainMistake, NoDivision) {
  expect("the average, added in rank order, but it is the sum and not the average",
         average(inputs_, 1));
}

TEST_F(ExplainMistake, DivisionAfterTheSum) {
  Bits result = average(inputs_, 1);
  for (std::uint64_t& each : result) each = reference::scale(DType::kFloat32, each, 3);
  expect("the average, added in rank order, but it is divided after the sum and not before",
         result);
}

TEST_F(ExplainMistake, TheOwnValuesOfARank) {
  expect("rank 1's own values, neither divided nor summed", inputs_.ranks[1]);
}

TEST_F(ExplainMistake, ThePassBefore) { expect("the average of the pass before", inputs_.before); }

TEST_F(ExplainMistake, AdditionToThePassBefore) {
  Bits result = right_;
  for (std::size_t i = 0; i < kCount; ++i)
    result[i] = reference::add(DType::kFloat32, result[i], inputs_.before[i]);
  expect("the average, added in rank order, but it is added to the average of the pass before",
         result);
}

TEST_F(ExplainMistake, AWrongOffset) {
  Bits result(right_.begin() + 3, right_.end());
  result.insert(result.end(), {1, 2, 3});
  expect("the average, added in rank order, but it lies 3 values too early", result);
}

TEST_F(ExplainMistake, OneFlippedBit) {
  Bits result = right_;
  result[77] ^= std::uint64_t{1} << 13;
  expect("the average, added in rank order, but bit 13 is flipped in one value", result);
}

TEST(ExplainBits, AMistakeInAPartOfTheValuesIsThePartThatItExplains) {
  const AverageInputs inputs = random_inputs(DType::kFloat32, 3, 5);
  Bits result = average(inputs, 3);
  for (std::size_t i = 0; i < 100; ++i) result[i] = 12345 + 7 * i * i;
  EXPECT_EQ(explained(inputs, result),
            "the average, added in rank order (this explains 400 of 500 values)");
}

TEST(ExplainBits, NoiseIsNotExplained) {
  const AverageInputs inputs = random_inputs(DType::kFloat32, 3, 5);
  EXPECT_EQ(explained(inputs, random_inputs(DType::kFloat32, 3, 6).before),
            "nothing that is known here gives these bits");
}

}  // namespace
}  // namespace lockstep::properties
