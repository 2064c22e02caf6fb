#include "properties/report/scaling_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

using scaling::Phase;
using testing::HasSubstr;
using testing::Not;

ScalingPoints quadratic() {
  return {{8, Phase::kPass, 600, 100, 1000, 0}, {16, Phase::kPass, 1200, 400, 1000, 0}};
}

TEST(ScalingReport, NamesTheGrowthOfEachFigure) {
  const std::string text = scaling_text(quadratic());
  EXPECT_THAT(text, HasSubstr("W^2.00"));  // messages
  EXPECT_THAT(text, HasSubstr("W^1.00"));  // time
  EXPECT_THAT(text, HasSubstr("W^0.00"));  // bytes
  EXPECT_THAT(text, Not(HasSubstr("reset")));
}

TEST(ScalingReport, OneJobHasNoGrowth) {
  EXPECT_THAT(scaling_text({quadratic()[0]}), Not(HasSubstr("W^")));
}

TEST(ScalingReport, JsonHasEveryFigure) {
  const std::string json = scaling_json(quadratic(), "abc");
  EXPECT_THAT(json, HasSubstr("\"phase\": \"pass\""));
  EXPECT_THAT(json, HasSubstr("\"messages\": 400.0"));
  EXPECT_THAT(json, HasSubstr("\"commit\": \"abc\""));
}

}  // namespace
}  // namespace lockstep::properties
