// ErrorContext: what the rules about errors have in common: the case, what the model expects, what
// was observed, the faults that can have made calls fail, and the rank that is judged.
//
// It refers to the case, the expectation and the observation, which outlive it. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/case/case.h"
#include "properties/observe/observation.h"
#include "properties/oracle/allowed_outcomes.h"
#include "properties/oracle/fault_reach.h"
#include "reference/outcome.h"

namespace lockstep::properties {

// Whether the fault makes a user's code fail: a node, or a communication hook.
bool is_of_user(const faults::Fault& fault);

// Whether the fault can make a user's code fail. Faults of the user do, and so may a fault that
// refuses memory in a step, because a node may have asked for that memory.
bool may_be_of_user(const faults::Fault& fault);

class ErrorContext {
 public:
  ErrorContext(const Case& c, const reference::Expectation& expectation,
               const Observation& observation);

  const Case& case_;
  const reference::Expectation& expectation_;
  const Observation& observation_;
  const std::vector<faults::Fault> fatal_;  // in the order in which they act
  const std::vector<faults::Fault> broken_stores_;
  std::size_t rank_ = 0;

  bool is_local(std::uint32_t step) const {
    return case_.program.steps[step].kind != reference::PassKind::kSynced;
  }
  // The backward calls of a rank in the step that belong to no pass (P1).
  Among local_calls(std::size_t rank, std::uint32_t step) const;
  bool joins() const { return case_.program.options.join != reference::Join::kNone; }
  bool is_over_nccl() const {
    return case_.program.options.transport == reference::Transport::kNccl;
  }
  bool has_one_reducer() const { return reference::reducer_count(case_.program) == 1; }
  int group_rank(std::uint32_t step, std::size_t original) const {
    return reference::rank_in_group(case_.program, observation_.recoveries, step, original);
  }
  bool is_peer(std::size_t rank, std::size_t other) const {
    return reference::are_peers(case_.program, rank, other);
  }
  bool holds_together(std::uint32_t step) const {
    return reference::holds_together(case_.program, expectation_, rank_, step);
  }
  reference::ModelledRun run() const {
    return {case_.program, expectation_, observation_.recoveries};
  }
  // Calls `take` with the expectation of each reducer of this rank.
  template <class Take>
  void each_share(const Take& take) const {
    for (std::uint32_t r = 0; r < reference::reducer_count(case_.program); ++r)
      take(reference::share_of(case_.program, expectation_, rank_, r));
  }

  // Whether some rank must raise an error of its own somewhere in the program.
  bool program_fails() const;
  // Whether the only fatal fault is a communication hook that fails with a code of its own.
  bool is_one_hook() const;
  // Whether the only failure is that a user of one rank aborts, and every report of it arrives.
  bool is_one_abort() const;
  // Whether the user of this rank may have aborted, at any time; or by the end of the step, the
  // groups or reducers of that step. A reset that an abort has ended is repeated, with new groups.
  bool may_have_aborted() const;
  bool may_have_aborted(std::uint32_t step) const;
  // Whether the store of this rank itself may have failed.
  bool has_no_store() const;
  // Whether the only fatal faults are payload faults.
  bool is_all_payload() const;
};

}  // namespace lockstep::properties
