#include "properties/report/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "properties/report/page.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLogVersion = 1;
constexpr double kSignificant = 0.05;

tl::unexpected<Status> unreadable(std::size_t line, const std::string& what) {
  return failed(Status(Code::kInvalidArgument,
                       fmt::format("line {} of the log is not one of an evaluation ({}): remove "
                                   "the line, or give another file",
                                   line, what)));
}

EvaluationSettings settings_of(const Json& json) {
  return {json.at("cases"), json.at("lane"), json.at("commit"),
          json.value("policy", std::string())};
}

BugTrial trial_of(const Json& json) {
  BugTrial trial;
  trial.bug = json.at("bug");
  trial.seed = json.at("seed");
  trial.found = json.at("found");
  trial.executions = json.at("executions");
  trial.seconds = json.at("seconds");
  trial.reached = json.at("reached");
  trial.triggered = json.at("triggered");
  trial.oracle = json.at("oracle");
  trial.index = json.at("index");
  if (json.contains("shrunk")) trial.shrunk = json.at("shrunk").get<std::uint64_t>();
  return trial;
}

Json json_of(const BugTrial& trial) {
  Json json = {{"bug", trial.bug},
               {"seed", trial.seed},
               {"found", trial.found},
               {"executions", trial.executions},
               {"seconds", trial.seconds},
               {"reached", trial.reached},
               {"triggered", trial.triggered},
               {"oracle", trial.oracle},
               {"index", trial.index}};
  if (trial.shrunk) json["shrunk"] = *trial.shrunk;
  return json;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}

std::string median_text(const std::optional<double>& median) {
  return median ? fmt::format("{:.0f}", *median) : "-";
}

std::vector<std::string> row_of(const BugFigures& bug) {
  const bool is_lost = bug.found < bug.trials;
  return {bug.bug,
          fmt::format("{}{} of {}", is_lost ? "!" : "", bug.found, bug.trials),
          median_text(bug.median),
          fmt::format("{:.0f}", bug.restricted_mean),
          fmt::format("{:.2f}", bug.seconds),
          fmt::format("{}", bug.reached),
          fmt::format("{}", bug.triggered),
          median_text(bug.shrunk),
          joined(bug.oracles)};
}

const std::vector<std::string>& headers() {
  static const std::vector<std::string> names = {
      "bug", "found", "median", "mean", "seconds", "reached", "triggered", "shrunk", "oracles"};
  return names;
}

// Columns of a text table; the first and the last are aligned to the left.
std::string text_table(const std::vector<std::string>& names,
                       const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::string& name : names) widths.push_back(name.size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool is_left = i == 0 || i + 1 == row.size();
      line += is_left ? fmt::format("{:<{}}", row[i], widths[i])
                      : fmt::format("{:>{}}", row[i], widths[i]);
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add(names);
  for (const auto& row : rows) add(row);
  return out;
}

std::string summary_of(const Evaluation& evaluation, const std::vector<BugFigures>& bugs) {
  std::size_t found = 0;
  std::vector<double> medians;
  std::vector<std::string> missed;
  for (const BugFigures& bug : bugs) {
    found += bug.found;
    if (bug.median) medians.push_back(*bug.median);
    if (bug.found < bug.trials) missed.push_back(bug.bug);
  }
  std::sort(medians.begin(), medians.end());
  const std::size_t trials = evaluation.trials.size();
  std::string out = fmt::format(
      "{} bugs, {} trials of at most {} cases (lane {}, commit {}): the bug was found in {} "
      "({:.1f} %)",
      bugs.size(), trials, evaluation.settings.cases, evaluation.settings.lane,
      evaluation.settings.commit, found,
      100 * static_cast<double>(found) / static_cast<double>(std::max<std::size_t>(trials, 1)));
  if (!medians.empty())
    out += fmt::format("; median over the bugs of their medians: {:.0f} cases",
                       medians[medians.size() / 2]);
  if (!missed.empty()) out += "\nnot found in every trial: " + joined(missed);
  return out + "\n";
}

// The curve as points of a line that keeps its value until the next one.
Json points_of(const BugFigures& bug, double horizon) {
  Json points = Json::array();
  points.push_back({{"x", 1}, {"y", 100}});
  double share = 1;
  for (const SurvivalStep& step : survival_curve(bug.times)) {
    points.push_back({{"x", step.time}, {"y", 100 * step.share}});
    share = step.share;
  }
  if (share > 0) points.push_back({{"x", horizon}, {"y", 100 * share}});
  return points;
}

// One colour for each line, apart in hue.
std::string colour_of(std::size_t index) {
  constexpr int kGoldenAngle = 137;
  return fmt::format("hsl({}, 65%, 50%)", static_cast<int>(index) * kGoldenAngle % 360);
}

std::string curves_config(const std::vector<BugFigures>& bugs, double horizon) {
  Json sets = Json::array();
  for (std::size_t i = 0; i < bugs.size(); ++i)
    sets.push_back({{"label", bugs[i].bug},
                    {"data", points_of(bugs[i], horizon)},
                    {"stepped", "before"},
                    {"pointRadius", 0},
                    {"pointHitRadius", 6},
                    {"borderWidth", 1.5},
                    {"borderColor", colour_of(i)}});
  return Json{
      {"type", "line"},
      {"data", {{"datasets", sets}}},
      {"options",
       {{"parsing", false},
        {"interaction", {{"mode", "nearest"}, {"intersect", false}}},
        {"plugins", {{"legend", {{"display", bugs.size() <= 12}}}}},
        {"scales",
         {{"x",
           {{"type", "logarithmic"},
            {"min", 1},
            {"max", horizon},
            {"title", {{"display", true}, {"text", "cases"}}}}},
          {"y",
           {{"min", 0},
            {"max", 100},
            {"title", {{"display", true}, {"text", "trials that have not found it (%)"}}}}}}}}}}
      .dump();
}

std::string medians_config(std::vector<BugFigures> bugs) {
  std::sort(bugs.begin(), bugs.end(), [](const BugFigures& a, const BugFigures& b) {
    return a.restricted_mean > b.restricted_mean;
  });
  std::vector<std::pair<std::string, double>> bars;
  for (const BugFigures& bug : bugs) bars.emplace_back(bug.bug, bug.restricted_mean);
  return bars_config(bars, "mean cases until it is found",
                     {{"type", "logarithmic"},
                      {"title", {{"display", true}, {"text", "cases (mean, restricted)"}}}});
}

}  // namespace

std::string to_log_line(const EvaluationSettings& settings) {
  return Json{{"lockstep_eval", kLogVersion},
              {"cases", settings.cases},
              {"lane", settings.lane},
              {"commit", settings.commit},
              {"policy", settings.policy}}
             .dump() +
         "\n";
}

std::string to_log_line(const BugTrial& trial) { return json_of(trial).dump() + "\n"; }

Result<Evaluation> evaluation_from_log(const std::string& text, std::size_t& whole_bytes) {
  Evaluation evaluation;
  std::size_t begin = 0;
  for (std::size_t line = 1; begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const Json json = Json::parse(text.substr(begin, end - begin), nullptr, false);
    if (json.is_discarded() || !json.is_object()) return unreadable(line, "it is not JSON");
    try {
      if (line == 1 && json.value("lockstep_eval", 0) != kLogVersion)
        return unreadable(line, "it has no lockstep_eval of version 1");
      if (line == 1)
        evaluation.settings = settings_of(json);
      else
        evaluation.trials.push_back(trial_of(json));
    } catch (const Json::exception& error) {
      return unreadable(line, error.what());
    }
    begin = end + 1;
  }
  whole_bytes = begin;
  return evaluation;
}

std::vector<BugFigures> figures_of(const Evaluation& evaluation) {
  std::map<std::string, BugFigures> bugs;
  std::map<std::string, std::set<std::string>> oracles;
  std::map<std::string, std::vector<std::uint64_t>> sizes;
  for (const BugTrial& trial : evaluation.trials) {
    BugFigures& bug = bugs[trial.bug];
    bug.bug = trial.bug;
    ++bug.trials;
    bug.found += trial.found ? 1 : 0;
    bug.reached += trial.reached > 0 ? 1 : 0;
    bug.triggered += trial.triggered > 0 ? 1 : 0;
    bug.seconds += trial.seconds;
    bug.times.push_back({static_cast<double>(trial.executions), trial.found});
    if (trial.found) oracles[trial.bug].insert(trial.oracle);
    if (trial.shrunk) sizes[trial.bug].push_back(*trial.shrunk);
  }
  std::vector<BugFigures> out;
  for (auto& [name, bug] : bugs) {
    const std::vector<SurvivalStep> curve = survival_curve(bug.times);
    bug.median = median_time(curve);
    bug.restricted_mean = restricted_mean(curve, static_cast<double>(evaluation.settings.cases));
    bug.seconds /= static_cast<double>(bug.trials);
    if (std::vector<std::uint64_t>& each = sizes[name]; !each.empty()) {
      std::sort(each.begin(), each.end());
      bug.shrunk = static_cast<double>(each[each.size() / 2]);
    }
    bug.oracles.assign(oracles[name].begin(), oracles[name].end());
    out.push_back(std::move(bug));
  }
  return out;
}

std::string to_table(const Evaluation& evaluation) {
  const std::vector<BugFigures> bugs = figures_of(evaluation);
  std::vector<std::vector<std::string>> rows;
  for (const BugFigures& bug : bugs) {
    rows.push_back(row_of(bug));
    std::string& found = rows.back()[1];
    if (found.starts_with('!')) found.erase(0, 1);
  }
  return text_table(headers(), rows) + summary_of(evaluation, bugs);
}

std::string to_json(const Evaluation& evaluation) {
  Json bugs = Json::array();
  for (const BugFigures& bug : figures_of(evaluation)) {
    bugs.push_back({{"bug", bug.bug},
                    {"trials", bug.trials},
                    {"found", bug.found},
                    {"reached", bug.reached},
                    {"triggered", bug.triggered},
                    {"median_executions", bug.median ? Json(*bug.median) : Json(nullptr)},
                    {"restricted_mean_executions", bug.restricted_mean},
                    {"mean_seconds", bug.seconds},
                    {"shrunk", bug.shrunk ? Json(*bug.shrunk) : Json(nullptr)},
                    {"oracles", bug.oracles}});
  }
  Json trials = Json::array();
  for (const BugTrial& trial : evaluation.trials) trials.push_back(json_of(trial));
  return Json{{"lockstep_eval", kLogVersion},
              {"cases", evaluation.settings.cases},
              {"lane", evaluation.settings.lane},
              {"commit", evaluation.settings.commit},
              {"policy", evaluation.settings.policy},
              {"bugs", bugs},
              {"trials", trials}}
             .dump(1) +
         "\n";
}

Result<std::string> to_page(const Evaluation& evaluation) {
  const std::vector<BugFigures> bugs = figures_of(evaluation);
  const auto horizon = static_cast<double>(evaluation.settings.cases);
  Page page(
      "Planted bugs and how long they live",
      fmt::format("lane {}, commit {}", evaluation.settings.lane, evaluation.settings.commit));
  std::istringstream lines(summary_of(evaluation, bugs));
  for (std::string line; std::getline(lines, line);) page.add_paragraph(line);
  page.add_chart("Trials that have not found the bug yet (Kaplan-Meier), one line for each bug",
                 curves_config(bugs, horizon), 460);
  constexpr int kRow = 18;
  page.add_chart("Mean number of cases until a bug is found", medians_config(bugs),
                 90 + kRow * static_cast<int>(bugs.size()));
  page.add_heading("All bugs");
  page.add_paragraph(
      "Median and mean are numbers of cases. The mean is restricted: a trial that found nothing "
      "counts with the limit. Reached: trials in which the code of the bug ran; triggered: trials "
      "in which it made a difference. Shrunk: what is left of a case that was made small (ranks, "
      "parameters, steps, records, faults, deviations of the schedule).");
  std::vector<std::vector<std::string>> rows;
  for (const BugFigures& bug : bugs) rows.push_back(row_of(bug));
  page.add_table(headers(), rows);
  return page.html();
}

Result<std::string> compare(const Evaluation& before, const Evaluation& after) {
  if (before.settings.cases != after.settings.cases || before.settings.lane != after.settings.lane)
    return failed(Status(
        Code::kInvalidArgument,
        fmt::format("the evaluations have other limits ({} cases in lane {}, {} in lane {}): "
                    "measure both with the same --cases and --lane",
                    before.settings.cases, before.settings.lane, after.settings.cases,
                    after.settings.lane)));
  LogRank all;
  std::vector<std::vector<std::string>> rows;
  double ratio_sum = 0;
  const std::vector<BugFigures> olds = figures_of(before);
  for (const BugFigures& bug : figures_of(after)) {
    const auto old = std::find_if(olds.begin(), olds.end(),
                                  [&](const BugFigures& each) { return each.bug == bug.bug; });
    if (old == olds.end()) continue;
    LogRank one;
    one.add(bug.times, old->times);
    all.add(bug.times, old->times);
    const double ratio = bug.restricted_mean / std::max(old->restricted_mean, 1.0);
    ratio_sum += std::log(std::max(ratio, 1e-9));
    const bool differs = one.p_value() < kSignificant;
    rows.push_back({bug.bug, fmt::format("{} of {}", old->found, old->trials),
                    fmt::format("{} of {}", bug.found, bug.trials), median_text(old->median),
                    median_text(bug.median), fmt::format("{:.2f}", ratio),
                    fmt::format("{:.3f}", one.p_value()),
                    !differs           ? ""
                    : one.excess() > 0 ? "faster"
                                       : "slower"});
  }
  if (rows.empty())
    return failed(Status(Code::kInvalidArgument, "the evaluations have no planted bug in common"));
  std::string out = text_table(
      {"bug", "found before", "after", "median before", "after", "ratio of means", "p", "verdict"},
      rows);
  out += fmt::format(
      "{} bugs in common; geometric mean of the ratios {:.2f} (below 1: found sooner); log-rank "
      "test over all, stratified by bug: p = {:.4f}, {}\n",
      rows.size(), std::exp(ratio_sum / static_cast<double>(rows.size())), all.p_value(),
      all.p_value() >= kSignificant ? "no difference shown"
      : all.excess() > 0            ? "the second is faster"
                                    : "the second is slower");
  return out;
}

}  // namespace lockstep::properties
