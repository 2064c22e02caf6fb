// Charts of ratios, as configurations of Chart.js for Page::add_chart().
// Pure functions; any thread; nothing fails.
#pragma once

#include <string>
#include <vector>

#include "properties/compare/statistics.h"

namespace lockstep::properties {

struct RatioRow {
  std::string name;
  Ratio ratio;
};

// A bar for the interval of each ratio, a mark for its median, and a line at 1. One row is about
// kRatioRowPixels high.
constexpr int kRatioRowPixels = 36;
constexpr int kRatioChartPixels = 110;  // beside the rows
std::string ratio_chart(const std::vector<RatioRow>& rows, const std::string& axis);

// A line for each name, over the columns. A value may be NaN, which leaves a gap.
struct Series {
  std::string name;
  std::vector<double> values;
};
std::string history_chart(const std::vector<std::string>& columns, const std::vector<Series>& all,
                          const std::string& axis);

}  // namespace lockstep::properties
