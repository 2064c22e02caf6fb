#include "properties/compare/explain_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "reference/order.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using Kind = Operation::Kind;
using ::testing::HasSubstr;

const PreparedOperation& prepared() {
  static const PreparedOperation made = prepare({Kind::kAllReduce, DType::kFloat32, 65536, 3});
  return made;
}

TEST(CompareExplainSum, EveryDeclaredOrderIsNamed) {
  const std::uint64_t count = prepared().operation.count();
  EXPECT_EQ(explain_sum(prepared(), prepared().expected), "NCCL's ring (2.22 and newer)");
  EXPECT_EQ(
      explain_sum(prepared(), sum_with(prepared(), reference::nccl_ring(3, count, 4, 8 << 10))),
      "NCCL's ring with chunks of 8 KiB");
  EXPECT_EQ(explain_sum(prepared(), sum_with(prepared(), reference::rank_order(3, count))),
            "rank order or Gloo's bcube");  // with three ranks they are the same
}

TEST(CompareExplainSum, MistakesAndUnknownBitsAreSaid) {
  std::vector<std::byte> flipped = prepared().expected;
  flipped[4000] ^= std::byte{4};
  EXPECT_EQ(explain_sum(prepared(), flipped),
            "NCCL's ring (2.22 and newer), but bit 2 is flipped in one value");
  EXPECT_EQ(explain_sum(prepared(), prepared().inputs[1]),
            "rank 1's own values, neither divided nor summed");
  std::vector<std::byte> garbage = prepared().expected;
  std::reverse(garbage.begin(), garbage.end());
  EXPECT_THAT(explain_sum(prepared(), garbage), HasSubstr("no declared order"));
}

}  // namespace
}  // namespace lockstep::properties
