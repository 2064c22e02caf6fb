// The model of PyTorch's reducer, hook by hook, with the policies of policies.h. It keeps other
// state than the model of CONTRACT.md does: what a forward has armed, what is marked ready, which
// hooks came.
//
// It does what the reducer of 1.13.1 does, driven as the Python wrapper drives it: at every forward
// with gradients buckets are rebuilt if that is due, a synced forward arms the hooks, and in
// dynamic mode all outputs of a forward go through one identity function, so that a backward that
// starts at one of them visits what the others depend on, too. Options that it has no means for are
// taken as if they were not set. Any thread; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/case/torch_options.h"
#include "properties/subject/expected.h"
#include "properties/subject/torch/model/policies.h"
#include "reference/model.h"

namespace lockstep::properties::torch_model {

// Takes what reference::run() takes, and PyTorch's own options, which are normalized for it.
Expected run(const reference::Program& program, const TorchOptions& options,
             const Policies& policies = {},
             const std::vector<reference::Recovery>& recoveries = {});

// The steps before the first one of which the model cannot tell what comes out.
std::uint32_t modelled_steps(const Expected& expected);

}  // namespace lockstep::properties::torch_model
