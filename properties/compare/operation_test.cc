#include "properties/compare/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/arithmetic.h"
#include "reference/order.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using Kind = Operation::Kind;

TEST(CompareOperation, TheInputsShowTheOrderOfAdditions) {
  // Three ranks: if sums in rank order and NCCL's ring had the same bits, a comparison of bits
  // would find nothing.
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const PreparedOperation ring = prepare({Kind::kAllReduce, dtype, 65536, 3});
    const PreparedOperation ordered = prepare({Kind::kRankOrdered, dtype, 65536, 3});
    EXPECT_EQ(ring.inputs, ordered.inputs);
    const std::uint64_t differences =
        count_differences(ring.expected, ordered.expected, reference::size_of(dtype));
    EXPECT_GT(differences, ring.operation.count() / 50);
  }
}

TEST(CompareOperation, TheAverageOfAStepIsExactInAnyOrderOfAdditions) {
  for (std::uint32_t ranks = 2; ranks <= 8; ++ranks) {
    const PreparedOperation step = prepare({Kind::kStep, DType::kFloat32, 4096, ranks});
    for (std::uint64_t i = 0; i < step.operation.count(); ++i) {
      double sum = 0;
      for (const auto& input : step.inputs) {
        const double gradient =
            reference::to_double(DType::kFloat32, bits_of(input, 4, i, 1).front());
        // What a rank adds is a whole number below 64, and so is every partial sum exact.
        const double share = reference::scaled(DType::kFloat32, gradient,
                                               reference::scale_factor(DType::kFloat32, ranks));
        EXPECT_EQ(share, static_cast<int>(share));
        EXPECT_LT(share, 64);
        EXPECT_NEAR(gradient, share * ranks, 1e-3);
        sum += share;
      }
      EXPECT_EQ(reference::to_double(DType::kFloat32, bits_of(step.expected, 4, i, 1).front()),
                sum);
    }
  }
}

TEST(CompareOperation, ParametersOfAStepHaveAllElements) {
  std::int64_t sum = 0;
  for (const std::int64_t each : step_parameters({Kind::kStep, DType::kFloat32, 1040, 3})) {
    EXPECT_GT(each, 0);
    sum += each;
  }
  EXPECT_EQ(sum, 260);
}

TEST(CompareOperation, DifferencesAreCountedByElement) {
  std::vector<std::byte> a(16);
  std::vector<std::byte> b = a;
  EXPECT_EQ(count_differences(a, b, 4), 0);
  b[4] = b[5] = b[15] = std::byte{1};
  EXPECT_EQ(count_differences(a, b, 4), 2);
  EXPECT_THAT(bits_of(b, 4, 1, 2), ::testing::ElementsAre(0x0101, 0));
  EXPECT_THAT(bits_of(b, 4, 3, 9), ::testing::ElementsAre(0x01000000));
}

TEST(CompareOperation, WhatCannotBeMeasuredIsRefusedInOneLine) {
  const auto text_of = [](const auto& result) {
    return result ? std::string() : result.error().to_string();
  };
  EXPECT_THAT(text_of(make_operations(3, {1024}, {"float33"})),
              ::testing::HasSubstr("use float32, float64, float16 or bfloat16"));
  EXPECT_THAT(text_of(make_operations(1, {1024}, {"float32"})),
              ::testing::HasSubstr("give 2 to 8"));
  EXPECT_THAT(text_of(make_operations(3, {1000}, {"float32"})),
              ::testing::HasSubstr("multiples of 16"));
  const auto operations = make_operations(3, {1024, 65536}, {"float32", "bfloat16"});
  ASSERT_TRUE(operations.has_value());
  ASSERT_EQ(operations->size(), 8);
  EXPECT_EQ(operations->front().name(), "all_reduce/float32/1 KiB");
  EXPECT_EQ(operations->back().name(), "step/float32/64 KiB");
}

}  // namespace
}  // namespace lockstep::properties
