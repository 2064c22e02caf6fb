#include "properties/campaign/campaign_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "properties/report/page.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kBlue = "hsl(210, 65%, 50%)";
constexpr const char* kAmber = "hsl(35, 85%, 45%)";
constexpr const char* kRed = "hsl(4, 70%, 50%)";
constexpr std::size_t kMaxBars = 64;
constexpr int kRowPixels = 22;

Json curve(const RunReport& total, const char* label, const char* colour,
           double (*value)(const RunProgress&)) {
  Json data = Json::array({{{"x", 0}, {"y", 0}}});
  for (const RunProgress& at : total.progress)
    data.push_back({{"x", at.seconds}, {"y", value(at)}});
  return {{"label", label},        {"data", data},    {"yAxisID", label},
          {"borderColor", colour}, {"stepped", true}, {"backgroundColor", colour},
          {"pointRadius", 0},      {"borderWidth", 2}};
}

Json axis(const char* title, const char* position) {
  return {{"position", position},
          {"beginAtZero", true},
          {"title", {{"display", true}, {"text", title}}}};
}

std::string progress_chart(const RunReport& total) {
  Json right = axis("features", "right");
  right["grid"] = {{"drawOnChartArea", false}};
  const Json sets =
      Json::array({curve(total, "cases", kBlue,
                         [](const RunProgress& at) { return static_cast<double>(at.cases); }),
                   curve(total, "features", kAmber,
                         [](const RunProgress& at) { return static_cast<double>(at.features); })});
  const Json time = {{"type", "linear"},
                     {"beginAtZero", true},
                     {"title", {{"display", true}, {"text", "seconds since the campaign began"}}}};
  return Json{{"type", "line"},
              {"data", {{"datasets", sets}}},
              {"options",
               {{"scales", {{"x", time}, {"cases", axis("cases", "left")}, {"features", right}}}}}}
      .dump();
}

// Bars to the right, one below the other.
std::string bars(const std::vector<std::pair<std::string, double>>& values, const char* title,
                 const char* colour) {
  Json labels = Json::array();
  Json lengths = Json::array();
  for (const auto& [label, value] : values) {
    labels.push_back(label);
    lengths.push_back(value);
  }
  return Json{
      {"type", "bar"},
      {"data",
       {{"labels", labels},
        {"datasets",
         Json::array({{{"label", title}, {"data", lengths}, {"backgroundColor", colour}}})}}},
      {"options",
       {{"indexAxis", "y"},
        {"plugins", {{"legend", {{"display", false}}}}},
        {"scales",
         {{"x", {{"title", {{"display", true}, {"text", title}}}}},
          {"y", {{"ticks", {{"autoSkip", false}}}}}}}}}}
      .dump();
}

void add_bars(Page& page, const char* heading, const char* title, const char* colour,
              const std::vector<std::pair<std::string, double>>& values) {
  page.add_chart(heading, bars(values, title, colour),
                 90 + kRowPixels * static_cast<int>(values.size()));
}

void add_shards(const CampaignSummary& summary, Page& page) {
  if (summary.shards.size() <= kMaxBars) {
    std::vector<std::pair<std::string, double>> values;
    for (const ShardSummary& shard : summary.shards)
      values.emplace_back(fmt::format("shard {}", shard.shard.number),
                          static_cast<double>(shard.cases));
    add_bars(page, "Cases of each shard", "cases", kBlue, values);
  }
  page.add_heading("Shards");
  std::vector<std::vector<std::string>> rows;
  for (const ShardSummary& shard : summary.shards) {
    const bool is_open = shard.state.starts_with("ended in") || shard.state.starts_with("has not");
    rows.push_back({fmt::format("{}", shard.shard.number), fmt::format("{}", shard.cases),
                    shard.of_cases ? fmt::format("{}", *shard.of_cases) : "-",
                    fmt::format("{}{}", shard.failures > 0 ? "!" : "", shard.failures),
                    fmt::format("{:.0f}", shard.seconds), (is_open ? "~" : "") + shard.state});
  }
  page.add_table({"shard", "cases", "of", "failing", "seconds", "state"}, rows);
}

void add_failures(const CampaignSummary& summary, Page& page) {
  if (summary.failures.empty()) return;
  page.add_heading("Failures in groups");
  page.add_paragraph(
      "Failures with one signature are in one group: subject, oracle, exit code, clauses, what the "
      "program needs after shrinking, kinds of faults, and the shape of the wait-for graph.");
  std::vector<std::pair<std::string, double>> sizes;
  for (const FailureGroup& group : summary.groups)
    sizes.emplace_back(fmt::format("{} {}", group.signature.oracle, id_of(group.signature)),
                       static_cast<double>(group.indices.size()));
  if (!sizes.empty() && sizes.size() <= kMaxBars)
    add_bars(page, "Failing cases of each group", "failing cases", kRed, sizes);
  page.add_text(groups_text(summary));
}

// Pairs that no case had come first.
void add_pairs(const CampaignSummary& summary, const std::string& program, Page& page) {
  page.add_heading("The smallest case of every pair of features");
  page.add_paragraph(fmt::format(
      "Of {} cases whose features were counted. A command such as `{}` writes a case; `campaign "
      "merge` writes all of them. Shaded pairs were not seen.",
      summary.total.coverage_cases, generate_line(summary.plan, 0, program)));
  std::vector<std::vector<std::string>> rows;
  for (const std::string& pair : pairs_of_features()) {
    const auto small = summary.smallest.find(pair);
    const auto count = summary.total.coverage.find(pair);
    if (small == summary.smallest.end() || count == summary.total.coverage.end()) {
      rows.insert(rows.begin(), {pair, "~0", "", ""});
      continue;
    }
    const Size& size = small->second.size;
    rows.push_back({pair, fmt::format("{}", count->second), fmt::format("{}", small->second.index),
                    fmt::format("{} ranks, {} steps, {} parameters, {} faults", size.ranks,
                                size.steps, size.parameters, size.faults)});
  }
  page.add_table({"pair", "cases", "smallest case", "its size"}, rows);
}

std::string title_of(const CampaignSummary& summary) {
  if (summary.failures.empty()) return "A campaign without a failure";
  const std::size_t failures = summary.failures.size();
  const std::size_t groups = summary.groups.size();
  return fmt::format("A campaign with {} failing case{} in {} group{}", failures,
                     failures == 1 ? "" : "s", groups, groups == 1 ? "" : "s");
}

}  // namespace

Result<std::string> campaign_page(const CampaignSummary& summary, const std::string& program) {
  const CampaignPlan& plan = summary.plan;
  Page page(title_of(summary),
            fmt::format("lane {}, subject {}{}, seed {}, {} shards, commit {}", plan.lane,
                        plan.subject, plan.against.empty() ? "" : " against " + plan.against,
                        plan.seed, plan.shards, plan.commit));
  const std::string text = to_text(summary);
  const std::size_t begin = text.find("\ncases: ");  // before it is a table, which is below
  if (begin != std::string::npos) page.add_summary(text.substr(begin + 1));
  add_failures(summary, page);
  if (!summary.total.progress.empty())
    page.add_chart("Cases and features over time", progress_chart(summary.total));
  add_shards(summary, page);
  std::vector<std::pair<std::string, double>> fired;
  for (const auto& [name, count] : summary.total.faults_fired)
    fired.emplace_back(name, static_cast<double>(count));
  if (!fired.empty()) add_bars(page, "Faults that fired", "times that it fired", kBlue, fired);
  add_pairs(summary, program, page);
  return page.html();
}

}  // namespace lockstep::properties
