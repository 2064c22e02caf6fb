#include "properties/run/exhaustive_search.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::properties {

namespace {

using simulation::Asleep;
using simulation::ChoicePoint;
using simulation::Explorer;
using simulation::Use;

Case with_default_schedule(Case value) {
  value.schedule = Schedule{};
  return value;
}

// Hashes what the oracles look at. Texts of errors may name fibers, so that their codes count.
class Fingerprint {
 public:
  void add(std::uint64_t value) {
    hash_ = (hash_ ^ value) * 0x9e37'79b9'7f4a'7c15U;
    hash_ ^= hash_ >> 29;
  }
  void add(const ObservedStep& step) {
    add(step.step);
    add(static_cast<std::uint64_t>(step.status.code()));
    add(static_cast<std::uint64_t>(step.failed_call));
    add(step.poisoned);
    add(step.launched);
    add(step.is_destroyed);
    for (const ObservedGradient& gradient : step.gradients)
      add(std::uint32_t{gradient.defined} << 2 | std::uint32_t{gradient.same_storage} << 1 |
          gradient.shares_with << 3);
    for (const std::uint64_t word : step.state) add(word);
    for (const ObservedCollective& each : step.collectives)
      add(static_cast<std::uint64_t>(each.sequence) << 8 | static_cast<std::uint64_t>(each.op));
    for (const std::uint32_t owner : step.hook_order) add(owner);
    for (const ObservedHook& hook : step.hooks) add(hook.parameter << 8 | hook.launched);
  }
  void add(const RankObservation& rank) {
    add(static_cast<std::uint64_t>(rank.construction.code()));
    add(static_cast<std::uint64_t>(rank.recovery.code()));
    add(static_cast<std::uint64_t>(rank.joining.code()));
    add(std::uint64_t{rank.finished} << 1 | std::uint64_t{rank.exited});
    for (const ObservedStep& step : rank.steps) add(step);
    for (const ObservedStep& step : rank.ending) add(step);
    for (const std::uint64_t word : rank.bits) add(word);
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

std::uint64_t fingerprint_of(const Verdict& verdict, const Observation& observation) {
  Fingerprint print;
  print.add(static_cast<std::uint64_t>(verdict.failing));
  print.add(static_cast<std::uint64_t>(observation.end));
  print.add(observation.recoveries.size());
  print.add(observation.elapsed_us);
  for (const RankObservation& rank : observation.ranks) print.add(rank);
  return print.value();
}

nlohmann::json to_json(const std::vector<Use>& uses) {
  nlohmann::json out = nlohmann::json::array();
  for (const Use& use : uses) {
    out.push_back(use.object);
    out.push_back(static_cast<int>(use.access));
  }
  return out;
}

std::vector<Use> uses_from(const nlohmann::json& json) {
  std::vector<Use> out;
  for (std::size_t i = 0; i + 1 < json.size(); i += 2)
    out.push_back(
        {json[i].get<std::uint64_t>(), static_cast<simulation::Access>(json[i + 1].get<int>())});
  return out;
}

}  // namespace

ExhaustiveSearch::ExhaustiveSearch(Case value, const Subject& subject)
    : value_(with_default_schedule(std::move(value))), runner_(LaneKind::kSim, subject) {}

std::string ExhaustiveSearch::refuse(const Case& value) {
  if (value.program.options.transport != reference::Transport::kHost)
    return "its parameters are on a GPU, and the search does not know which steps on streams are "
           "independent: use the transport of the host";
  if (value.switched.option != SwitchedOption::kNone)
    return "it runs twice, with an option switched: remove \"switched\" from the file";
  if (value.faults.faults.size() > 1) return "it has more than one fault: leave one";
  for (const faults::Fault& fault : value.faults.faults) {
    if (fault.kind == faults::Kind::kRankPause)
      return "a pause of a rank takes threads from those that can run, which the search does not "
             "support: use another fault";
    if (faults::is_payload(fault.kind))
      return "the exchanges that a fault of payloads counts are not known to the search: use "
             "another fault";
  }
  return {};
}

double ExhaustiveSearch::estimate(int probes) {
  double sum = 0;
  for (int i = 0; i < probes; ++i) {
    explorer_.begin_probe(static_cast<std::uint64_t>(i) + 1);
    (void)runner_.run(value_);
    sum += explorer_.end_probe();
  }
  return sum / std::max(probes, 1);
}

Verdict ExhaustiveSearch::run() {
  explorer_.begin_execution();
  Verdict verdict = runner_.run(value_);
  const std::uint64_t number = explorer_.counts().executions;
  const bool is_checked = verdict.ok() && !explorer_.was_pruned() && number % kReorderedEvery == 0;
  if (is_checked) {
    const std::uint64_t before = fingerprint_of(verdict, runner_.observation());
    explorer_.begin_reordered(number + 1);
    verdict = runner_.run(value_);
    const bool is_same = before == fingerprint_of(verdict, runner_.observation());
    if (explorer_.end_reordered() && !is_same)
      explorer_.note_anomaly("another order of independent steps had another result");
  }
  is_over_ = !explorer_.end_execution();
  return verdict;
}

void ExhaustiveSearch::restore(simulation::Explorer::State state) {
  is_over_ = state.is_over;
  explorer_.restore(std::move(state));
}

std::string to_log_line(const Explorer::State& state) {
  nlohmann::json stack = nlohmann::json::array();
  for (const ChoicePoint& point : state.stack) {
    nlohmann::json asleep = nlohmann::json::array();
    for (const Asleep& each : point.asleep) asleep.push_back({each.fiber, to_json(each.uses)});
    stack.push_back({point.is_waiter, point.chosen, point.enabled, point.backtrack, point.done,
                     asleep, to_json(point.chosen_uses)});
  }
  const simulation::ExplorerCounts& counts = state.counts;
  return nlohmann::json{{"counts",
                         {counts.executions, counts.pruned, counts.choices, counts.depth,
                          counts.steps, counts.reordered, counts.anomalies}},
                        {"over", state.is_over},
                        {"stack", stack}}
             .dump() +
         "\n";
}

Result<Explorer::State> state_from_log_line(const std::string& line) {
  try {
    const nlohmann::json json = nlohmann::json::parse(line);
    Explorer::State state;
    const nlohmann::json& counts = json.at("counts");
    state.counts = {counts.at(0), counts.at(1), counts.at(2), counts.at(3),
                    counts.at(4), counts.at(5), counts.at(6)};
    state.is_over = json.at("over");
    for (const nlohmann::json& each : json.at("stack")) {
      ChoicePoint point;
      point.is_waiter = each.at(0);
      point.chosen = each.at(1);
      point.enabled = each.at(2);
      point.backtrack = each.at(3);
      point.done = each.at(4);
      for (const nlohmann::json& asleep : each.at(5))
        point.asleep.push_back({asleep.at(0).get<std::uint32_t>(), uses_from(asleep.at(1))});
      point.chosen_uses = uses_from(each.at(6));
      state.stack.push_back(std::move(point));
    }
    return state;
  } catch (const nlohmann::json::exception& error) {
    return failed(Status(Code::kInvalidArgument, error.what()));
  }
}

}  // namespace lockstep::properties
