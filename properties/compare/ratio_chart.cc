#include "properties/compare/ratio_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kInterval = "hsla(210, 65%, 50%, 0.55)";
constexpr const char* kMiddle = "hsl(35, 85%, 45%)";
constexpr const char* kOne = "hsl(0, 0%, 55%)";
constexpr double kDecade = 10;  // from which ratio on the axis is logarithmic

std::string colour_of(std::size_t index) {
  return fmt::format("hsl({}, 65%, 50%)", 210 + index * 47 % 360);
}

Json axis_titled(const std::string& title) {
  return {{"title", {{"display", true}, {"text", title}}}};
}

double four_decimals(double value) { return std::round(value * 1e4) / 1e4; }

// Long names take two lines: on a phone, a chart has room for some 18 letters.
Json label_of(const std::string& name) {
  constexpr std::size_t kRoom = 18;
  const std::size_t slash = name.find('/');
  if (name.size() <= kRoom || slash == std::string::npos) return name;
  return Json::array({name.substr(0, slash), name.substr(slash + 1)});
}

bool is_wide(const std::vector<RatioRow>& rows) {
  double least = 1;
  double most = 1;
  for (const RatioRow& row : rows) {
    least = std::min(least, row.ratio.low);
    most = std::max(most, row.ratio.high);
  }
  return least > 0 && most / least > kDecade;
}

}  // namespace

std::string ratio_chart(const std::vector<RatioRow>& rows, const std::string& axis) {
  Json labels = Json::array();
  Json intervals = Json::array();
  Json middles = Json::array();
  Json ones = Json::array();
  for (const RatioRow& row : rows) {
    labels.push_back(label_of(row.name));
    intervals.push_back({four_decimals(row.ratio.low), four_decimals(row.ratio.high)});
    middles.push_back(four_decimals(row.ratio.middle));
    ones.push_back(1);
  }
  const Json line = {{"type", "line"},      {"label", "no difference"}, {"data", ones},
                     {"borderColor", kOne}, {"backgroundColor", kOne},  {"borderDash", {4, 4}},
                     {"borderWidth", 1},    {"pointRadius", 0}};
  const Json marks = {{"type", "line"},          {"label", "median"},
                      {"data", middles},         {"showLine", false},
                      {"borderColor", kMiddle},  {"backgroundColor", kMiddle},
                      {"pointStyle", "rectRot"}, {"pointRadius", 5}};
  const Json bars = {{"type", "bar"},     {"label", "interval"},
                     {"data", intervals}, {"backgroundColor", kInterval},
                     {"minBarLength", 3}, {"barPercentage", 0.5}};
  Json x = axis_titled(axis);
  if (is_wide(rows)) x["type"] = "logarithmic";
  return Json{
      {"type", "bar"},
      {"data", {{"labels", labels}, {"datasets", Json::array({line, marks, bars})}}},
      {"options",
       {{"indexAxis", "y"}, {"scales", {{"x", x}, {"y", {{"ticks", {{"autoSkip", false}}}}}}}}}}
      .dump();
}

std::string history_chart(const std::vector<std::string>& columns, const std::vector<Series>& all,
                          const std::string& axis) {
  Json sets = Json::array();
  for (std::size_t i = 0; i < all.size(); ++i) {
    Json values = Json::array();
    for (const double value : all[i].values)
      values.push_back(std::isnan(value) ? Json() : Json(four_decimals(value)));
    sets.push_back({{"label", all[i].name},
                    {"data", values},
                    {"borderColor", colour_of(i)},
                    {"backgroundColor", colour_of(i)},
                    {"borderWidth", 2},
                    {"pointRadius", 3},
                    {"spanGaps", false}});
  }
  return Json{{"type", "line"},
              {"data", {{"labels", columns}, {"datasets", sets}}},
              {"options", {{"scales", {{"y", axis_titled(axis)}}}}}}
      .dump();
}

}  // namespace lockstep::properties
