#include "properties/report/scaling_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "properties/report/page.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;
using scaling::Phase;
using scaling::Point;

struct Figure {
  const char* name;
  const char* title;
  double Point::*value;
};
constexpr std::array<Figure, 4> kFigures = {
    {{"virtual_us", "virtual time (us)", &Point::virtual_us},
     {"messages", "messages a rank", &Point::messages},
     {"bytes", "bytes a rank", &Point::bytes},
     {"store", "store calls a rank", &Point::store}}};

std::vector<Point> of_phase(const ScalingPoints& points, Phase phase) {
  std::vector<Point> out;
  for (const Point& point : points)
    if (point.phase == phase) out.push_back(point);
  return out;
}

// The growth from the job before the largest to the largest; "-" for a single job.
std::string growth_text(const std::vector<Point>& jobs, const Figure& figure) {
  if (jobs.size() < 2) return "-";
  const Point& from = jobs[jobs.size() - 2];
  const Point& to = jobs.back();
  return fmt::format("W^{:.2f}",
                     scaling::growth(from.*figure.value, to.*figure.value, from.ranks, to.ranks));
}

template <class Visit>
void each_phase(const ScalingPoints& points, Visit visit) {
  for (int phase = 0; phase < scaling::kPhases; ++phase)
    if (const auto jobs = of_phase(points, static_cast<Phase>(phase)); !jobs.empty())
      visit(static_cast<Phase>(phase), jobs);
}

std::vector<std::vector<std::string>> rows_of(const ScalingPoints& points) {
  std::vector<std::vector<std::string>> rows;
  each_phase(points, [&](Phase phase, const std::vector<Point>& jobs) {
    for (const Point& job : jobs) {
      rows.push_back({scaling::name_of(phase), fmt::format("{}", job.ranks)});
      for (const Figure& figure : kFigures)
        rows.back().push_back(fmt::format("{:.0f}", job.*figure.value));
    }
    rows.push_back({std::string(scaling::name_of(phase)) + ", growth", ""});
    for (const Figure& figure : kFigures) rows.back().push_back(growth_text(jobs, figure));
  });
  return rows;
}

std::vector<std::uint32_t> all_ranks(const ScalingPoints& points) {
  std::vector<std::uint32_t> ranks;
  for (const Point& point : points) ranks.push_back(point.ranks);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// A line for each phase, with a value for each number of ranks, or none. A logarithm has no 0.
Json lines_of(const ScalingPoints& points, const std::vector<std::uint32_t>& ranks,
              const Figure& figure) {
  constexpr int kFullCircle = 360;
  Json lines = Json::array();
  each_phase(points, [&](Phase phase, const std::vector<Point>& jobs) {
    Json values = Json::array();
    for (const std::uint32_t each : ranks) {
      const auto job = std::find_if(jobs.begin(), jobs.end(),
                                    [each](const Point& point) { return point.ranks == each; });
      const bool has_value = job != jobs.end() && (*job).*figure.value > 0;
      values.push_back(has_value ? Json((*job).*figure.value) : Json());
    }
    if (std::all_of(values.begin(), values.end(), [](const Json& v) { return v.is_null(); }))
      return;
    const int hue = static_cast<int>(phase) * kFullCircle / scaling::kPhases;
    const std::string colour = fmt::format("hsl({}, 65%, 50%)", hue);
    lines.push_back({{"label", scaling::name_of(phase)},
                     {"data", values},
                     {"spanGaps", true},
                     {"borderWidth", 1.5},
                     {"borderColor", colour},
                     {"backgroundColor", colour}});
  });
  return lines;
}

std::string chart_of(const ScalingPoints& points, const Figure& figure) {
  const std::vector<std::uint32_t> ranks = all_ranks(points);
  Json labels = Json::array();
  for (const std::uint32_t each : ranks) labels.push_back(std::to_string(each));
  const auto axis = [](const char* type, const char* title) {
    return Json{{"type", type}, {"title", {{"display", true}, {"text", title}}}};
  };
  const Json scales = {{"x", axis("category", "ranks (W)")},
                       {"y", axis("logarithmic", figure.title)}};
  return Json{{"type", "line"},
              {"data", {{"labels", labels}, {"datasets", lines_of(points, ranks, figure)}}},
              {"options", {{"scales", scales}}}}
      .dump();
}

constexpr const char* kMeaning =
    "Each job runs the production reducer on simulated ranks: 8 parameters of 1,024 float32 in 4 "
    "buckets, summed by rings. Virtual time counts latencies alone, 10 us a message. The growth is "
    "that from the job before the largest to the largest.";

}  // namespace

std::string scaling_text(const ScalingPoints& points) {
  std::string out =
      fmt::format("{:<24}{:>6}{:>19}{:>17}{:>14}{:>20}\n", "phase", "ranks", kFigures[0].title,
                  kFigures[1].title, kFigures[2].title, kFigures[3].title);
  for (const auto& row : rows_of(points))
    out += fmt::format("{:<24}{:>6}{:>19}{:>17}{:>14}{:>20}\n", row[0], row[1], row[2], row[3],
                       row[4], row[5]);
  return out;
}

std::string scaling_json(const ScalingPoints& points, const std::string& commit) {
  Json json = {
      {"schema", 1}, {"commit", commit}, {"hop_us", scaling::kHopUs}, {"points", Json::array()}};
  for (const Point& point : points) {
    Json record = {{"ranks", point.ranks}, {"phase", scaling::name_of(point.phase)}};
    for (const Figure& figure : kFigures) record[figure.name] = point.*figure.value;
    json["points"].push_back(std::move(record));
  }
  return json.dump(1) + "\n";
}

Result<std::string> scaling_page(const ScalingPoints& points, const std::string& commit) {
  Page page("What the reducer sends, with more and more ranks", "commit " + commit);
  page.add_paragraph(kMeaning);
  for (const Figure& figure : kFigures) page.add_chart(figure.title, chart_of(points, figure));
  page.add_heading("Figures");
  std::vector<std::string> headers = {"phase", "ranks"};
  for (const Figure& figure : kFigures) headers.emplace_back(figure.title);
  page.add_table(headers, rows_of(points));
  return page.html();
}

}  // namespace lockstep::properties
