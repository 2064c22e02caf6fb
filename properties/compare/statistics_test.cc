#include "properties/compare/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

TEST(CompareStatistics, MedianAndPercentilesAreThoseOfTheSortedValues) {
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
  std::vector<double> hundred;
  for (int i = 100; i > 0; --i) hundred.push_back(i);
  EXPECT_EQ(percentile_of(hundred, 99), 99);
  EXPECT_EQ(percentile_of(hundred, 50), 50);
  EXPECT_EQ(percentile_of({7}, 99), 7);
}

TEST(CompareStatistics, TheIntervalIsThatOfTheMedianBySignTest) {
  // Of 10 values, the second and the ninth cover the median with 1 - 2 * 11 / 1024 (a table of
  // binomial probabilities has it).
  const std::vector<double> base(10, 1);
  const Ratio ratio = ratio_of(base, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  EXPECT_EQ(ratio.middle, 5.5);
  EXPECT_EQ(ratio.low, 2);
  EXPECT_EQ(ratio.high, 9);
  EXPECT_NEAR(ratio.coverage, 1 - 22.0 / 1024, 1e-12);
}

TEST(CompareStatistics, FewRoundsGiveAllOfTheirRangeAndSayHowSureItIs) {
  const Ratio ratio = ratio_of({1, 1, 2}, {2, 3, 8});
  EXPECT_EQ(ratio.low, 2);
  EXPECT_EQ(ratio.high, 4);
  EXPECT_NEAR(ratio.coverage, 0.75, 1e-12);
}

TEST(CompareStatistics, APlantedDifferenceIsFoundInEveryFamily) {
  std::vector<double> ratios = {1.3, 1.4, 1.2, 1.5, 1.31, 1.25, 1.6, 1.33, 1.29, 1.7, 1.4, 1.5};
  EXPECT_EQ(judge_ratios(ratios, 0.02, 1), Change::kSlower);
  EXPECT_EQ(judge_ratios(ratios, 0.02, 40), Change::kSlower);
  for (double& ratio : ratios) ratio = 1 / ratio;
  EXPECT_EQ(judge_ratios(ratios, 0.02, 40), Change::kFaster);
}

TEST(CompareStatistics, NoDifferenceIsFoundWhereThereIsNone) {
  EXPECT_EQ(judge_ratios({1.01, 0.99, 1.005, 1, 1.012, 0.995}, 0.02, 10), Change::kWithin);
  EXPECT_EQ(judge_ratios({1.5, 0.7, 1.1, 0.9, 1.2, 0.8, 1.4, 0.6}, 0.02, 1), Change::kUnclear);
  // Six rounds on one side happen by chance once in 64 times: too often for one of 40 comparisons.
  EXPECT_EQ(judge_ratios({1.3, 1.3, 1.3, 1.3, 1.3, 1.3}, 0.02, 1), Change::kSlower);
  EXPECT_EQ(judge_ratios({1.3, 1.3, 1.3, 1.3, 1.3, 1.3}, 0.02, 40), Change::kUnclear);
}

TEST(CompareStatistics, ChanceIsThatOfTheBinomialTail) {
  EXPECT_NEAR(chance_of(10, 10), 1.0 / 1024, 1e-12);
  EXPECT_NEAR(chance_of(9, 10), 11.0 / 1024, 1e-12);
  EXPECT_NEAR(chance_of(0, 10), 1, 1e-12);
}

}  // namespace
}  // namespace lockstep::properties
