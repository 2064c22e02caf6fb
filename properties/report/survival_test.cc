// The figures of a trial that every textbook of survival analysis has: weeks of remission of
// leukaemia, 21 patients with 6-mercaptopurine and 21 with a placebo (Freireich and others, Blood
// 21, 1963).
#include "properties/report/survival.h"

#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

std::vector<Trial> treated() {
  std::vector<Trial> out;
  for (const double t : {6., 6., 6., 7., 10., 13., 16., 22., 23.}) out.push_back({t, true});
  for (const double t : {6., 9., 10., 11., 17., 19., 20., 25., 32., 32., 34., 35.})
    out.push_back({t, false});
  return out;
}

std::vector<Trial> placebo() {
  std::vector<Trial> out;
  for (const double t :
       {1., 1., 2., 2., 3., 4., 4., 5., 5., 8., 8., 8., 8., 11., 11., 12., 12., 15., 17., 22., 23.})
    out.push_back({t, true});
  return out;
}

TEST(Survival, CurveIsThatOfTheTextbook) {
  const std::vector<SurvivalStep> curve = survival_curve(treated());
  ASSERT_EQ(curve.size(), 7u);
  EXPECT_DOUBLE_EQ(curve[0].time, 6);
  EXPECT_NEAR(curve[0].share, 0.857, 5e-4);
  EXPECT_NEAR(curve[1].share, 0.807, 5e-4);
  EXPECT_NEAR(curve[2].share, 0.753, 5e-4);
  EXPECT_DOUBLE_EQ(curve[6].time, 23);
  EXPECT_NEAR(curve[6].share, 0.448, 5e-4);
}

TEST(Survival, MedianIsWhereHalfIsLeftOrNothing) {
  EXPECT_EQ(median_time(survival_curve(treated())), 23);
  EXPECT_EQ(median_time(survival_curve(placebo())), 8);
  EXPECT_EQ(median_time(survival_curve({{5, false}, {7, false}, {3, true}})), std::nullopt);
  EXPECT_EQ(median_time(survival_curve({})), std::nullopt);
}

TEST(Survival, RestrictedMeanIsTheAreaUpToTheHorizon) {
  // Without censoring the mean of min(time, horizon).
  EXPECT_NEAR(restricted_mean(survival_curve(placebo()), 100), 182.0 / 21, 1e-9);
  EXPECT_DOUBLE_EQ(restricted_mean(survival_curve({{2, true}, {6, true}}), 4), 3);
  EXPECT_DOUBLE_EQ(restricted_mean(survival_curve({{9, false}}), 4), 4);
  EXPECT_DOUBLE_EQ(restricted_mean({}, 4), 4);
}

TEST(Survival, LogRankTellsTheTreatmentFromThePlacebo) {
  LogRank test;
  test.add(treated(), placebo());
  EXPECT_NEAR(test.statistic(), 16.79, 0.005);
  EXPECT_NEAR(test.p_value(), 4.17e-5, 1e-7);
  EXPECT_LT(test.excess(), 0);  // the treated have their events later
}

TEST(Survival, LogRankFindsNothingBetweenEquals) {
  LogRank test;
  test.add(placebo(), placebo());
  EXPECT_NEAR(test.statistic(), 0, 1e-12);
  EXPECT_NEAR(test.p_value(), 1, 1e-6);
  EXPECT_DOUBLE_EQ(LogRank().p_value(), 1);  // no trial at all
}

// Two strata that point the same way say more than either of them, and opposite ones nothing.
TEST(Survival, LogRankAddsStrata) {
  LogRank once;
  once.add(treated(), placebo());
  LogRank twice = once;
  twice.add(treated(), placebo());
  EXPECT_NEAR(twice.statistic(), 2 * once.statistic(), 1e-9);
  LogRank none = once;
  none.add(placebo(), treated());
  EXPECT_NEAR(none.statistic(), 0, 1e-9);
}

}  // namespace
}  // namespace lockstep::properties
