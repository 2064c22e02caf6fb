// Claims: what no declared order explains is explained by another order, another arithmetic, a
// factor, weights, or by parts; a flipped bit is the last guess; noise is none of these; and the
// libraries of the atlas that add so are named, with what would tell them apart.
#include "properties/explain/explain_more.h"

#include <gtest/gtest.h>

#include <random>

#include "properties/explain/atlas_match.h"
#include "properties/explain/average.h"
#include "reference/order_families.h"
#include "reference/test_arithmetic.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using Bits = std::vector<std::uint64_t>;

constexpr std::size_t kElements = 600;

class ExplainMore : public testing::Test {
 protected:
  ExplainMore() {
    std::mt19937_64 random(3);
    std::normal_distribution<double> values(0, 1);
    inputs_.ranks.resize(4);
    for (Bits& rank : inputs_.ranks)
      for (std::size_t i = 0; i < kElements; ++i) rank.push_back(bits(values(random)));
  }

  static std::uint64_t bits(double value) {
    return reference::round_from_double(DType::kFloat32, value);
  }
  double value(std::size_t rank, std::size_t i) const {
    return reference::to_double(DType::kFloat32, inputs_.ranks[rank][i]);
  }
  Bits average_in(const std::vector<reference::OrderRun>& runs,
                  Rounding rounding = Rounding::kEachAddition,
                  Division division = Division::kBefore) const {
    const Average average(inputs_, inputs_.ranks[0]);
    Bits out;
    for (std::size_t i = 0; i < kElements; ++i)
      out.push_back(average.bits_of(i, average.run_of(runs, i), rounding, division));
    return out;
  }
  Bits weighted(const std::vector<double>& weights) const {
    Bits out;
    for (std::size_t i = 0; i < kElements; ++i) {
      double sum = 0;
      for (std::size_t rank = 0; rank < weights.size(); ++rank)
        sum += weights[rank] * value(rank, i);
      out.push_back(bits(sum));
    }
    return out;
  }
  std::string explained(const Bits& result) const {
    return to_text(explain_bits(inputs_, result), result.size());
  }

  AverageInputs inputs_;
  const std::vector<reference::OrderRun> in_rank_order_ = reference::rank_order(4, kElements);
};

TEST_F(ExplainMore, AnOrderOfAFamily) {
  EXPECT_EQ(explained(average_in(reference::halving(4, kElements))),
            "the average, added in the order (0+2)+(1+3) (halving)");
  EXPECT_EQ(explained(average_in(reference::ring(4, kElements, {reference::Direction::kDown, 1}))),
            "the average, added in a ring down from c+1, the first chunks longer = ring down from "
            "c+1, the last chunk longer");
}

TEST_F(ExplainMore, AnOrderWithoutAName) {
  for (reference::OrderRun run : all_orders(4)) {
    run.end = kElements;
    const auto found = explain_bits(inputs_, average_in({run}));
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front().mistake, "");
    EXPECT_EQ(found.front().matches, kElements);
  }
}

TEST_F(ExplainMore, AnotherArithmetic) {
  EXPECT_EQ(explained(average_in(in_rank_order_, Rounding::kDoubleOnce, Division::kAfterInWide)),
            "the average, in any order of additions, but it is added in double, rounded once");
}

TEST_F(ExplainMore, ValuesOfANarrowerDTypeThatWereSavedAsFloat32) {
  AverageInputs narrow = inputs_;
  narrow.dtype = DType::kBFloat16;
  for (Bits& rank : narrow.ranks)
    for (std::uint64_t& each : rank)
      each = reference::round_from_double(DType::kBFloat16,
                                          reference::to_double(DType::kFloat32, each));
  const Average average(narrow, narrow.ranks[0]);
  const auto chain = reference::chain(4, kElements);
  Bits result;
  for (std::size_t i = 0; i < kElements; ++i)
    result.push_back(bits(reference::to_double(
        DType::kBFloat16,
        average.bits_of(i, chain.front(), Rounding::kEachAddition, Division::kBefore))));
  EXPECT_EQ(explained(result),
            "the average, added in the order 0+(1+(2+3)) (chain), but each contribution is rounded "
            "to bfloat16 first");
}

TEST_F(ExplainMore, AConstantFactor) {
  const auto by = [&](double factor) {
    return explained(weighted(std::vector<double>(4, factor / 4)));
  };
  EXPECT_EQ(by(1.0 / 65536), "the average, added in some order, but it is 1/65536 of that");
  EXPECT_EQ(by(1024), "the average, added in some order, but it is 1024 times that");
  EXPECT_EQ(by(3.0 / 7), "the average, added in some order, but it is 3/7 of that");
  EXPECT_EQ(by(4.0 / kElements),
            "the average, added in some order, but it is divided by the 600 elements and not by 4");
}

TEST_F(ExplainMore, AWeightForEachRank) {
  EXPECT_EQ(explained(weighted({5.0 / 11, 1.0 / 11, 3.0 / 11, 2.0 / 11})),
            "a sum with weights: 5/11, 1/11, 3/11, 2/11 of the ranks 0 to 3");
  EXPECT_EQ(explained(weighted({0.5, 0, 0.5, 0})), "the average of the ranks 0, 2 alone");
}

TEST_F(ExplainMore, PartsOfTheElements) {
  Bits result = average_in(in_rank_order_);
  for (std::size_t i = 300; i < kElements; ++i) result[i] = inputs_.ranks[2][i];
  EXPECT_EQ(explained(result),
            "in parts: [0, 300): the average, in rank order; [300, 600): rank 2's own values");
  result = average_in(in_rank_order_);
  for (std::size_t i = 100; i < 150; ++i) result[i] = result[i - 100];
  EXPECT_EQ(explained(result),
            "in parts: [0, 100): the average, in rank order; [100, 150): the values of [0, 50) "
            "once more; [150, 600): the average, in rank order");
}

// Of several flipped bits, and of other values, nobody can say that they were flipped.
TEST_F(ExplainMore, AFlipIsAGuessAboutOneElement) {
  Bits result = average_in(in_rank_order_);
  result[20] ^= 1U << 5U;
  EXPECT_EQ(explained(result),
            "the average, added in rank order, but bit 5 is flipped in one value");
  result[400] ^= 1U << 5U;
  EXPECT_EQ(explained(result),
            "the average, added in rank order (this explains 598 of 600 values)");
  EXPECT_TRUE(explain_by_flipped_bit(inputs_, result).empty());
}

TEST_F(ExplainMore, AnAverageWhoseLastBitsNoOrderGives) {
  Bits result = average_in(in_rank_order_);
  for (std::uint64_t& each : result) each ^= 1U;
  EXPECT_EQ(explained(result),
            "the average, added in some order, but no order that is known gives the last bits");
}

TEST_F(ExplainMore, NoiseIsNothing) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> values(0, 1);
  Bits noise;
  for (std::size_t i = 0; i < kElements; ++i) noise.push_back(bits(values(random)));
  for (const auto explain : {explain_by_orders, explain_by_arithmetic, explain_by_weights,
                             explain_by_parts, explain_by_flipped_bit, explain_by_rounding})
    EXPECT_TRUE(explain(inputs_, noise).empty());
}

TEST_F(ExplainMore, LibrariesThatAddSoAreNamed) {
  const auto text = [&](const std::vector<reference::OrderRun>& runs) {
    return text_of(match_atlas(inputs_, average_in(runs)), inputs_);
  };
  const std::string mlx = text(reference::ring(
      4, kElements, {reference::Direction::kDown, 0, reference::Chunks::kRoundedUp}));
  EXPECT_EQ(
      mlx,
      "libraries that add so at this size:\n  oneccl 2021.17.2 to 2022.1.2, "
      "reduce_scatter_block: ring down from c, as for 1 to 400,000 elements at 4 ranks\n  mlx "
      "0.29.4 to 0.32.4, all_reduce: ring down from c, as for 4 to 8,192 elements at 4 ranks\n"
      "  random values of 100 elements on 3 ranks would show 2 different orders of these 2\n");
  const std::string doubling = text(reference::doubling(4, kElements));
  EXPECT_NE(doubling.find("openmpi 4.1.8 to 5.0.11, all_reduce: doubling"), std::string::npos);
  EXPECT_NE(doubling.find("mpich 5.0.2, all_reduce: doubling, as for 1 to 20,000 elements at 4 "
                          "ranks, in calls 1 to 4 of a communicator"),
            std::string::npos);
  EXPECT_NE(doubling.find("  random values of "), std::string::npos) << doubling;
  EXPECT_EQ(text(reference::ring(4, kElements, {reference::Direction::kDown, 2})), "");
}

}  // namespace
}  // namespace lockstep::properties
