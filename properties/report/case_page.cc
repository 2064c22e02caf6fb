#include "properties/report/case_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <tuple>

#include "properties/case/describe.h"
#include "properties/report/page.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kBad = '!';
constexpr char kShaded = '~';

// Where the verdict's message says that the first difference is.
struct Place {
  std::uint32_t rank = 0;
  std::uint32_t step = 0;
};

std::optional<Place> first_difference(const std::string& message) {
  static const std::regex pattern(R"(rank (\d{1,6})[,:] step (\d{1,6}))");
  std::smatch match;
  if (!std::regex_search(message, match, pattern)) return std::nullopt;
  return Place{static_cast<std::uint32_t>(std::stoul(match[1])),
               static_cast<std::uint32_t>(std::stoul(match[2]))};
}

std::string fault_text(const Case& c, std::uint32_t rank, std::uint32_t step) {
  std::string out;
  for (const faults::Fault& fault : c.faults.faults)
    if (fault.rank == rank && fault.step == step)
      out += fmt::format("{}fault: {}", out.empty() ? "" : "; ", faults::name_of(fault.kind));
  return out;
}

// The rows of the table: a step, its hooks, then its collectives. Ranks that agree have the same
// rows. A key is step, generation and sequence number.
using RowKey = std::tuple<std::uint32_t, std::uint32_t, std::int64_t>;
using Rows = std::map<RowKey, std::vector<std::string>>;  // a cell for each rank

constexpr std::int64_t kStepRow = -2;
constexpr std::int64_t kHooksRow = -1;

RowKey key_of(const TraceEvent& event) {
  const bool is_step = event.sequence == kNone;
  return {event.step, is_step ? 0 : event.generation, is_step ? kStepRow : event.sequence};
}

std::string name_of_row(const RowKey& key) {
  const auto& [step, generation, sequence] = key;
  if (sequence == kHooksRow) return "hooks";
  return sequence < 0 ? fmt::format("step {}", step) : fmt::format("collective {}", sequence);
}

std::string& cell_of(Rows& rows, const RowKey& key, std::uint32_t world, std::uint32_t rank) {
  return rows.try_emplace(key, std::vector<std::string>(world)).first->second[rank];
}

void add_lanes(const FailureReport& report, Page& page) {
  const Case& c = report.value;
  const std::optional<Place> difference = first_difference(report.outcome.verdict.message);
  const std::uint32_t world = c.program.world;
  Rows rows;
  for (const TraceEvent& event : report.outcome.events) {
    if (event.rank >= world || event.is_hook) continue;
    std::string& cell = cell_of(rows, key_of(event), world, event.rank);
    const bool is_step = event.sequence == kNone;
    if (is_step && !event.hooks.empty())
      cell_of(rows, {event.step, 0, kHooksRow}, world, event.rank) = event.hooks;
    const std::string fault = is_step ? fault_text(c, event.rank, event.step) : "";
    const bool is_marked =
        is_step && difference && difference->rank == event.rank && difference->step == event.step;
    if (!cell.empty()) cell += "; ";
    cell += event.name + (fault.empty() ? "" : "; " + fault);
    if (is_marked) cell += "; the first difference is here";
    if (is_marked)
      cell.insert(0, 1, kBad);
    else if (!fault.empty())
      cell.insert(0, 1, kShaded);
  }
  // A rank that exits leaves no events of the step in which it did.
  for (const faults::Fault& fault : c.faults.faults) {
    if (fault.rank >= world) continue;
    std::string& cell = cell_of(rows, {fault.step, 0, kStepRow}, world, fault.rank);
    if (cell.empty()) cell = kShaded + fault_text(c, fault.rank, fault.step);
  }
  std::vector<std::string> headers = {""};
  for (std::uint32_t rank = 0; rank < world; ++rank)
    headers.push_back(fmt::format("rank {}", rank));
  std::vector<std::vector<std::string>> table;
  for (auto& [key, cells] : rows) {
    table.push_back({name_of_row(key)});
    table.back().insert(table.back().end(), cells.begin(), cells.end());
  }
  page.add_table(headers, table);
}

// In virtual time most events take no time, and the picture would be empty.
bool has_times(const std::vector<TraceEvent>& events) {
  return std::any_of(events.begin(), events.end(),
                     [](const TraceEvent& event) { return event.end_us > event.begin_us; });
}

std::uint64_t start_of(const std::vector<TraceEvent>& events) {
  const auto first = std::min_element(
      events.begin(), events.end(),
      [](const TraceEvent& a, const TraceEvent& b) { return a.begin_us < b.begin_us; });
  return first == events.end() ? 0 : first->begin_us;
}

Json bars_of(const std::vector<TraceEvent>& events, bool steps, const char* label,
             const char* colour) {
  constexpr double kMicros = 1000;
  const std::uint64_t start = start_of(events);
  Json data = Json::array();
  for (const TraceEvent& event : events) {
    if (event.is_hook || (event.sequence == kNone) != steps) continue;
    const Json row = fmt::format("rank {} {}", event.rank, steps ? "steps" : "collectives");
    data.push_back({{"x", Json::array({static_cast<double>(event.begin_us - start) / kMicros,
                                       static_cast<double>(event.end_us - start) / kMicros})},
                    {"y", row}});
  }
  return {{"label", label},           {"data", data},          {"backgroundColor", colour},
          {"borderColor", "#ffffff"}, {"borderWidth", 1},      {"minBarLength", 3},
          {"grouped", false},         {"borderSkipped", false}};
}

std::string timeline_config(const FailureReport& report) {
  Json labels = Json::array();
  for (std::uint32_t rank = 0; rank < report.value.program.world; ++rank) {
    labels.push_back(fmt::format("rank {} steps", rank));
    labels.push_back(fmt::format("rank {} collectives", rank));
  }
  const std::vector<TraceEvent>& events = report.outcome.events;
  return Json{
      {"type", "bar"},
      {"data",
       {{"labels", labels},
        {"datasets", Json::array({bars_of(events, true, "steps", "hsl(210, 60%, 55%)"),
                                  bars_of(events, false, "collectives", "hsl(35, 80%, 50%)")})}}},
      {"options",
       {{"indexAxis", "y"},
        {"scales",
         {{"x", {{"min", 0}, {"title", {{"display", true}, {"text", "milliseconds"}}}}},
          {"y", {{"ticks", {{"autoSkip", false}}}}}}}}}}
      .dump();
}

}  // namespace

Result<std::string> case_page(const FailureReport& report) {
  const Verdict& verdict = report.outcome.verdict;
  const bool has_failed = !verdict.ok() && verdict.failing != Failing::kInconclusive;
  Page page(
      has_failed ? fmt::format("A failing case: {}", name_of(verdict.failing))
                 : "A case that passes",
      fmt::format("lane {}, subject {}, commit {}", report.lane, report.subject, report.commit));
  if (has_failed)
    page.add_paragraph(fmt::format("The oracle \"{}\" fails (exit code {}).", verdict.oracle,
                                   static_cast<int>(verdict.failing)));
  if (!report.case_file.empty()) page.add_text(replay_line(report));
  if (!verdict.message.empty()) {
    page.add_heading(has_failed ? "What is wrong" : "What could not be judged");
    page.add_text(verdict.message);
  }
  page.add_heading("The program");
  page.add_text(describe(report.value));
  if (!report.irrelevant.empty()) {
    std::string text = "What does not matter: ";
    for (std::size_t i = 0; i < report.irrelevant.size(); ++i)
      text += (i == 0 ? "" : ", ") + report.irrelevant[i];
    page.add_paragraph(text + ".");
  }
  page.add_heading("What each rank did");
  page.add_paragraph(
      "A column for each rank: its steps and, below each, the parameters in the order of their "
      "hooks (if the step succeeded), and the collectives in the order of their numbers. Steps "
      "with a planned fault are shaded. Of a step in which its process ended, a rank leaves "
      "nothing else.");
  add_lanes(report, page);
  if (has_times(report.outcome.events)) {
    constexpr int kRow = 46;
    page.add_chart("The same in time", timeline_config(report),
                   110 + kRow * static_cast<int>(report.value.program.world));
  }
  if (const std::string errors = errors_block(report.outcome.errors); !errors.empty()) {
    page.add_heading("Errors");
    page.add_text(errors);
  }
  if (!report.outcome.diagnosis.empty()) {
    page.add_heading("Flight records");
    page.add_text(report.outcome.diagnosis);
  }
  return page.html();
}

}  // namespace lockstep::properties
