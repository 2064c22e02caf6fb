// Claims: the order in which sums of telling values were added is found, by name and by
// elimination, with its rounding; chunks are found where they end; and what is no order is said to
// be none.
#include "properties/explain/find_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "properties/explain/named_orders.h"
#include "reference/arithmetic.h"
#include "reference/order_families.h"

namespace lockstep::properties {
namespace {

using reference::DType;

TEST(FindOrder, AllOrdersAreDifferentAndAsManyAsThereAre) {
  for (const auto& [ranks, count] :
       {std::pair{2U, 1U}, {3U, 3U}, {4U, 15U}, {5U, 105U}, {6U, 945U}}) {
    std::set<std::string> texts;
    for (const auto& order : all_orders(ranks)) texts.insert(reference::text_of(order, ranks));
    EXPECT_EQ(texts.size(), count);
  }
}

// Otherwise borders of chunks would be blurred.
TEST(FindOrder, TellingValuesTellAllOrdersOfThreeRanksApartAndMostOfFour) {
  for (const std::uint32_t ranks : {3U, 4U}) {
    const auto orders = all_orders(ranks);
    for (const auto& tuple : telling_tuples(DType::kFloat32, ranks)) {
      std::set<std::uint64_t> sums;
      for (const auto& order : orders)
        sums.insert(sum_of(order, DType::kFloat32, Rounding::kEachAddition, tuple));
      EXPECT_GE(sums.size(), ranks == 3 ? 3U : 6U);
    }
  }
}

TEST(FindOrder, EveryNamedOrderIsFound) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (std::uint32_t ranks = 3; ranks <= 8; ++ranks) {
      const OrderFinder finder(dtype, ranks);
      for (const NamedOrder& named : named_orders(ranks, 333, reference::size_of(dtype))) {
        const auto sums = finder.sums_in(named.runs, 333, Rounding::kEachAddition);
        const FoundOrder found = finder.find(sums, 0, 333);
        EXPECT_EQ(found.rounding, Rounding::kEachAddition);
        EXPECT_NE(std::find(found.families.begin(), found.families.end(), named.name),
                  found.families.end())
            << named.name << " among " << ranks;
      }
    }
  }
}

TEST(FindOrder, AnOrderWithoutANameIsFoundByElimination) {
  const OrderFinder finder(DType::kFloat32, 5);
  const auto orders = all_orders(5);
  for (std::size_t i = 0; i < orders.size(); i += 7) {
    std::vector<reference::OrderRun> runs = {orders[i], orders[(i + 13) % orders.size()]};
    runs[0].end = 100;
    runs[1].end = 250;
    const FoundOrder found =
        finder.find(finder.sums_in(runs, 250, Rounding::kEachAddition), 0, 250);
    ASSERT_EQ(found.parts.size(), 2U);
    EXPECT_EQ(found.parts[0].orders, std::vector{reference::text_of(runs[0], 5)});
    EXPECT_EQ(found.parts[1].orders, std::vector{reference::text_of(runs[1], 5)});
    // A sum of the next chunk can have the same bits in the order of this one.
    EXPECT_GE(found.parts[0].end, 100U);
    EXPECT_LT(found.parts[0].end, 106U);
  }
}

TEST(FindOrder, APartOfTheBufferIsEnough) {
  const OrderFinder finder(DType::kFloat32, 4);
  const auto runs = reference::ring(4, 100, {reference::Direction::kUp, 1});
  auto sums = finder.sums_in(runs, 100, Rounding::kEachAddition);
  sums = {sums.begin() + 25, sums.begin() + 50};
  const FoundOrder found = finder.find(sums, 25, 100);
  ASSERT_EQ(found.parts.size(), 1U);
  EXPECT_EQ(found.parts[0].orders, std::vector<std::string>{"(0+(2+3))+1"});
}

TEST(FindOrder, RoundingsAreToldApart) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const OrderFinder finder(dtype, 4);
    for (const Rounding rounding : roundings_of(dtype)) {
      const auto sums = finder.sums_in(reference::doubling(4, 200), 200, rounding);
      const FoundOrder found = finder.find(sums, 0, 200);
      EXPECT_EQ(finder.sums_in(reference::doubling(4, 200), 200, found.rounding), sums);
      // In double a sum of few narrow values is exact, as in float32.
      if (rounding != Rounding::kDoubleOnce) {
        EXPECT_EQ(found.rounding, rounding);
      }
    }
  }
}

TEST(FindOrder, OneWrongBitIsNoOrder) {
  for (const std::uint32_t ranks : {4U, 7U}) {
    const OrderFinder finder(DType::kFloat32, ranks);
    auto sums = finder.sums_in(reference::doubling(ranks, 50), 50, Rounding::kEachAddition);
    sums[20] ^= 1U << 20U;
    EXPECT_FALSE(finder.find(sums, 0, 50).is_explained());
    EXPECT_EQ(finder.find(sums, 0, 50).signature(), "no order of additions");
  }
}

}  // namespace
}  // namespace lockstep::properties
