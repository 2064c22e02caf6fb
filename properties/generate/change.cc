#include "properties/generate/change.h"

#include <algorithm>

#include "reference/model.h"

namespace lockstep::properties {

bool fails(const reference::Program& program) {
  const auto expected = reference::run(program, reference::Contract::lockstep());
  return std::any_of(expected.steps.begin(), expected.steps.end(),
                     [](const auto& step) { return step.any_error; });
}

void take_change(bool may_fail, reference::Program changed, reference::Program& program) {
  if (may_fail || !fails(changed) || fails(program)) program = std::move(changed);
}

}  // namespace lockstep::properties
