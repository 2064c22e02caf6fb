#include "properties/oracle/fault_reach.h"

#include <algorithm>

namespace lockstep::properties {

std::vector<faults::Fault> fatal_faults(const Case& c, const Observation& observation) {
  const auto steps = static_cast<std::uint32_t>(std::max<std::size_t>(c.program.steps.size(), 1));
  std::vector<faults::Fault> fatal;
  for (const faults::Fault& fault : c.faults.faults) {
    const bool has_fired = observation.fired.counts[static_cast<std::size_t>(fault.kind)] > 0;
    if (!has_fired || faults::is_benign(fault.kind)) continue;
    fatal.push_back(fault);
    fatal.back().step %= steps;
    fatal.back().rank %= c.program.world;
  }
  return fatal;
}

bool holds_together(const reference::ExpectedStep& step, std::size_t first) {
  using Op = reference::ExpectedCollective::Op;
  const auto needs_all = [](const reference::ExpectedCollective& collective) {
    const bool is_broadcast =
        collective.op == Op::kBroadcastOrder || collective.op == Op::kBroadcastBuffers;
    return collective.count > 0 && !is_broadcast;
  };
  const std::size_t begin = std::min(first, step.collectives.size());
  return std::any_of(step.collectives.begin() + static_cast<std::ptrdiff_t>(begin),
                     step.collectives.end(), needs_all);
}

bool holds_together(const reference::Program& program, const reference::Expectation& expectation,
                    std::size_t rank, std::uint32_t step) {
  for (std::uint32_t r = 0; r < reference::reducer_count(program); ++r)
    if (holds_together(reference::share_of(program, expectation, rank, r).steps[step])) return true;
  return false;
}

std::uint32_t receiver_of(const faults::Fault& fault, const Case& c) {
  const std::uint32_t world = c.program.world;
  const std::uint32_t sender = fault.rank % world;
  const std::uint32_t receiver = fault.peer % world;
  return receiver == sender ? (receiver + 1) % world : receiver;
}

bool is_peer(const reference::Program& program, std::size_t rank, std::size_t other) {
  const std::uint32_t groups = reference::group_count(program);
  return rank % groups == other % groups;
}

bool reaches(const Case& c, const reference::Expectation& expectation,
             const Observation& observation, const faults::Fault& fault, std::size_t rank,
             std::uint32_t step) {
  if (!is_peer(c.program, fault.rank, rank)) return false;
  std::uint32_t earliest = fault.step;
  while (earliest > 0 && !holds_together(c.program, expectation, rank, --earliest)) {
  }
  if (step < earliest) return false;
  const std::uint32_t low = std::min(fault.step, step);
  const std::uint32_t high = std::max(fault.step, step);
  // A rank that shadows others (S2) has not begun the step of its faults.
  const bool shadows = !reference::has_input(c.program, fault.rank, fault.step);
  return std::none_of(observation.recoveries.begin(), observation.recoveries.end(),
                      [&](const auto& r) {
                        const bool is_before = shadows && r.before_step == fault.step;
                        return low < r.before_step && r.before_step <= high && !is_before;
                      });
}

int group_rank(const reference::Program& program, const Observation& observation,
               std::uint32_t step, std::size_t original) {
  int rank = static_cast<int>(original / reference::group_count(program));
  for (const reference::Recovery& recovery : observation.recoveries) {
    if (recovery.before_step > step) break;
    const auto& members = recovery.survivors;
    const auto here = std::find(members.begin(), members.end(), original);
    rank = here == members.end()
               ? kNone
               : static_cast<int>(std::count_if(members.begin(), here, [&](std::uint32_t other) {
                   return is_peer(program, other, original);
                 }));
  }
  return rank;
}

}  // namespace lockstep::properties
