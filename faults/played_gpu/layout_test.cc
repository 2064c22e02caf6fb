#include "faults/played_gpu/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep::played {
namespace {

using ::testing::HasSubstr;

TEST(PlayedLayout, EachVersionHasARowAndOthersAreRefused) {
  for (const Layout& each : layouts()) {
    const Result<Layout> found = layout_of(each.version);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->coll_bytes % 16, 0u);  // NCCL copies them in units of 16 bytes
  }
  EXPECT_TRUE(std::is_sorted(layouts().begin(), layouts().end(),
                             [](auto& a, auto& b) { return a.version < b.version; }));
  for (const int version : {0, 21805, 22202, 22810, 23300})
    EXPECT_FALSE(layout_of(version).has_value()) << version;
  EXPECT_THAT(layout_of(22810).error().to_string(), HasSubstr("NCCL 2.28.10 cannot be played"));
}

// The number of a row that is not Simple, or not a ring, is no function that is played. Here each
// row has a number of its own.
TEST(PlayedLayout, TheTableOfFunctionsIsReadAsNcclWritesIt) {
  for (const Layout& layout : layouts()) {
    std::vector<int> rows(rows_of(layout));
    std::iota(rows.begin(), rows.end(), 100);
    const auto kind = [&](std::size_t row) {
      const Result<Function> found = find_function(layout, rows, 100 + static_cast<int>(row));
      return found ? static_cast<int>(found->kind) : -1;
    };
    EXPECT_EQ(kind(0), static_cast<int>(Function::Kind::kP2p));
    EXPECT_EQ(kind(1), -1);  // all-gather by LL
    EXPECT_EQ(kind(3), static_cast<int>(Function::Kind::kAllGather));
    EXPECT_EQ(kind(6), -1);  // by another algorithm
    const auto gather_rows = static_cast<std::size_t>(3 * layout.gather_algorithms);
    EXPECT_EQ(kind(gather_rows + 3), static_cast<int>(Function::Kind::kBroadcast));
    const std::size_t first = gather_rows + (layout.has_all_gather_v ? 7 : 4);
    const auto row = [&](int operation, int type, int algorithm, int protocol) {
      const int number = (operation * layout.types + type) * layout.reduce_algorithms + algorithm;
      return first + static_cast<std::size_t>(number * kProtocols + protocol);
    };
    const Result<Function> sum =
        find_function(layout, rows, rows[row(kPreMulSum, 7, kRing, kSimple)]);
    ASSERT_TRUE(sum.has_value());
    EXPECT_EQ(sum->kind, Function::Kind::kAllReduce);
    EXPECT_EQ(sum->operation, kPreMulSum);
    EXPECT_EQ(sum->type, 7);
    const Result<Function> tree = find_function(layout, rows, rows[row(kSum, 7, 0, kSimple)]);
    ASSERT_FALSE(tree.has_value());
    EXPECT_THAT(tree.error().to_string(),
                HasSubstr("AllReduce with algorithm 0 and protocol 2: Ring and Simple alone"));
    EXPECT_THAT(find_function(layout, rows, 5).error().to_string(),
                HasSubstr("the function 5, which its table does not have"));
    EXPECT_EQ(kind(rows.size() - 1), -1);  // reduce-scatter by the last algorithm
  }
}

TEST(PlayedLayout, ChunksAreDecoded) {
  EXPECT_EQ(chunk_bytes(0), 0u);
  EXPECT_EQ(chunk_bytes(7), 7u);
  EXPECT_EQ(chunk_bytes(8), 8u);
  EXPECT_EQ(chunk_bytes(15), 15u);
  EXPECT_EQ(chunk_bytes(16), 16u);
  EXPECT_EQ(chunk_bytes(17), 18u);
  EXPECT_EQ(chunk_bytes((17 - 2) << 3), std::size_t{1} << 17);
}

}  // namespace
}  // namespace lockstep::played
