// Uneven inputs: a join, in which ranks that are out of inputs shadow the collectives of the others
// (S2). Pure functions; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::reference {

using Ranks = std::vector<std::uint32_t>;  // in the order of their numbers in the group (F4)

// Those of the survivors that train in the step.
Ranks ranks_with_inputs(const Program& program, const Ranks& survivors, std::uint32_t step);

// N of clause G2.
std::uint32_t divisor_of(const Replicated& options, const Ranks& survivors, const Ranks& active);

// Before ranks that train start what the others have to start with them, they announce it: the
// number of ranks at each of three events, two options, and a flag for each rank of the group.
// There is no announcement without a join.
std::vector<ExpectedCollective> announcement(const Replicated& options, const Ranks& survivors);

// Whether an announcement raises, because some rank is out of inputs and the user wants that.
bool ends_early(const Replicated& options, const Ranks& survivors, const Ranks& active);

// All who train raise, in the forward or in the first backward call of their pass.
void fail_early(const Ranks& active, const Step& step, bool is_forward, ExpectedStep& expected);

}  // namespace lockstep::reference
