// What a user does to the gradients before a step (reference::ZeroGrad).
// Threads: the one that trains, while no backward runs.
#pragma once

#include <vector>

#include "reducer/autograd/parameter.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// `parameters` have the indices of the program.
Status zero_gradients(const reference::Program& program,
                      const std::vector<Ref<Parameter>>& parameters, reference::ZeroGrad kind);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
