// The model against CONTRACT.md, complex numbers (G12).
#include <gtest/gtest.h>

#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/order.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;

Case complex(std::uint32_t world, std::vector<std::uint32_t> sizes) {
  Case made(world, Mode::kPlain, 1);
  made.program.parameters[0].dtype = DType::kComplex64;
  made.program.parameters[0].sizes = std::move(sizes);
  return made;
}

TEST(ModelG12, EachPartIsScaledAndAddedAsAFloat) {
  const Case t = complex(2, {3}).step({uses({0})}).run();
  for (std::uint64_t part = 0; part < 6; ++part) {
    const float sum = t.c(0, 0, 0, 100, part) * 0.5F + t.c(0, 1, 0, 100, part) * 0.5F;
    EXPECT_EQ(t.value(0, 0, 0, part), sum);
    EXPECT_NE(t.c(0, 0, 0, 100, part), t.c(0, 0, 0, 100, part ^ 1));
  }
  ASSERT_EQ(t.expectation.steps[0].collectives.size(), 1U);
  EXPECT_EQ(t.expectation.steps[0].collectives[0].count, 6U);
  EXPECT_EQ(t.expectation.steps[0].collectives[0].dtype, DType::kFloat32);
}

TEST(ModelG12, LayoutsCountElementsAndOrdersCountParts) {
  Case t = complex(3, {9});
  t.program.parameters.push_back(t.program.parameters[0]);
  t.program.parameters[1].key = 7;
  t.step({uses({0, 1})}).run();
  const ExpectedBucket& bucket = t.expectation.buckets[0];
  ASSERT_EQ(bucket.parameters.size(), 2U);
  EXPECT_EQ(bucket.offsets[1], 16U);  // 64 bytes are 8 elements
  EXPECT_EQ(bucket.count, 25U);
  const std::vector<OrderRun> runs = gloo_ring(3, 50, 4, Contract::lockstep().max_segment_bytes);
  const float k = 1.0F / 3.0F;
  for (std::uint64_t part = 0; part < 18; ++part) {
    auto run = runs.begin();
    while (run->end <= 32 + part) ++run;
    std::vector<float> x;
    for (std::uint32_t rank = 0; rank < 3; ++rank) x.push_back(t.c(0, rank, 1, 101, part) * k);
    for (std::size_t i = 0; i < 2; ++i) x[run->additions[i].into] += x[run->additions[i].from];
    EXPECT_EQ(t.value(0, 0, 1, part), x[run->result]) << part;
  }
}

TEST(ModelG12, PartsStayTogetherWhateverTheStrides) {
  Case t = complex(1, {2, 3});
  t.program.parameters[0].column_major = true;
  const Parameter& parameter = t.program.parameters[0];
  EXPECT_EQ(value_count(parameter), 12U);
  EXPECT_EQ(row_major_to_memory(parameter, 0), 0U);
  EXPECT_EQ(row_major_to_memory(parameter, 1), 1U);
  EXPECT_EQ(row_major_to_memory(parameter, 2), 4U);  // row 0, column 1: element 2 in memory
  EXPECT_EQ(row_major_to_memory(parameter, 7), 3U);  // row 1, column 0
  t.step({uses({0})}).run();
  for (std::uint64_t part = 0; part < 12; ++part)
    EXPECT_EQ(t.value(0, 0, 0, part), t.c(0, 0, 0, 100, part));
}

}  // namespace
}  // namespace lockstep::reference
