// Claims: each family adds as its description says, every rank once, for any number of ranks; and
// chunks cover the buffer.
#include "reference/order_families.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::reference {
namespace {

std::vector<std::string> texts(const std::vector<OrderRun>& runs, std::uint32_t ranks) {
  std::vector<std::string> out;
  for (const OrderRun& run : runs) out.push_back(text_of(run, ranks));
  return out;
}

std::string text(const std::vector<OrderRun>& runs, std::uint32_t ranks) {
  EXPECT_EQ(runs.size(), 1U);
  return text_of(runs.front(), ranks);
}

TEST(OrderFamilies, DoublingFoldsThenAddsNeighbours) {
  EXPECT_EQ(text(doubling(3, 9), 3), "(0+1)+2");
  EXPECT_EQ(text(doubling(4, 9), 4), "(0+1)+(2+3)");
  EXPECT_EQ(text(doubling(5, 9), 5), "((0+1)+2)+(3+4)");
  EXPECT_EQ(text(doubling(6, 9), 6), "((0+1)+(2+3))+(4+5)");
  EXPECT_EQ(text(doubling(7, 9), 7), "((0+1)+(2+3))+((4+5)+6)");
  EXPECT_EQ(text(doubling(8, 9), 8), "((0+1)+(2+3))+((4+5)+(6+7))");
}

TEST(OrderFamilies, HalvingAddsTheFarthestFirst) {
  EXPECT_EQ(text(halving(3, 9), 3), "(0+1)+2");
  EXPECT_EQ(text(halving(4, 9), 4), "(0+2)+(1+3)");
  EXPECT_EQ(text(halving(5, 9), 5), "((0+1)+3)+(2+4)");
  EXPECT_EQ(text(halving(6, 9), 6), "((0+1)+4)+((2+3)+5)");
}

TEST(OrderFamilies, TreesAddTheSubtreesOfTheirChildren) {
  EXPECT_EQ(text(chain(4, 9), 4), "0+(1+(2+3))");
  EXPECT_EQ(text(kary(8, 9, 4), 8), "(((0+(((1+5)+6)+7))+2)+3)+4");
  EXPECT_EQ(text(kary(8, 9, 2), 8), "(0+((1+(3+7))+4))+((2+5)+6)");
  EXPECT_EQ(text(knomial(5, 9, 2), 5), "((0+1)+(2+3))+4");
  EXPECT_EQ(text(knomial(6, 9, 4), 6), "(((0+1)+2)+3)+(4+5)");
  EXPECT_EQ(text(knomial(6, 9, 3), 6), "((0+1)+2)+((3+4)+5)");
  EXPECT_EQ(text(fanout(6, 9, 2), 6), "(0+((1+3)+5))+(2+4)");
}

TEST(OrderFamilies, RingsBeginAtAnotherRankInEachChunk) {
  const auto up = ring(4, 10, {Direction::kUp, 1, Chunks::kFirstLonger});
  EXPECT_EQ(texts(up, 4),
            (std::vector<std::string>{"0+((1+2)+3)", "(0+(2+3))+1", "((0+3)+1)+2", "((0+1)+2)+3"}));
  EXPECT_EQ(up[1].end, 6U);
  const auto down = ring(4, 10, {Direction::kDown, 0, Chunks::kLastLonger});
  EXPECT_EQ(texts(down, 4),
            (std::vector<std::string>{"((0+3)+2)+1", "((0+1)+3)+2", "(0+(1+2))+3", "0+(1+(2+3))"}));
  EXPECT_EQ(down[2].end, 6U);
  const auto coarse = ring(4, 100, {Direction::kUp, 0, Chunks::kAboveGrain, 16});
  EXPECT_EQ(coarse[0].end, 32U);
  EXPECT_EQ(coarse[3].end, 100U);
  EXPECT_EQ(ring(4, 64, {Direction::kUp, 0, Chunks::kAboveGrain, 16}).size(), 2U);
}

TEST(OrderFamilies, GloosRingIsARingDownThatBeginsBelowItsChunk) {
  for (const std::uint32_t ranks : {3U, 4U, 7U}) {
    const auto gloo = gloo_ring(ranks, 64U * ranks, 4, 1U << 20U);
    const auto same = ring(ranks, 64U * ranks, {Direction::kDown, ranks - 1, Chunks::kRoundedUp});
    EXPECT_EQ(texts(gloo, ranks), texts(same, ranks));
  }
}

TEST(OrderFamilies, AShortFirstPieceMayHaveAnotherOrder) {
  const OrderRun small = kary(4, 1, 4).front();
  const OrderRun large = kary(4, 1, 2).front();
  const auto ends = [&](std::uint64_t elements) {
    std::vector<std::pair<std::uint64_t, std::string>> out;
    for (const OrderRun& run : in_pieces(elements, 2048, 512, small, large))
      out.emplace_back(run.end, text_of(run, 4));
    return out;
  };
  using Ends = std::vector<std::pair<std::uint64_t, std::string>>;
  const std::string four = "((0+1)+2)+3";
  const std::string two = "(0+(1+3))+2";
  EXPECT_EQ(ends(0), Ends());
  EXPECT_EQ(ends(512), (Ends{{512, four}}));
  EXPECT_EQ(ends(513), (Ends{{513, two}}));
  EXPECT_EQ(ends(4096), (Ends{{4096, two}}));
  EXPECT_EQ(ends(4196), (Ends{{100, four}, {4196, two}}));
  EXPECT_EQ(ends(4696), (Ends{{4696, two}}));
}

// Each addition takes a rank that still holds something, and gives away what it has.
bool adds_every_rank_once(const OrderRun& run, std::uint32_t ranks) {
  std::set<std::uint32_t> gone;
  for (std::uint32_t i = 0; i + 1 < ranks; ++i) {
    const auto [into, from] = run.additions[i];
    if (into >= ranks || from >= ranks || gone.contains(into) || !gone.insert(from).second)
      return false;
  }
  return gone.size() == ranks - 1 && !gone.contains(run.result);
}

TEST(OrderFamilies, EveryFamilyAddsEveryRankOnce) {
  for (std::uint32_t ranks = 1; ranks <= kMaxWorld; ++ranks) {
    std::vector<std::vector<OrderRun>> all = {chain(ranks, 500), doubling(ranks, 500),
                                              halving(ranks, 500)};
    for (std::uint32_t k = 2; k <= 8; ++k) {
      all.push_back(knomial(ranks, 500, k));
      all.push_back(kary(ranks, 500, k));
      all.push_back(fanout(ranks, 500, k));
    }
    for (const Direction direction : {Direction::kUp, Direction::kDown})
      for (const Chunks chunks : {Chunks::kFirstLonger, Chunks::kLastLonger, Chunks::kRoundedUp})
        all.push_back(ring(ranks, 500, {direction, ranks / 2, chunks}));
    for (const auto& runs : all) {
      EXPECT_EQ(runs.back().end, 500U);
      for (const OrderRun& run : runs) EXPECT_TRUE(adds_every_rank_once(run, ranks)) << ranks;
    }
  }
}

}  // namespace
}  // namespace lockstep::reference
