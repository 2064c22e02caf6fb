#include "properties/compare/benchmark_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "properties/compare/ratio_chart.h"
#include "properties/compare/verdict.h"
#include "properties/report/page.h"

namespace lockstep::properties {
namespace {

constexpr std::size_t kShortCommit = 10;
constexpr int kHistoryPixels = 380;
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

const char* title_of(const std::string& benchmark) {
  static const std::map<std::string, const char*> kTitles = {
      {"reducer", "A step of the reducer over Gloo"},
      {"torch", "A step beside PyTorch's reducer"},
      {"hooks", "The reducer alone"},
      {"nccl", "NCCL libraries side by side"}};
  const auto found = kTitles.find(benchmark);
  return found == kTitles.end() ? "A benchmark" : found->second;
}

std::string short_commit(const std::string& commit) {
  return commit.empty() ? "unknown" : commit.substr(0, kShortCommit);
}

std::string text_of(const Ratio& ratio) {
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", ratio.middle, ratio.low, ratio.high);
}

std::vector<std::string> groups_of(const std::vector<Figure>& figures) {
  std::vector<std::string> out;
  for (const Figure& figure : figures)
    if (std::find(out.begin(), out.end(), figure.group) == out.end()) out.push_back(figure.group);
  return out;
}

void add_ratio_chart(Page& page, const std::string& title, const std::vector<RatioRow>& rows,
                     const std::string& axis) {
  if (rows.empty()) return;
  page.add_chart(title, ratio_chart(rows, axis),
                 kRatioChartPixels + kRatioRowPixels * static_cast<int>(rows.size()));
}

std::string wrong_cell(const std::optional<std::uint64_t>& wrong) {
  if (!wrong) return "";
  return fmt::format("{}{}", *wrong > 0 ? "!" : "", *wrong);
}

// The columns that some figure of the group has something for.
void add_table(Page& page, const std::vector<const Figure*>& figures) {
  const bool has_ratios = std::any_of(figures.begin(), figures.end(),
                                      [](const Figure* each) { return each->ratio.has_value(); });
  const bool has_wrong = std::any_of(figures.begin(), figures.end(),
                                     [](const Figure* each) { return each->wrong.has_value(); });
  std::vector<std::string> headers = {"", "median", "unit"};
  if (has_ratios) headers.insert(headers.end(), {"ratio", "rounds"});
  if (has_wrong) headers.emplace_back("wrong elements");
  std::vector<std::vector<std::string>> rows;
  for (const Figure* const figure : figures) {
    std::vector<std::string> row = {figure->name, fmt::format("{:.3f}", figure->value),
                                    figure->unit};
    if (has_ratios) {
      row.push_back(figure->ratio ? text_of(*figure->ratio) : "");
      row.push_back(figure->ratio ? fmt::format("{}", figure->ratio->rounds) : "");
    }
    if (has_wrong) row.push_back(wrong_cell(figure->wrong));
    rows.push_back(std::move(row));
  }
  page.add_table(headers, rows);
}

void add_group(Page& page, const std::string& group, const std::vector<Figure>& figures) {
  page.add_heading(group);
  std::vector<RatioRow> rows;
  std::vector<const Figure*> own;
  std::string base;
  for (const Figure& figure : figures) {
    if (figure.group != group) continue;
    own.push_back(&figure);
    if (!figure.ratio) continue;
    rows.push_back({figure.name, *figure.ratio});
    base = figure.base;
  }
  add_ratio_chart(page, "Ratios and intervals", rows, "time, divided by that of " + base);
  add_table(page, own);
}

const Figure* find_figure(const BenchmarkResults& results, const Figure& like) {
  const auto found = std::find_if(
      results.figures.begin(), results.figures.end(),
      [&like](const Figure& each) { return each.group == like.group && each.name == like.name; });
  return found == results.figures.end() ? nullptr : &*found;
}

Status check_history(const std::vector<NamedRun>& runs) {
  const auto refused = [](std::string text) {
    return Status(Code::kInvalidArgument, std::move(text));
  };
  if (runs.size() < 2) return refused("a history needs the results of two runs or more");
  const NamedRun& first = runs.front();
  for (const NamedRun& run : runs) {
    if (run.results.benchmark != first.results.benchmark)
      return refused(
          fmt::format("{} has results of the benchmark {}, and {} of {}: give those of "
                      "one benchmark",
                      first.file, first.results.benchmark, run.file, run.results.benchmark));
    if (run.results.machine != first.results.machine)
      return refused(fmt::format(
          "{} is of a machine with {}, and {} of one with {}: times of two "
          "machines are not compared",
          first.file, first.results.machine.to_text(), run.file, run.results.machine.to_text()));
  }
  return {};
}

std::string column_of(const NamedRun& run) {
  return run.results.commit.empty() ? std::filesystem::path(run.file).stem().string()
                                    : short_commit(run.results.commit);
}

// One row of a history: what it was in each run.
struct HistoryRow {
  Series series;
  std::vector<std::string> cells;
  bool has_ratios = false;
};

// A cell is marked where the interval lies above that of the run before, and shaded where it lies
// below.
HistoryRow history_of(const std::vector<NamedRun>& runs, const Figure& like) {
  HistoryRow row{{like.name, {}}, {like.name}, like.ratio.has_value()};
  const Ratio* before = nullptr;
  double first_value = 0;
  for (const NamedRun& run : runs) {
    const Figure* const figure = find_figure(run.results, like);
    const bool is_there = figure != nullptr && figure->ratio.has_value() == row.has_ratios;
    if (!is_there) {
      row.series.values.push_back(kNoValue);
      row.cells.emplace_back("");
      continue;
    }
    if (!row.has_ratios) {
      if (first_value == 0) first_value = figure->value;
      row.series.values.push_back(first_value == 0 ? kNoValue : figure->value / first_value);
      row.cells.push_back(fmt::format("{:.3f} {}", figure->value, figure->unit));
      continue;
    }
    const Ratio& ratio = *figure->ratio;
    const char* mark = "";
    if (before != nullptr && ratio.low > before->high) mark = "!";
    if (before != nullptr && ratio.high < before->low) mark = "~";
    before = &ratio;
    row.series.values.push_back(ratio.middle);
    row.cells.push_back(mark + text_of(ratio));
  }
  return row;
}

std::string ms_text(bool has, double value) { return has ? fmt::format("{:.3f}", value) : ""; }

void add_pair(Page& page, const PairVerdict& pair, int ranks) {
  page.add_heading(pair.base + " -> " + pair.other);
  page.add_paragraph(pair.line(ranks));
  std::vector<RatioRow> rows;
  std::vector<std::vector<std::string>> cells;
  for (const TimeComparison& time : pair.times) {
    if (time.is_judged) rows.push_back({time.name, time.ratio});
    const auto wrong = [&time](bool has, std::uint64_t count) {
      return wrong_cell(has && time.is_sum ? std::optional(count) : std::nullopt);
    };
    const char* const mark = time.change == Change::kSlower   ? "!"
                             : time.change == Change::kFaster ? "~"
                                                              : "";
    cells.push_back(
        {time.name, ms_text(time.has_base, time.base_ms), ms_text(time.has_base, time.base_p99_ms),
         ms_text(time.has_other, time.other_ms), ms_text(time.has_other, time.other_p99_ms),
         time.is_judged ? mark + ratio_text(time) : "",
         time.is_judged ? change_text(time.change) : "", wrong(time.has_base, time.base_wrong),
         wrong(time.has_other, time.other_wrong)});
  }
  add_ratio_chart(page, pair.other + " beside " + pair.base, rows,
                  "time, divided by that of " + pair.base);
  page.add_table({"time in ms", "p50, " + pair.base, "p99, " + pair.base, "p50, " + pair.other,
                  "p99, " + pair.other, "ratio", "change", "wrong elements, " + pair.base,
                  "wrong elements, " + pair.other},
                 cells);
  if (pair.bits.empty()) return;
  std::vector<std::vector<std::string>> bits;
  for (const BitsDifference& each : pair.bits)
    bits.push_back({each.name, fmt::format("!{}", each.differences),
                    fmt::format("{}", each.elements), fmt::format("{}", each.first)});
  page.add_paragraph("Sums whose bits differ:");
  page.add_table({"sum", "elements that differ", "of", "the first one"}, bits);
}

void add_libraries(Page& page, const ComparisonResults& results) {
  page.add_heading("Which order of additions gives the bits");
  std::vector<std::vector<std::string>> bits;
  std::vector<std::vector<std::string>> sent;
  std::vector<std::vector<std::string>> told;
  std::vector<std::vector<std::string>> problems;
  for (const LibraryResult& library : results.libraries) {
    std::map<std::string, std::vector<std::string>> sums;
    for (const BitsResult& each : library.bits) sums[each.explanation].push_back(each.name);
    for (const auto& [explanation, names] : sums)
      bits.push_back({library.name, explanation, fmt::format("{}", fmt::join(names, ", "))});
    for (const MessagesResult& each : library.messages)
      sent.push_back({library.name, each.name, fmt::format("{}", each.messages),
                      fmt::format("{}", each.bytes)});
    for (const FaultResult& fault : library.faults)
      told.push_back({library.name, fault.name, told_text(fault),
                      fmt::format("{:.1f}", told_after_ms(fault)),
                      fault.rounds.front().front().text});
    for (const std::string& problem : library.problems) problems.push_back({library.name, problem});
  }
  page.add_table({"library", "order", "sums"}, bits);
  if (!sent.empty()) {
    page.add_heading("What all ranks send for one operation");
    page.add_table({"library", "sum", "messages", "bytes"}, sent);
  }
  if (!told.empty()) {
    page.add_heading("What the other ranks are told of a fault");
    page.add_table({"library", "the last rank is", "told", "ms after it", "text of rank 0"}, told);
  }
  if (problems.empty()) return;
  page.add_heading("What did not work");
  page.add_table({"library", "problem"}, problems);
}

}  // namespace

Result<std::string> benchmark_page(const BenchmarkResults& results) {
  Page page(title_of(results.benchmark),
            fmt::format("commit {}, {}", short_commit(results.commit), results.machine.to_text()));
  page.add_paragraph(
      "A ratio is the median over the repetitions, of times that were taken in turns in one run; "
      "the interval behind it covers the true median with 95 % where the repetitions are enough.");
  for (const std::string& group : groups_of(results.figures))
    add_group(page, group, results.figures);
  return page.html();
}

Result<std::string> history_page(const std::vector<NamedRun>& runs) {
  if (Status status = check_history(runs); !status.ok()) return failed(std::move(status));
  const BenchmarkResults& last = runs.back().results;
  Page page(std::string(title_of(last.benchmark)) + ", over commits",
            fmt::format("{} runs, {}", runs.size(), last.machine.to_text()));
  page.add_paragraph(
      "A cell is marked where its interval lies above that of the run before, and shaded where it "
      "lies below.");
  std::vector<std::string> columns;
  for (const NamedRun& run : runs) columns.push_back(column_of(run));
  for (const std::string& group : groups_of(last.figures)) {
    std::vector<Series> series;
    std::vector<std::vector<std::string>> cells;
    std::string base;
    for (const Figure& figure : last.figures) {
      if (figure.group != group) continue;
      HistoryRow row = history_of(runs, figure);
      if (row.has_ratios) base = figure.base;
      // A base has no ratio to itself.
      const bool is_base = !row.has_ratios && !figure.base.empty();
      if (!is_base) series.push_back(std::move(row.series));
      cells.push_back(std::move(row.cells));
    }
    page.add_heading(group);
    if (!series.empty())
      page.add_chart(
          "Over commits",
          history_chart(columns, series,
                        "time, divided by that of " + (base.empty() ? "the first run" : base)),
          kHistoryPixels);
    std::vector<std::string> headers = {""};
    headers.insert(headers.end(), columns.begin(), columns.end());
    page.add_table(headers, cells);
  }
  return page.html();
}

Result<std::string> comparison_page(const ComparisonResults& results, double limit) {
  Page page(
      "NCCL libraries side by side",
      fmt::format("{}; {} ranks, {} rounds of {} repetitions, {}; commit {}, {}", results.ran_on,
                  results.ranks, results.rounds, results.repetitions,
                  results.is_pinned ? "Ring and Simple with one channel" : "NCCL's own choices",
                  short_commit(results.commit), results.machine.to_text()));
  page.add_paragraph(
      "A ratio is the median over the rounds, in which the libraries took turns; from six rounds "
      "on, the interval behind it covers the true median with 95 %. A change is named where a "
      "sign test over the rounds is sure of it, and is unclear where the rounds are too few or too "
      "different.");
  for (const PairVerdict& pair : compare_all(results, limit)) add_pair(page, pair, results.ranks);
  add_libraries(page, results);
  return page.html();
}

}  // namespace lockstep::properties
