// Outcome: the result of running one case, small enough to send from the process that ran it to the
// one that reports it. Plain data; it converts to and from JSON, for pipes between processes of one
// build.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "properties/observe/observation.h"
#include "properties/oracle/explain_gradients.h"
#include "properties/oracle/verdict.h"

namespace lockstep::properties {

// An event of one rank, for a picture of the run.
struct TraceEvent {
  std::uint32_t rank = 0;
  std::uint32_t step = 0;
  std::string name;
  std::uint64_t begin_us = 0;
  std::uint64_t end_us = 0;
  std::int64_t sequence = kNone;  // for a collective: the same number on all ranks
  std::uint32_t generation = 0;   // of its group; sequence numbers restart in each generation
  std::string hooks = {};  // of a step that succeeded: the parameters in the order of their hooks
  // A hook of the step. These are there where the run took no time on its lane's clock, as in the
  // simulator without latency: then times count the events of a rank, a microsecond each.
  bool is_hook = false;
};

// An error that a call of the subject returned.
struct RankError {
  std::uint32_t rank = 0;
  std::int64_t step = kNone;  // kNone: the call was construction, reset or end_join, not a step
  std::string text;           // one line
  std::uint64_t took_us = 0;  // how long the step ran; 0 where it is no step
};

struct Outcome {
  Verdict verdict;
  std::uint64_t trace_hash = 0;
  std::uint64_t choices = 0;
  std::uint32_t preemptions = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> deviations;
  std::array<std::uint64_t, faults::kKinds> fired{};
  PlantedBug planted;
  std::vector<RankError> errors;          // rank by rank, with the steps in order
  std::vector<TraceEvent> events;         // only on request
  std::vector<GradientRecord> gradients;  // only on request
  // The joined flight records of the ranks; only for a failure, and only on request.
  std::string diagnosis;
};

Outcome outcome_of(const Verdict& verdict, const Observation& observation,
                   bool with_events = false);

// The verdict in one line: the trace of a case that came out right, or what failed and the oracle
// that saw it.
std::string verdict_line(const Outcome& outcome);

std::string to_json(const Outcome& outcome);
Result<Outcome> outcome_from_json(const std::string& text);

}  // namespace lockstep::properties
