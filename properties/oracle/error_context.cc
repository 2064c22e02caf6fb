#include "properties/oracle/error_context.h"

#include <algorithm>

namespace lockstep::properties {

bool is_of_user(const faults::Fault& fault) {
  return fault.kind == faults::Kind::kNodeThrows || fault.kind == faults::Kind::kHookFails;
}

ErrorContext::ErrorContext(const Case& c, const reference::Expectation& expectation,
                           const Observation& observation)
    : case_(c),
      expectation_(expectation),
      observation_(observation),
      fatal_(fatal_faults(c, observation)) {}

bool ErrorContext::program_fails() const {
  return std::any_of(expectation_.steps.begin(), expectation_.steps.end(),
                     [](const auto& step) { return step.any_error; });
}

bool ErrorContext::is_one_hook() const {
  return fatal_.size() == 1 && fatal_[0].kind == faults::Kind::kHookFails && !program_fails() &&
         has_one_reducer();
}

bool ErrorContext::is_all_payload() const {
  return !fatal_.empty() && std::all_of(fatal_.begin(), fatal_.end(), [](const auto& fault) {
    return faults::is_payload(fault.kind);
  });
}

}  // namespace lockstep::properties
