// The model of profile `torch`: PyTorch's reducer, hook by hook, with the policies of contract.h.
// It stands beside model.cc, as it keeps other state: what a forward has armed, what is marked
// ready, which hooks came. run() of model.h calls it where the contract asks for it.
//
// It does what the reducer of 1.13.1 does, driven as the Python wrapper drives it: at every forward
// with gradients buckets are rebuilt if that is due, a synced forward arms the hooks, and in
// dynamic mode all outputs of a forward go through one identity function, so that a backward that
// starts at one of them visits what the others depend on, too. Options that it has no means for are
// taken as if they were not set. One thread; nothing fails.
#pragma once

#include <vector>

#include "reference/model.h"

namespace lockstep::reference {

void run_hook_by_hook(const Program& program, const Contract& contract,
                      const std::vector<Recovery>& recoveries, Expectation& out);

// The steps before the first one of which the model cannot tell what comes out.
std::uint32_t modelled_steps(const Expectation& expectation);

// The steps of the program before the first one of which the model cannot tell what comes out.
std::uint32_t modelled_steps(const Program& program, const Contract& contract);

}  // namespace lockstep::reference
