#include "properties/report/run_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "properties/report/page.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

Json line_of(const RunReport& report, const char* label, const char* axis, const char* colour,
             double (*value)(const RunProgress&)) {
  Json data = Json::array();
  for (const RunProgress& at : report.coverage.progress)
    data.push_back({{"x", at.seconds}, {"y", value(at)}});
  return {{"label", label},
          {"data", data},
          {"yAxisID", axis},
          {"borderColor", colour},
          {"backgroundColor", colour},
          {"pointRadius", 0},
          {"borderWidth", 2}};
}

Json axis_of(const char* title, const char* position) {
  return {{"position", position},
          {"beginAtZero", true},
          {"title", {{"display", true}, {"text", title}}}};
}

std::string progress_config(const RunReport& report) {
  const Json sets = Json::array(
      {line_of(report, "cases", "cases", "hsl(210, 65%, 50%)",
               [](const RunProgress& at) { return static_cast<double>(at.cases); }),
       line_of(report, "features seen", "features", "hsl(35, 85%, 45%)",
               [](const RunProgress& at) { return static_cast<double>(at.features); })});
  Json right = axis_of("features seen", "right");
  right["grid"] = {{"drawOnChartArea", false}};
  return Json{{"type", "line"},
              {"data", {{"datasets", sets}}},
              {"options",
               {{"scales",
                 {{"x",
                   {{"type", "linear"},
                    {"beginAtZero", true},
                    {"title", {{"display", true}, {"text", "seconds"}}}}},
                  {"cases", axis_of("cases", "left")},
                  {"features", right}}}}}}
      .dump();
}

std::string faults_config(const RunReport& report) {
  const std::string axis = "times that it fired";
  const auto& fired = report.coverage.faults_fired;
  return bars_config({fired.begin(), fired.end()}, axis,
                     {{"title", {{"display", true}, {"text", axis}}}});
}

// Features that were seen least come first: there a bug has the best chance to hide.
void add_features(const RunReport& report, Page& page) {
  std::vector<std::pair<std::uint64_t, std::string>> order;
  for (const auto& [name, count] : report.coverage.features) order.emplace_back(count, name);
  std::sort(order.begin(), order.end());
  std::vector<std::string> headers = {"feature", "cases"};
  for (const auto& [kind, count] : report.coverage.faults_fired) headers.push_back(kind);
  std::vector<std::vector<std::string>> rows;
  for (const auto& [count, name] : order) {
    std::vector<std::string> row = {name, fmt::format("{}", count)};
    const auto by_fault = report.coverage.by_fault.find(name);
    for (std::size_t i = 2; i < headers.size(); ++i) {
      std::uint64_t met = 0;
      if (by_fault != report.coverage.by_fault.end())
        if (const auto found = by_fault->second.find(headers[i]); found != by_fault->second.end())
          met = found->second;
      row.push_back(met == 0 ? "~0" : fmt::format("{}", met));
    }
    rows.push_back(std::move(row));
  }
  page.add_table(headers, rows);
}

}  // namespace

Result<std::string> run_page(const RunReport& report) {
  Page page(!report.failures.empty()
                ? fmt::format("A fuzz run with {} failure{}", report.failures.size(),
                              report.failures.size() == 1 ? "" : "s")
            : report.was_interrupted ? "A fuzz run that was interrupted, without a failure so far"
            : report.is_green()      ? "A fuzz run without a failure"
                                     : "A fuzz run that is inconclusive",
            fmt::format("lane {}, subject {}{}, seed {}, Lockstep {}", report.lane, report.subject,
                        report.against.empty() ? "" : " against " + report.against, report.seed,
                        report.commit));
  page.add_summary(whole_summary(report));
  if (!report.failures.empty()) page.add_heading("Failures");
  for (const FailureReport& failure : report.failures) page.add_text(failure_block(failure));
  if (!report.coverage.progress.empty())
    page.add_chart("Cases and features over time", progress_config(report));
  if (!report.coverage.faults_fired.empty()) {
    constexpr int kRow = 22;
    page.add_chart("Faults that fired", faults_config(report),
                   90 + kRow * static_cast<int>(report.coverage.faults_fired.size()));
  }
  if (!report.coverage.states.empty()) {
    page.add_heading("States and faults");
    page.add_paragraph(
        "What the reducer of a fault's rank was doing when the fault acted, and how often. A cell "
        "with a dash cannot occur; a marked one can, and was not seen.");
    page.add_table(state_headers(), state_rows(report.coverage.states));
  }
  if (!report.coverage.features.empty()) {
    page.add_heading("Features and faults");
    page.add_paragraph(fmt::format(
        "Of {} cases whose features were counted: how many had the feature, and in how many of "
        "these each fault fired. The rarest features come first; shaded pairs were not seen.",
        report.coverage.cases));
    add_features(report, page);
  }
  return page.html();
}

}  // namespace lockstep::properties
