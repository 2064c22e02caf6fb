// ErrorContext: what the rules about errors have in common: the case, what the model expects, what
// was observed, the faults that can have made calls fail, and the rank that is judged.
//
// It refers to the case, the expectation and the observation, which outlive it. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case/case.h"
#include "properties/observe/observation.h"
#include "properties/oracle/fault_reach.h"
#include "properties/oracle/ruling.h"
#include "reference/expectation.h"

namespace lockstep::properties {

// Whether a rank raises this error by itself, and not because of a peer or the group.
bool is_own_error(Code code);

class ErrorContext {
 public:
  ErrorContext(const Case& c, const reference::Expectation& expectation,
               const Observation& observation);

  const Case& case_;
  const reference::Expectation& expectation_;
  const Observation& observation_;
  const std::vector<faults::Fault> fatal_;
  std::size_t rank_ = 0;

  Verdict wrong(const std::string& oracle, const std::string& what,
                Failing failing = Failing::kWrongError) const;
  Verdict wrong_step(const std::string& oracle, const ObservedStep& step, const std::string& what,
                     Failing failing = Failing::kWrongError) const;

  bool is_local(const ObservedStep& step) const {
    return case_.program.steps[step.step].kind != reference::PassKind::kSynced;
  }
  bool joins() const { return case_.program.options.join != reference::Join::kNone; }
  bool is_over_nccl() const {
    return case_.program.options.transport == reference::Transport::kNccl;
  }
  bool has_one_reducer() const { return reference::reducer_count(case_.program) == 1; }
  int group_rank(std::uint32_t step, std::size_t original) const {
    return properties::group_rank(case_.program, observation_, step, original);
  }
  bool is_peer(std::size_t rank, std::size_t other) const {
    return properties::is_peer(case_.program, rank, other);
  }
  bool holds_together(std::uint32_t step) const {
    return properties::holds_together(case_.program, expectation_, rank_, step);
  }
  // Calls `is` with the expectation of each reducer of this rank, until one call returns true.
  template <class Is>
  bool any_share(const Is& is) const {
    for (std::uint32_t r = 0; r < reference::reducer_count(case_.program); ++r)
      if (is(reference::share_of(case_.program, expectation_, rank_, r))) return true;
    return false;
  }

  // Whether some rank must raise an error of its own somewhere in the program.
  bool program_fails() const;
  // Whether a fault can have made this rank fail in this step.
  bool excused_by_fault(std::uint32_t step) const;
  // Whether two reducers of one group that share a backward may mismatch (F7).
  bool may_mismatch() const;
  // Whether the only fatal faults are payload faults.
  bool is_all_payload() const;
  // Whether the failure names a rank to examine, and whether it lacks one because NCCL does not say
  // which peer it has lost.
  bool has_rank(const Failure& failure) const;
  bool is_nameless(const Failure& failure) const;
};

}  // namespace lockstep::properties
