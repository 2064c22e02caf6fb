#include "properties/oracle/fault_reach.h"

#include <algorithm>

#include "properties/case/hook_error.h"
#include "reference/outcome.h"

namespace lockstep::properties {

namespace {

template <class Is>
std::vector<faults::Fault> fired_faults(const Case& c, const Observation& observation, Is is) {
  const auto steps = static_cast<std::uint32_t>(std::max<std::size_t>(c.program.steps.size(), 1));
  std::vector<faults::Fault> fired;
  for (const faults::Fault& fault : c.faults.faults) {
    const bool has_fired = observation.fired.counts[static_cast<std::size_t>(fault.kind)] > 0;
    if (!has_fired || !is(fault.kind)) continue;
    fired.push_back(fault);
    fired.back().step %= steps;
    fired.back().rank %= c.program.world;
  }
  return fired;
}

}  // namespace

std::vector<faults::Fault> fatal_faults(const Case& c, const Observation& observation) {
  return fired_faults(c, observation, [](faults::Kind kind) { return !faults::is_benign(kind); });
}

std::vector<faults::Fault> broken_stores(const Case& c, const Observation& observation) {
  return fired_faults(c, observation, [](faults::Kind kind) {
    return kind == faults::Kind::kStoreError || kind == faults::Kind::kStoreTorn;
  });
}

bool has_words_of_call(const Case& c, const Failure& failure) {
  const auto says = [&](const char* words) {
    return failure.detail.find(words) != std::string::npos;
  };
  const bool is_nccl = c.program.options.transport == reference::Transport::kNccl;
  return says(faults::kCallErrorText) && (!is_nccl || says(faults::kCallErrorResult));
}

bool aborts_reducers(const faults::Fault& fault, std::size_t rank) {
  return fault.kind == faults::Kind::kUserAbort && fault.rank == rank &&
         faults::abort_call(fault) == faults::AbortCall::kReducers;
}

bool outlives(const Observation& observation, const faults::Fault& fault, std::uint32_t step) {
  if (fault.step > step) return false;
  // An attempt that failed by something else may have come before the abort.
  const std::vector<FailedCall>& attempts = observation.ranks[fault.rank].failed_joins;
  const bool is_repeated =
      fault.in_reset && std::any_of(attempts.begin(), attempts.end(), [&](const auto& attempt) {
        return attempt.step == fault.step && attempt.error.find(kAbortText) != std::string::npos;
      });
  if (is_repeated) return false;
  const auto& recoveries = observation.recoveries;
  return std::none_of(recoveries.begin(), recoveries.end(), [&](const auto& recovery) {
    return fault.step < recovery.before_step && recovery.before_step <= step;
  });
}

bool has_aborted_reducers(const Case& c, const Observation& observation, std::size_t rank,
                          std::uint32_t step) {
  const std::vector<faults::Fault> faults = fatal_faults(c, observation);
  return std::any_of(faults.begin(), faults.end(), [&](const faults::Fault& fault) {
    return aborts_reducers(fault, rank) && outlives(observation, fault, step);
  });
}

std::uint32_t receiver_of(const faults::Fault& fault, const Case& c) {
  const std::uint32_t world = c.program.world;
  const std::uint32_t sender = fault.rank % world;
  const std::uint32_t receiver = fault.peer % world;
  return receiver == sender ? (receiver + 1) % world : receiver;
}

bool reaches(const Case& c, const reference::Expectation& expectation,
             const Observation& observation, const faults::Fault& fault, std::size_t rank,
             std::uint32_t step) {
  if (!reference::are_peers(c.program, fault.rank, rank)) return false;
  std::uint32_t earliest = fault.step;
  while (earliest > 0 && !reference::holds_together(c.program, expectation, rank, --earliest)) {
  }
  if (step < earliest) return false;
  const std::uint32_t low = std::min(fault.step, step);
  const std::uint32_t high = std::max(fault.step, step);
  // A rank that shadows others (S2) has not begun the step of its faults.
  const bool shadows = !reference::has_input(c.program, fault.rank, fault.step);
  // The recovery from an exit comes after it, although the others repeat the step of the exit. Over
  // sockets the last bytes of a rank that exits may be lost, so that a peer fails a step earlier.
  const auto is_because_of = [&](const reference::Recovery& recovery) {
    const auto& survivors = recovery.survivors;
    const bool leaves =
        faults::may_end_process(fault.kind) || fault.kind == faults::Kind::kRankLeftOut;
    const bool is_replaced = fault.kind == faults::Kind::kRankReplaced;
    return is_replaced ||
           (leaves && std::find(survivors.begin(), survivors.end(), fault.rank) == survivors.end());
  };
  return std::none_of(observation.recoveries.begin(), observation.recoveries.end(),
                      [&](const reference::Recovery& r) {
                        const bool is_before =
                            r.before_step == fault.step && (shadows || is_because_of(r));
                        return low < r.before_step && r.before_step <= high && !is_before;
                      });
}

}  // namespace lockstep::properties
