#include "properties/oracle/error_context.h"

#include <algorithm>
#include <utility>

#include "reference/model/engine.h"

namespace lockstep::properties {
namespace {

// In the order in which they act: one in a reset comes before the step with which that goes on.
std::vector<faults::Fault> in_order(std::vector<faults::Fault> faults) {
  std::stable_sort(faults.begin(), faults.end(), [](const auto& one, const auto& other) {
    return std::pair(one.step, !one.in_reset) < std::pair(other.step, !other.in_reset);
  });
  return faults;
}

}  // namespace

bool is_of_user(const faults::Fault& fault) {
  return fault.kind == faults::Kind::kNodeThrows || fault.kind == faults::Kind::kHookFails;
}

bool may_be_of_user(const faults::Fault& fault) {
  return is_of_user(fault) || (fault.kind == faults::Kind::kMemoryRefused && !fault.in_reset);
}

ErrorContext::ErrorContext(const Case& c, const reference::Expectation& expectation,
                           const Observation& observation)
    : case_(c),
      expectation_(expectation),
      observation_(observation),
      fatal_(in_order(fatal_faults(c, observation))),
      broken_stores_(broken_stores(c, observation)) {}

Among ErrorContext::local_calls(std::size_t rank, std::uint32_t step) const {
  const reference::Step& record = case_.program.steps[step];
  const reference::RankPass& pass = record.variants[rank % record.variants.size()];
  Among calls = Among::none();
  for (std::uint32_t call = 0; call < reference::call_count(pass); ++call)
    if (is_local(step) || !reference::is_synced_call(pass, call)) calls.add(call);
  return calls;
}

bool ErrorContext::program_fails() const {
  return std::any_of(expectation_.steps.begin(), expectation_.steps.end(),
                     [](const auto& step) { return step.any_error; });
}

bool ErrorContext::is_one_hook() const {
  return fatal_.size() == 1 && fatal_[0].kind == faults::Kind::kHookFails && !program_fails() &&
         has_one_reducer();
}

bool ErrorContext::is_one_abort() const {
  return fatal_.size() == 1 && fatal_[0].kind == faults::Kind::kUserAbort && !program_fails() &&
         has_one_reducer() && broken_stores_.empty();
}

bool ErrorContext::may_have_aborted() const {
  return std::any_of(fatal_.begin(), fatal_.end(), [&](const auto& fault) {
    return fault.kind == faults::Kind::kUserAbort && fault.rank == rank_;
  });
}

bool ErrorContext::may_have_aborted(std::uint32_t step) const {
  return std::any_of(fatal_.begin(), fatal_.end(), [&](const auto& fault) {
    return fault.kind == faults::Kind::kUserAbort && fault.rank == rank_ &&
           outlives(observation_, fault, step);
  });
}

bool ErrorContext::has_no_store() const {
  return std::any_of(broken_stores_.begin(), broken_stores_.end(), [&](const auto& fault) {
    return fault.rank == rank_ && fault.kind == faults::Kind::kStoreError;
  });
}

bool ErrorContext::is_all_payload() const {
  return !fatal_.empty() && std::all_of(fatal_.begin(), fatal_.end(), [](const auto& fault) {
    return faults::is_payload(fault.kind);
  });
}

}  // namespace lockstep::properties
