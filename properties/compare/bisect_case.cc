#include "properties/compare/bisect_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "properties/case/invalid.h"
#include "properties/compare/verdict.h"
#include "properties/process/shell_word.h"

namespace lockstep::properties {
namespace {

constexpr int kFirstFinding = 65;  // exit codes of lockstep that are findings; 0 is fine
constexpr int kLastFinding = 74;
constexpr const char* kFaults[] = {"killed", "stalled", "reset"};
constexpr const char* kLifecycle[] = {"shrink", "init again", "abort when idle", "abort"};
constexpr const char* kAlways[] = {"load", "init", "first all_reduce", "destroy",
                                   "connect a group"};

struct Ended {
  int code = 0;
  std::string last_line;
};

Result<Ended> run_command(const std::string& command) {
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return failed(invalid("no process can be started for " + command));
  Ended ended;
  std::string rest;
  std::array<char, 4096> text{};
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) {
    rest = text.data();
    while (!rest.empty() && rest.back() == '\n') rest.pop_back();
    if (!rest.empty()) ended.last_line = rest;
  }
  const int status = ::pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

Result<Ended> replay(const BisectCase& bisect, const Library& library) {
  Result<Ended> ended = run_command(
      fmt::format("{} LOCKSTEP_NCCL={} {} replay {} --lane nccl 2>&1",
                  bisect.setup.way.name == kPlayedWay ? "LOCKSTEP_NCCL_PLAYED=1" : "",
                  shell_word(library.file), shell_word(bisect.lockstep), shell_word(bisect.name)));
  if (!ended) return ended;
  const bool is_judged =
      ended->code == 0 || (ended->code >= kFirstFinding && ended->code <= kLastFinding);
  if (is_judged) return ended;
  return failed(invalid(fmt::format("{} could not judge the case over {} (exit code {}): {}",
                                    bisect.lockstep, library.name, ended->code, ended->last_line)));
}

Result<Bisection> bisect_file(const BisectCase& bisect_over) {
  const std::vector<Library>& libraries = bisect_over.setup.libraries;
  const Result<Ended> first = replay(bisect_over, libraries.front());
  if (!first) return failed(first.error());
  return bisect(libraries.size(), [&](std::size_t index) -> Result<Probed> {
    const Result<Ended> ended = replay(bisect_over, libraries[index]);
    if (!ended) return failed(ended.error());
    return Probed{ended->code != first->code,
                  fmt::format("exit code {} (with {}: {}): {}", ended->code, libraries.front().name,
                              first->code, ended->last_line)};
  });
}

template <class List>
bool is_among(const List& list, const std::string& name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

// The parts of the measurement that have this row.
std::optional<SideBySideSetup> only_row(const SideBySideSetup& all, const std::string& row) {
  SideBySideSetup setup = all;
  std::erase_if(setup.operations, [&row](const Operation& operation) {
    const bool is_of_sum = operation.kind == Operation::Kind::kAllReduce &&
                           (row == operation.enqueue_name() || row == operation.proxy_name());
    return operation.name() != row && !is_of_sum;
  });
  setup.has_lifecycle = is_among(kLifecycle, row);
  std::erase_if(setup.faults, [&row](const std::string& fault) { return fault != row; });
  const bool is_known = !setup.operations.empty() || setup.has_lifecycle || !setup.faults.empty() ||
                        is_among(kAlways, row);
  if (!is_known) return std::nullopt;
  if (!setup.faults.empty()) setup.rounds = 0;
  if (setup.faults.empty()) setup.fault_rounds = 0;
  return setup;
}

Probed judge_row(const ComparisonResults& results, const std::string& row, double limit) {
  const PairVerdict pair = compare(results, 0, 1, limit);
  std::vector<std::string> parts;
  Probed probed;
  for (const BitsDifference& each : pair.bits) {
    if (each.name != row) continue;
    probed.is_different = true;
    parts.push_back(
        fmt::format("bits of {} of {} elements differ", each.differences, each.elements));
  }
  for (const TimeComparison& time : pair.times) {
    if (time.name != row && time.name != "told of " + row) continue;
    const bool is_changed = time.change == Change::kSlower || time.change == Change::kFaster ||
                            time.has_base != time.has_other;
    probed.is_different = probed.is_different || is_changed;
    parts.push_back(fmt::format("time {} ({})", ratio_text(time), change_text(time.change)));
  }
  for (const std::string& note : pair.notes) {
    if (note.find(row) == std::string::npos) continue;
    probed.is_different = true;
    parts.push_back(note);
  }
  probed.what = parts.empty() ? "no difference" : fmt::format("{}", fmt::join(parts, "; "));
  return probed;
}

Result<Bisection> bisect_row(const BisectCase& bisect_over) {
  const SideBySideSetup& all = bisect_over.setup;
  const std::optional<SideBySideSetup> row = only_row(all, bisect_over.name);
  if (!row) {
    std::vector<std::string> known;
    for (const Operation& operation : all.operations) known.push_back(operation.name());
    known.insert(known.end(), std::begin(kAlways), std::end(kAlways));
    known.insert(known.end(), std::begin(kLifecycle), std::end(kLifecycle));
    known.insert(known.end(), std::begin(kFaults), std::end(kFaults));
    return failed(invalid(fmt::format("--bisect: there is no case file '{}', nor is that one of {}",
                                      bisect_over.name, fmt::join(known, ", "))));
  }
  return bisect(all.libraries.size(), [&](std::size_t index) -> Result<Probed> {
    SideBySideSetup pair = *row;
    pair.libraries = {all.libraries.front(), all.libraries[index]};
    const Result<ComparisonResults> results = run_side_by_side(pair);
    if (!results) return failed(results.error());
    return judge_row(*results, bisect_over.name, bisect_over.limit);
  });
}

}  // namespace

Result<Bisection> bisect_case(const BisectCase& bisect) {
  std::error_code error;
  return std::filesystem::is_regular_file(bisect.name, error) ? bisect_file(bisect)
                                                              : bisect_row(bisect);
}

std::string to_text(const BisectCase& bisect, const Bisection& found) {
  const std::vector<Library>& libraries = bisect.setup.libraries;
  std::string out;
  for (const auto& [index, probed] : found.steps)
    out += fmt::format("{} and {}: {}: {}\n", libraries.front().name, libraries[index].name,
                       probed.is_different ? "differ" : "agree", probed.what);
  return out + fmt::format("{}: {} is the first of {} libraries that differs from {}\n",
                           bisect.name, libraries[found.first].name, libraries.size(),
                           libraries.front().name);
}

}  // namespace lockstep::properties
