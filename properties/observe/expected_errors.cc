#include "properties/observe/expected_errors.h"

#include <algorithm>

namespace lockstep::properties {
namespace {

std::vector<bool> errors_of(const reference::Expectation& expectation) {
  std::vector<bool> errors;
  for (const auto& step : expectation.steps) errors.push_back(step.any_error);
  return errors;
}

bool is_same(const reference::Recovery& a, const reference::Recovery& b) {
  return a.before_step == b.before_step && a.survivors == b.survivors;
}

}  // namespace

std::vector<bool> ExpectedErrors::after(const std::vector<reference::Recovery>& recoveries) {
  const bool counts_anew = program_.options.mode == reference::Mode::kStatic ||
                           program_.options.join != reference::Join::kNone;
  if (recoveries.empty() || !counts_anew) return errors_of(expectation_);
  std::lock_guard lock(mutex_);
  for (const Known& known : known_)
    if (std::equal(known.recoveries.begin(), known.recoveries.end(), recoveries.begin(),
                   recoveries.end(), is_same))
      return known.errors;
  const auto expected = reference::run(program_, reference::Contract::lockstep(), recoveries, {});
  known_.push_back({recoveries, errors_of(expected)});
  return known_.back().errors;
}

}  // namespace lockstep::properties
