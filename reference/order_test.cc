#include "reference/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace lockstep::reference {
namespace {

// The sum of element `e` as a formula, "(x0+x1)+x2" with the array slot added to on the left.
std::string formula(const std::vector<OrderRun>& runs, std::uint32_t ranks, std::uint64_t e) {
  std::vector<std::string> x;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) x.push_back(std::to_string(rank));
  for (const OrderRun& run : runs) {
    if (e >= run.end) continue;
    for (std::uint32_t i = 0; i + 1 < ranks; ++i) {
      const Addition& addition = run.additions[i];
      x[addition.into] = "(" + x[addition.into] + "+" + x[addition.from] + ")";
    }
    return x[run.result];
  }
  return "beyond the end";
}

TEST(Order, RankOrderFoldsFromTheLeft) {
  EXPECT_EQ(formula(rank_order(1, 5), 1, 4), "0");
  EXPECT_EQ(formula(rank_order(4, 5), 4, 0), "(((0+1)+2)+3)");
  EXPECT_EQ(formula(rank_order(4, 5), 4, 4), "(((0+1)+2)+3)");
  EXPECT_TRUE(rank_order(4, 0).empty());
}

// 3 ranks, 7 floats: 6 segments of 2 elements, 2 segments a chunk: chunks of 4, the last one empty.
TEST(Order, RingFollowsTheHandComputedExampleOfThreeRanks) {
  const std::vector<OrderRun> runs = gloo_ring(3, 7, 4, 1 << 20);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].end, 4U);
  EXPECT_EQ(runs[1].end, 7U);
  EXPECT_EQ(formula(runs, 3, 0), "(0+(1+2))");
  EXPECT_EQ(formula(runs, 3, 3), "(0+(1+2))");
  EXPECT_EQ(formula(runs, 3, 4), "(1+(2+0))");
}

// 4 ranks, 16 halves, segments of at most 2 elements: 8 segments, 2 a chunk.
TEST(Order, RingGoesOnceAroundAgainstTheRanksAndEndsAtTheChunksNumber) {
  const std::vector<OrderRun> runs = gloo_ring(4, 16, 2, 5);
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(formula(runs, 4, 0), "(0+(1+(2+3)))");
  EXPECT_EQ(formula(runs, 4, 4), "(1+(2+(3+0)))");
  EXPECT_EQ(formula(runs, 4, 8), "(2+(3+(0+1)))");
  EXPECT_EQ(formula(runs, 4, 12), "(3+(0+(1+2)))");
}

// The published form of the ring's chunk number, element by element.
TEST(Order, RingChunksAreThoseOfTheFormula) {
  for (std::uint64_t n = 2; n <= 8; ++n) {
    for (const std::uint64_t es : {2U, 4U, 8U}) {
      for (const std::uint64_t max_segment : {1U, 16U, 100U, 1U << 20}) {
        for (std::uint64_t count = 1; count < 200; ++count) {
          const std::uint64_t largest = es * std::max<std::uint64_t>(1, max_segment / es);
          std::uint64_t segments = (count * es + largest - 1) / largest;
          segments = std::max(segments, 2 * n);
          while (segments % n != 0) ++segments;
          std::uint64_t bytes = (count * es + segments - 1) / segments;
          while (bytes % es != 0) ++bytes;
          const std::vector<OrderRun> runs =
              gloo_ring(static_cast<std::uint32_t>(n), count, es, max_segment);
          std::size_t run = 0;
          for (std::uint64_t e = 0; e < count; ++e) {
            while (e >= runs[run].end) ++run;
            ASSERT_EQ(runs[run].result, e * es / bytes / (segments / n));
          }
        }
      }
    }
  }
}

// 3 ranks, 20 floats, chunks of 4: one whole loop of 12; then 8 that are left, 3 a rank, which is 4
// in whole 16 bytes, and nothing for the last one.
TEST(Order, RingOfNcclFollowsTheHandComputedExampleOfThreeRanks) {
  const std::vector<OrderRun> runs = nccl_ring(3, 20, 4, 16);
  ASSERT_EQ(runs.size(), 5U);
  const std::uint64_t ends[] = {4, 8, 12, 16, 20};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(runs[i].end, ends[i]);
  EXPECT_EQ(formula(runs, 3, 0), "(0+(2+1))");
  EXPECT_EQ(formula(runs, 3, 7), "(1+(0+2))");
  EXPECT_EQ(formula(runs, 3, 8), "(2+(1+0))");
  EXPECT_EQ(formula(runs, 3, 12), "(0+(2+1))");
  EXPECT_EQ(formula(runs, 3, 19), "(1+(0+2))");
  EXPECT_TRUE(nccl_ring(3, 0, 4).empty());
}

TEST(Order, RingOfNcclCutsTheLastLoopEvenlyInWholeSixteenBytes) {
  const std::vector<OrderRun> runs = nccl_ring(4, 100, 2);  // 25 a rank, which is 32
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[0].end, 32U);
  EXPECT_EQ(runs[2].end, 96U);
  EXPECT_EQ(runs[3].end, 100U);
  EXPECT_EQ(formula(runs, 4, 99), "(3+(2+(1+0)))");
  EXPECT_EQ(nccl_ring(4, 4 * 524288 + 1, 4)[3].end, 4 * 524288U);  // chunks of 2 MiB
}

// The published form of the chunk's number, element by element.
TEST(Order, RingOfNcclHasTheChunksOfTheFormula) {
  for (std::uint64_t n = 1; n <= 8; ++n) {
    for (const std::uint64_t es : {2U, 4U, 8U}) {
      for (const std::uint64_t chunk_bytes : {16U, 48U, 2U << 20}) {
        for (std::uint64_t count = 1; count < 200; ++count) {
          const std::vector<OrderRun> runs =
              nccl_ring(static_cast<std::uint32_t>(n), count, es, chunk_bytes);
          std::size_t run = 0;
          for (std::uint64_t e = 0; e < count; ++e) {
            while (e >= runs[run].end) ++run;
            const std::uint64_t loop = n * (chunk_bytes / es);
            const std::uint64_t base = e / loop * loop;
            const std::uint64_t rest = count - base;
            std::uint64_t cut = chunk_bytes / es;
            if (rest < loop) {
              cut = (rest + n - 1) / n;
              while (cut * es % 16 != 0) ++cut;
            }
            ASSERT_EQ(runs[run].result, (e - base) / cut);
          }
        }
      }
    }
  }
}

// 100 floats among 4 ranks: 2.20 and 2.21 put them into one unit of 4096 bytes, 2.18 and 2.19 into
// one of 512, which is 8 bytes for each of 64 threads; 2.22 and newer cut them in four.
TEST(Order, RingOfOlderNcclCutsTheLastLoopInLargerUnits) {
  const std::vector<OrderRun> newer = nccl_ring(4, 100, 4);
  const std::vector<OrderRun> middle = nccl_ring(4, 100, 4, kNcclChunkBytes, NcclRing::kSince220);
  const std::vector<OrderRun> older = nccl_ring(4, 100, 4, kNcclChunkBytes, NcclRing::kUpTo219);
  EXPECT_EQ(newer.size(), 4U);
  ASSERT_EQ(middle.size(), 1U);
  ASSERT_EQ(older.size(), 1U);
  EXPECT_EQ(formula(middle, 4, 99), "(0+(3+(2+1)))");
  EXPECT_EQ(formula(older, 4, 99), "(0+(3+(2+1)))");
  // 1000 floats: 250 a rank, which is one unit of 4096 bytes, and two of 512.
  EXPECT_EQ(nccl_ring(4, 1000, 4, kNcclChunkBytes, NcclRing::kSince220).size(), 1U);
  const std::vector<OrderRun> halves = nccl_ring(4, 1000, 4, kNcclChunkBytes, NcclRing::kUpTo219);
  ASSERT_EQ(halves.size(), 4U);
  EXPECT_EQ(halves[0].end, 256U);
  EXPECT_EQ(halves[3].end, 1000U);
}

// The number of threads in 2.18 and 2.19 doubles with the bytes, from 64 to 512.
TEST(Order, RingOfTheOldestNcclHasUnitsByTheSizeOfTheBucket) {
  const std::pair<std::uint64_t, std::uint64_t> units[] = {
      {8191, 512}, {8192, 1024}, {16383, 1024}, {16384, 2048}, {32767, 2048}, {32768, 4096}};
  for (const auto& [bytes, unit] : units) {
    const std::vector<OrderRun> runs = nccl_ring(8, bytes, 1, kNcclChunkBytes, NcclRing::kUpTo219);
    EXPECT_EQ(runs[0].end, ((bytes + 7) / 8 + unit - 1) / unit * unit) << bytes;
  }
}

// Whole loops are alike in all versions.
TEST(Order, RingOfOlderNcclDiffersInTheLastLoopAlone) {
  const std::uint64_t loop = 3 * kNcclChunkBytes / 4;
  for (const NcclRing ring : {NcclRing::kSince220, NcclRing::kUpTo219}) {
    const std::vector<OrderRun> older = nccl_ring(3, loop, 4, kNcclChunkBytes, ring);
    const std::vector<OrderRun> newer = nccl_ring(3, loop, 4);
    ASSERT_EQ(older.size(), newer.size());
    for (std::size_t i = 0; i < older.size(); ++i) EXPECT_EQ(older[i].end, newer[i].end);
  }
}

// 4 ranks = 2 x 2: pairs (0,1) and (2,3) halve the bucket, then (0,2) and (1,3) halve their halves.
TEST(Order, BcubeHalvesByBinaryDigits) {
  const std::vector<OrderRun> runs = gloo_bcube(4, 8);
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(formula(runs, 4, 0), "((0+1)+(2+3))");
  EXPECT_EQ(formula(runs, 4, 2), "((2+3)+(0+1))");
  EXPECT_EQ(formula(runs, 4, 4), "((1+0)+(3+2))");
  EXPECT_EQ(formula(runs, 4, 6), "((3+2)+(1+0))");
}

// 6 ranks = 2 x 3: pairs first, then threes that are two apart.
TEST(Order, BcubeTakesTheOddRestAsOneGroup) {
  const std::vector<OrderRun> runs = gloo_bcube(6, 12);
  EXPECT_EQ(formula(runs, 6, 0), "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(formula(runs, 6, 2), "(((2+3)+(0+1))+(4+5))");
  EXPECT_EQ(formula(runs, 6, 4), "(((4+5)+(0+1))+(2+3))");
  EXPECT_EQ(formula(runs, 6, 6), "(((1+0)+(3+2))+(5+4))");
  EXPECT_EQ(formula(gloo_bcube(5, 5), 5, 2), "((((2+0)+1)+3)+4)");
}

// Whatever the order: no run is empty, and the result has every rank in it exactly once.
TEST(Order, EveryPlanAddsEveryRankOnce) {
  for (std::uint32_t ranks = 1; ranks <= kMaxWorld; ++ranks) {
    for (std::uint64_t elements = 0; elements < 70; ++elements) {
      for (const auto& runs :
           {rank_order(ranks, elements), gloo_bcube(ranks, elements),
            gloo_ring(ranks, elements, 4, 64), nccl_ring(ranks, elements, 4, 16),
            nccl_ring(ranks, elements, 2), nccl_ring(ranks, elements, 4, 4096, NcclRing::kSince220),
            nccl_ring(ranks, elements, 4, 4096, NcclRing::kUpTo219)}) {
        std::uint64_t end = 0;
        for (const OrderRun& run : runs) {
          ASSERT_GT(run.end, end);
          end = run.end;
          std::vector<std::uint64_t> has(ranks);
          for (std::uint32_t rank = 0; rank < ranks; ++rank) has[rank] = std::uint64_t{1} << rank;
          for (std::uint32_t i = 0; i + 1 < ranks; ++i) {
            const Addition& addition = run.additions[i];
            ASSERT_EQ(has[addition.into] & has[addition.from], 0U);
            has[addition.into] |= has[addition.from];
          }
          ASSERT_EQ(has[run.result], ~std::uint64_t{0} >> (64 - ranks));
        }
        ASSERT_EQ(end, elements);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::reference
