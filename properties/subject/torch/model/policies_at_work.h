// policies_at_work: which policies decide what PyTorch's reducer does with a program, as the
// reason why it differs from CONTRACT.md there. A pure function; any thread; nothing fails.
#pragma once

#include <string_view>
#include <vector>

#include "properties/case/torch_options.h"
#include "properties/subject/torch/model/policies.h"
#include "reference/program.h"

namespace lockstep::properties::torch_model {

// Returns the names of those of `policies` without which, one at a time, the model expects
// something else of a step up to the first one that it cannot tell: another outcome of a rank,
// other gradients, or other collectives.
std::vector<std::string_view> policies_at_work(const reference::Program& program,
                                               const TorchOptions& options,
                                               const Policies& policies);

}  // namespace lockstep::properties::torch_model
