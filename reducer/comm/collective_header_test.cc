#include "reducer/comm/collective_header.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Collective sum_of_8() {
  Collective sum;
  sum.count = 8;
  sum.bucket = 3;
  sum.pass = 1;
  return sum;
}

TEST(CollectiveHeader, F6WhateverRanksMustAgreeOnIsInIt) {
  const CollectiveHeader plain = header_of(sum_of_8(), 7);
  EXPECT_EQ(header_of(sum_of_8(), 7), plain);
  EXPECT_NE(header_of(sum_of_8(), 8), plain);
  const auto differs = [&](auto change) {
    Collective other = sum_of_8();
    change(other);
    EXPECT_NE(header_of(other, 7), plain);
  };
  differs([](Collective& c) { c.op = Op::kBroadcast; });
  differs([](Collective& c) { c.dtype = DType::kFloat64; });
  differs([](Collective& c) { c.reduction = Reduction::kRankOrdered; });
  differs([](Collective& c) { c.verify = true; });
  differs([](Collective& c) { c.count = 9; });
  differs([](Collective& c) { c.bucket = 4; });
  differs([](Collective& c) { c.pass = 2; });
  differs([](Collective& c) { c.reducer_id = 1; });
  differs([](Collective& c) { c.factor = 0.5; });
}

TEST(CollectiveHeader, F6TheRootIsOfABroadcastAlone) {
  Collective broadcast = sum_of_8();
  broadcast.op = Op::kBroadcast;
  Collective other = broadcast;
  other.root = 1;
  EXPECT_NE(header_of(broadcast, 0), header_of(other, 0));
  broadcast.op = other.op = Op::kAllGather;
  EXPECT_EQ(header_of(broadcast, 0), header_of(other, 0));
}

TEST(CollectiveHeader, WordsSayWhatDiffers) {
  EXPECT_EQ(describe(header_of(sum_of_8(), 7)),
            "all_reduce of 8 float32 (bucket 3, pass 1, sequence 7)");
  Collective other = sum_of_8();
  other.factor = 0.5;
  other.reducer_id = 2;
  other.verify = true;
  EXPECT_EQ(describe(header_of(other, 7), ", ring"),
            "all_reduce of 8 float32 times 0.500000 (bucket 3, pass 1, sequence 7, reducer 2, "
            "verified, rank-ordered, ring)");
  Collective broadcast;
  broadcast.op = Op::kBroadcast;
  broadcast.root = 1;
  EXPECT_EQ(describe(header_of(broadcast, 0)), "broadcast of 0 float32 from root 1 (sequence 0)");
}

}  // namespace
}  // namespace lockstep
