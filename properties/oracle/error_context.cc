#include "properties/oracle/error_context.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::properties {

bool is_own_error(Code code) {
  return code == Code::kIncomplete || code == Code::kReadyTwice || code == Code::kSecondBackward ||
         code == Code::kUsageChanged || code == Code::kRequiresGrad ||
         code == Code::kUnevenInputs || code == Code::kUserFailure;
}

ErrorContext::ErrorContext(const Case& c, const reference::Expectation& expectation,
                           const Observation& observation)
    : case_(c),
      expectation_(expectation),
      observation_(observation),
      fatal_(fatal_faults(c, observation)) {}

Verdict ErrorContext::wrong(const std::string& oracle, const std::string& what,
                            Failing failing) const {
  return {failing, oracle, fmt::format("rank {}: {}", rank_, what)};
}

Verdict ErrorContext::wrong_step(const std::string& oracle, const ObservedStep& step,
                                 const std::string& what, Failing failing) const {
  return wrong(oracle, fmt::format("step {}: {}", step.step, what), failing);
}

bool ErrorContext::program_fails() const {
  return std::any_of(expectation_.steps.begin(), expectation_.steps.end(),
                     [](const auto& step) { return step.any_error; });
}

bool ErrorContext::excused_by_fault(std::uint32_t step) const {
  return std::any_of(fatal_.begin(), fatal_.end(), [&](const auto& fault) {
    return reaches(case_, expectation_, observation_, fault, rank_, step);
  });
}

// Whether two reducers of one group that share a backward may mismatch (F7). If they reduce after
// backward, they run one after the other, unless one of them must wait for a further backward, or
// fails.
bool ErrorContext::may_mismatch() const {
  const reference::Program& program = case_.program;
  if (reference::reducer_count(program) == 1 || program.options.group_each) return false;
  if (program.options.launch == reference::Launch::kOverlapped || program_fails()) return true;
  return std::any_of(program.steps.begin(), program.steps.end(), [](const auto& step) {
    return std::any_of(step.variants.begin(), step.variants.end(),
                       [](const auto& pass) { return pass.backwards.size() > 1; });
  });
}

// Whether the only fatal faults are payload faults.
bool ErrorContext::is_all_payload() const {
  return !fatal_.empty() && std::all_of(fatal_.begin(), fatal_.end(), [](const auto& fault) {
    return faults::is_payload(fault.kind);
  });
}

bool ErrorContext::is_nameless(const Failure& failure) const {
  return is_over_nccl() && failure.code == Code::kPeerLost && failure.rank == kNone &&
         failure.suspect == kNone && case_.program.world > 2;
}

bool ErrorContext::has_rank(const Failure& failure) const {
  return failure.rank != kNone || failure.suspect != kNone || is_nameless(failure);
}

}  // namespace lockstep::properties
