// Finds ranks that end later than they must, in an observation over the simulated NCCL (F1, F8).
//
// Functions of the observation, to which they add what is wrong with a rank.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "properties/observe/observation.h"
#include "reducer/comm/nccl/nccl_process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using properties::Observation;

// A rank that fails by itself waits for no peer. It ends its communicator when it has reported
// why, and the step ends when nothing is in flight any more (F1): in less than the grace that a
// communicator has for what hangs.
inline void note_late_ends(Observation& observation) {
  const auto limit_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(NcclOptions().grace).count());
  for (properties::RankObservation& rank : observation.ranks) {
    for (const properties::ObservedStep& step : rank.steps) {
      if (step.status.ok() || !rank.wrong_answer.empty()) continue;
      const Failure& failure = step.status.failure();
      const bool is_own = failure.definite && failure.rank == failure.reported_by;
      if (!is_own || step.end_us - step.begin_us < limit_us) continue;
      rank.wrong_answer = fmt::format(
          "failed by itself in step {}, and the step ended only {} us after it had begun: {}",
          step.step, step.end_us - step.begin_us, step.status.to_string());
    }
  }
}

// Returns whether the line says that something of a group over NCCL goes on.
inline bool goes_on(std::string_view line) {
  constexpr std::string_view kGoesOn[] = {"ncclCommAbort did not return",
                                          "the GPU did not end what it was given",
                                          "a thread did not come back", "must not be used again"};
  return std::any_of(std::begin(kGoesOn), std::end(kGoesOn), [&](std::string_view words) {
    return line.find(words) != std::string_view::npos;
  });
}

// Where an abort ends what is in flight, no group that has failed says that something goes on
// (F8).
inline void note_late_aborts(Observation& observation) {
  for (properties::RankObservation& rank : observation.ranks) {
    for (const properties::ObservedStep& step : rank.steps) {
      if (step.status.ok() || !rank.wrong_answer.empty()) continue;
      for (const std::string& line : step.status.failure().later)
        if (goes_on(line))
          rank.wrong_answer =
              fmt::format("the group that failed in step {} says that something goes on: {}",
                          step.step, step.status.to_string());
    }
  }
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
