#include "properties/report/state_coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::properties {
namespace {

using faults::Kind;
using faults::ReducerState;

constexpr std::size_t kNamedCells = 4;  // in the summary

struct Impossible {
  FaultKinds kinds;
  std::vector<ReducerState> states;
  const char* reason;
};

const Impossible kImpossible[] = {
    {FaultKinds().with(Kind::kNodeThrows).with(Kind::kSlowThread),
     {ReducerState::kRebuilding, ReducerState::kResetting},
     "nodes, and the calls of a hook that count as nodes, run in a pass or a local backward"},
    {FaultKinds().with(Kind::kHookFails),
     {ReducerState::kIdle, ReducerState::kRebuilding, ReducerState::kResetting},
     "a communication hook is called in a pass, and in those that a rank without inputs joins"},
    {FaultKinds().with(Kind::kConnectError),
     {ReducerState::kIdle, ReducerState::kArmed, ReducerState::kReducing, ReducerState::kLaunched,
      ReducerState::kFinalizing, ReducerState::kRebuilding, ReducerState::kJoining},
     "a group connects when the ranks reset"},
};

template <class Visit>
void each_cell(FaultKinds kinds, const Visit& visit) {
  for (int k = 0; k < faults::kKinds; ++k)
    for (int s = 0; s < faults::kReducerStates && kinds.has(static_cast<Kind>(k)); ++s)
      visit(static_cast<Kind>(k), static_cast<ReducerState>(s));
}

std::uint64_t count_of(const faults::StateCounts& counts, Kind kind, ReducerState state) {
  return counts[static_cast<std::size_t>(kind)][static_cast<std::size_t>(state)];
}

std::string name_of_cell(Kind kind, ReducerState state) {
  return fmt::format("{} while {}", faults::name_of(kind), faults::name_of(state));
}

}  // namespace

std::string_view why_impossible(Kind kind, ReducerState state) {
  for (const Impossible& each : kImpossible)
    if (each.kinds.has(kind) &&
        std::find(each.states.begin(), each.states.end(), state) != each.states.end())
      return each.reason;
  return {};
}

Verdict judge_states(Verdict verdict, const faults::StateCounts& counts) {
  if (!verdict.ok()) return verdict;
  each_cell(FaultKinds::all(), [&](Kind kind, ReducerState state) {
    const std::string_view why = why_impossible(kind, state);
    if (why.empty() || count_of(counts, kind, state) == 0) return;
    verdict = {Failing::kInconclusive, "states",
               fmt::format("a fault acted in a state that is declared impossible for it: {} ({})",
                           name_of_cell(kind, state), why)};
  });
  return verdict;
}

std::vector<std::string> empty_cells(const StateCoverage& coverage) {
  std::vector<std::string> cells;
  each_cell(coverage.kinds, [&](Kind kind, ReducerState state) {
    if (why_impossible(kind, state).empty() && count_of(coverage.counts, kind, state) == 0)
      cells.push_back(name_of_cell(kind, state));
  });
  return cells;
}

std::string states_line(const StateCoverage& coverage) {
  if (coverage.empty()) return {};
  std::size_t possible = 0;
  each_cell(coverage.kinds, [&](Kind kind, ReducerState state) {
    if (why_impossible(kind, state).empty()) ++possible;
  });
  std::vector<std::string> cells = empty_cells(coverage);
  if (cells.empty())
    return fmt::format("state x fault: all {} cells that can occur were seen\n", possible);
  const std::size_t empty = cells.size();
  cells.resize(std::min(empty, kNamedCells));
  return fmt::format("state x fault: {} of {} cells that can occur were not seen: {}{}\n", empty,
                     possible, fmt::join(cells, ", "),
                     empty > kNamedCells ? fmt::format(" and {} more", empty - kNamedCells) : "");
}

std::vector<std::string> state_headers() {
  std::vector<std::string> headers = {"fault"};
  for (int s = 0; s < faults::kReducerStates; ++s)
    headers.emplace_back(faults::name_of(static_cast<ReducerState>(s)));
  return headers;
}

std::vector<std::vector<std::string>> state_rows(const StateCoverage& coverage) {
  std::vector<std::vector<std::string>> rows;
  each_cell(coverage.kinds, [&](Kind kind, ReducerState state) {
    if (state == ReducerState::kIdle) rows.push_back({faults::name_of(kind)});
    const std::uint64_t count = count_of(coverage.counts, kind, state);
    const bool is_possible = why_impossible(kind, state).empty();
    rows.back().push_back(count > 0 ? fmt::format("{}", count) : is_possible ? "~0" : "-");
  });
  return rows;
}

std::string states_block(const StateCoverage& coverage) {
  if (coverage.empty()) return {};
  std::string out = "what the reducer was doing when a fault acted on its rank:\n";
  const auto add = [&out](const std::vector<std::string>& cells) {
    out += fmt::format("  {:18}", cells.front());
    for (std::size_t i = 1; i < cells.size(); ++i)
      out += fmt::format("{:>12}", cells[i] == "~0" ? "0" : cells[i]);
    out += "\n";
  };
  add(state_headers());
  for (const std::vector<std::string>& row : state_rows(coverage)) add(row);
  std::map<std::string_view, std::vector<std::string>> reasons;
  each_cell(coverage.kinds, [&](Kind kind, ReducerState state) {
    if (const std::string_view why = why_impossible(kind, state); !why.empty())
      reasons[why].push_back(name_of_cell(kind, state));
  });
  for (const auto& [why, cells] : reasons)
    out += fmt::format("  cannot occur: {} ({})\n", fmt::join(cells, ", "), why);
  return out;
}

}  // namespace lockstep::properties
