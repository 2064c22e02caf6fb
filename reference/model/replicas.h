// Replicas: several copies of the model in one process (P15). The gradients of the parts of a
// parameter are summed before they leave the process. Pure functions; any thread; nothing fails.
#pragma once

#include <optional>

#include "reference/model/gradient.h"
#include "reference/model/module_state.h"

namespace lockstep::reference {

// The sum over the parts of a parameter, in replica order; undefined ones are left out. None: all
// are undefined.
std::optional<Elements> sum_replicas(const Setting& setting, std::uint32_t parameter,
                                     const Gradients& gradients);

// What further replicas have of the state becomes what the first one has.
ModuleState copy_state_to_replicas(const Setting& setting, bool with_buffers, ModuleState state);

}  // namespace lockstep::reference
