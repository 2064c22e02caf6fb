#include "properties/report/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "properties/report/join_flight_records.h"

namespace lockstep::properties {
namespace {

std::string name_of(const ObservedCollective& collective) {
  switch (collective.op) {
    case ObservedCollective::Op::kAllReduceBucket:
      return fmt::format("all_reduce bucket {}", collective.bucket);
    case ObservedCollective::Op::kAllReduceUsage:
      return "all_reduce usage map";
    case ObservedCollective::Op::kBroadcastOrder:
      return "broadcast order of buckets";
    case ObservedCollective::Op::kBroadcastBuffers:
      return "broadcast values and buffers";
    case ObservedCollective::Op::kAnnounce:
      return "all_reduce ranks that train";
    case ObservedCollective::Op::kGatherSparse:
      return fmt::format("all_gather rows of bucket {}", collective.bucket);
    case ObservedCollective::Op::kOther:
      break;
  }
  return "collective";
}

std::string hooks_of(const ObservedStep& step) {
  std::string out;
  for (const ObservedHook& hook : step.hooks)
    out += fmt::format("{}p{}", out.empty() ? "" : ", ", hook.parameter);
  return out;
}

void add_events(const Observation& observation, std::vector<TraceEvent>& events) {
  for (std::uint32_t rank = 0; rank < observation.ranks.size(); ++rank) {
    for (const ObservedStep& step : observation.ranks[rank].steps) {
      const auto begun = [&](const reference::Recovery& each) {
        return each.before_step <= step.step;
      };
      const auto generation = static_cast<std::uint32_t>(
          std::count_if(observation.recoveries.begin(), observation.recoveries.end(), begun));
      // The last step of a rank that hung has no end time.
      const std::uint64_t end_us =
          std::max(step.end_us, step.end_us == 0 ? observation.elapsed_us : std::uint64_t{0});
      const std::string outcome =
          step.status.ok() ? "" : std::string(": ") + lockstep::name_of(step.status.code());
      events.push_back({rank, step.step, fmt::format("step {}{}", step.step, outcome),
                        step.begin_us, std::max(step.begin_us, end_us), kNone, generation,
                        hooks_of(step)});
      for (const ObservedCollective& collective : step.collectives) {
        const bool ended = collective.completed_us >= collective.launched_us;
        events.push_back(
            {rank, step.step, name_of(collective) + (ended ? "" : ", not ended"),
             collective.launched_us,
             ended ? collective.completed_us : std::max(end_us, collective.launched_us),
             collective.sequence, generation});
      }
    }
  }
}

// Whether the run took no time on its lane's clock, as in the simulator without latency.
bool has_no_times(const std::vector<TraceEvent>& events) {
  return std::all_of(events.begin(), events.end(), [&](const TraceEvent& each) {
    return each.begin_us == events.front().begin_us && each.end_us == each.begin_us;
  });
}

// Gives the events of a run without times those of a clock that counts events, a microsecond each:
// on a rank, hooks and the launches of collectives follow one another, and a collective ends when
// all of its ranks have launched it.
class EventClock {
 public:
  explicit EventClock(const Observation& observation) : observation_(observation) {
    now_.resize(observation.ranks.size());
  }

  std::vector<TraceEvent> events() {
    std::vector<TraceEvent> plain;
    add_events(observation_, plain);
    std::size_t steps = 0;
    for (const RankObservation& rank : observation_.ranks)
      steps = std::max(steps, rank.steps.size());
    for (std::size_t s = 0; s < steps; ++s) add_step(s, plain);
    return std::move(events_);
  }

 private:
  struct Open {
    std::size_t step_event;
    std::vector<std::size_t> collectives;
  };

  void add_step(std::size_t s, const std::vector<TraceEvent>& plain) {
    std::vector<std::optional<Open>> open(observation_.ranks.size());
    std::map<std::pair<std::uint32_t, std::int64_t>, std::uint64_t> last_launch;
    for (std::uint32_t rank = 0; rank < observation_.ranks.size(); ++rank)
      if (s < observation_.ranks[rank].steps.size())
        open[rank] = begin_step(rank, observation_.ranks[rank].steps[s], plain);
    for (const auto& each : open)
      for (const std::size_t at : each ? each->collectives : std::vector<std::size_t>()) {
        auto& last = last_launch[{events_[at].generation, events_[at].sequence}];
        last = std::max(last, events_[at].begin_us);
      }
    for (std::uint32_t rank = 0; rank < open.size(); ++rank) {
      if (!open[rank]) continue;
      std::uint64_t& now = now_[rank];
      for (const std::size_t at : open[rank]->collectives) {
        TraceEvent& event = events_[at];
        event.end_us = last_launch[{event.generation, event.sequence}] + 1;
        now = std::max(now, event.end_us);
      }
      events_[open[rank]->step_event].end_us = ++now;
    }
  }

  // Adds the step, its hooks and its collectives; what ends later has no end yet.
  Open begin_step(std::uint32_t rank, const ObservedStep& step,
                  const std::vector<TraceEvent>& plain) {
    std::uint64_t& now = now_[rank];
    Open open{events_.size(), {}};
    std::vector<TraceEvent> collectives;
    for (const TraceEvent& each : plain) {
      if (each.rank != rank || each.step != step.step) continue;
      if (each.sequence != kNone) {
        collectives.push_back(each);
        continue;
      }
      events_.push_back(each);
      events_.back().begin_us = now++;
    }
    std::size_t launched = 0;
    const auto launch_until = [&](std::size_t count) {
      for (; launched < std::min(count, collectives.size()); ++launched) {
        open.collectives.push_back(events_.size());
        events_.push_back(collectives[launched]);
        events_.back().begin_us = now++;
      }
    };
    for (const ObservedHook& hook : step.hooks) {
      TraceEvent event = events_[open.step_event];
      event.name = fmt::format("hook of p{}", hook.parameter);
      event.hooks.clear();
      event.is_hook = true;
      event.begin_us = now++;
      event.end_us = now;
      events_.push_back(std::move(event));
      launch_until(hook.launched);
    }
    launch_until(collectives.size());
    return open;
  }

  const Observation& observation_;
  std::vector<std::uint64_t> now_;  // by rank
  std::vector<TraceEvent> events_;
};

// Puts any text into one line.
std::string one_line(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at))
    text.replace(at, 1, at + 1 == text.size() ? "" : "; ");
  return text;
}

void add_errors(const Observation& observation, std::vector<RankError>& errors) {
  for (std::uint32_t rank = 0; rank < observation.ranks.size(); ++rank) {
    const auto add = [&errors, rank](std::int64_t step, const char* call, const Status& status) {
      if (!status.ok()) errors.push_back({rank, step, call + one_line(status.to_string())});
    };
    const RankObservation& seen = observation.ranks[rank];
    add(kNone, "construction: ", seen.construction);
    for (const ObservedStep& step : seen.steps) {
      add(step.step, "", step.status);
      if (!step.status.ok()) errors.back().took_us = step.end_us - step.begin_us;
    }
    add(kNone, "reset: ", seen.recovery);
    add(kNone, "end_join: ", seen.joining);
  }
}

}  // namespace

std::string verdict_line(const Outcome& outcome) {
  const bool has_trace = outcome.trace_hash != 0;  // the simulator alone has one
  if (outcome.verdict.ok())
    return has_trace ? fmt::format("ok (trace {:016x})", outcome.trace_hash) : "ok";
  return fmt::format("{} (oracle: {})", name_of(outcome.verdict.failing), outcome.verdict.oracle);
}

Outcome outcome_of(const Verdict& verdict, const Observation& observation, bool with_events) {
  Outcome outcome;
  outcome.verdict = verdict;
  outcome.trace_hash = observation.trace_hash;
  outcome.choices = observation.choices;
  outcome.preemptions = observation.preemptions;
  outcome.deviations = observation.deviations;
  outcome.fired = observation.fired.counts;
  outcome.planted = observation.planted;
  add_errors(observation, outcome.errors);
  if (with_events) add_events(observation, outcome.events);
  if (!outcome.events.empty() && has_no_times(outcome.events))
    outcome.events = EventClock(observation).events();
  if (!verdict.ok()) outcome.diagnosis = join_flight_records(observation);
  return outcome;
}

std::string to_json(const Outcome& outcome) {
  nlohmann::json json = {{"failing", static_cast<int>(outcome.verdict.failing)},
                         {"oracle", outcome.verdict.oracle},
                         {"message", outcome.verdict.message},
                         {"might_succeed", outcome.verdict.might_succeed},
                         {"trace_hash", outcome.trace_hash},
                         {"choices", outcome.choices},
                         {"preemptions", outcome.preemptions},
                         {"deviations", outcome.deviations},
                         {"fired", outcome.fired},
                         {"planted", {outcome.planted.reached, outcome.planted.triggered}},
                         {"diagnosis", outcome.diagnosis}};
  for (const RankError& error : outcome.errors)
    json["errors"].push_back({error.rank, error.step, error.text, error.took_us});
  for (const TraceEvent& event : outcome.events)
    json["events"].push_back({event.rank, event.step, event.name, event.begin_us, event.end_us,
                              event.sequence, event.generation, event.hooks, event.is_hook});
  for (const GradientRecord& each : outcome.gradients)
    json["gradients"].push_back(
        {each.step, each.parameter, each.hash, each.made_by, each.tells_order, each.is_average});
  // A message may quote bytes of a subject, and invalid UTF-8 must not prevent the report.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<Outcome> outcome_from_json(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    Outcome outcome;
    outcome.verdict.failing = static_cast<Failing>(json.at("failing").get<int>());
    outcome.verdict.oracle = json.at("oracle");
    outcome.verdict.message = json.at("message");
    outcome.verdict.might_succeed = json.at("might_succeed");
    outcome.trace_hash = json.at("trace_hash");
    outcome.choices = json.at("choices");
    outcome.preemptions = json.at("preemptions");
    outcome.deviations = json.at("deviations");
    outcome.fired = json.at("fired");
    outcome.planted = {json.at("planted").at(0), json.at("planted").at(1)};
    outcome.diagnosis = json.at("diagnosis");
    for (const auto& error : json.value("errors", nlohmann::json::array()))
      outcome.errors.push_back({error.at(0), error.at(1), error.at(2), error.at(3)});
    for (const auto& event : json.value("events", nlohmann::json::array()))
      outcome.events.push_back({event.at(0), event.at(1), event.at(2), event.at(3), event.at(4),
                                event.at(5), event.at(6), event.at(7), event.at(8)});
    for (const auto& each : json.value("gradients", nlohmann::json::array()))
      outcome.gradients.push_back(
          {each.at(0), each.at(1), each.at(2), each.at(3), each.at(4), each.at(5)});
    return outcome;
  } catch (const nlohmann::json::exception& error) {
    return failed(
        Status(Code::kInternal, std::string("an outcome could not be read: ") + error.what()));
  }
}

}  // namespace lockstep::properties
