// Which faults of a plan can make calls fail, and in which steps. Pure; any thread; nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "properties/case/case.h"
#include "properties/lane/observation.h"
#include "reference/expectation.h"

namespace lockstep::properties {

// Those of the plan whose kind fired and is not benign; ranks and steps are within the program.
std::vector<faults::Fault> fatal_faults(const Case& c, const Observation& observation);

// Whether a rank can leave the step behind only once all ranks have come to it, to its collective
// number `first` or a later one. A collective without elements is no meeting of all: only
// neighbours hear of each other. The root of a broadcast need not wait.
bool holds_together(const reference::ExpectedStep& step, std::size_t first = 0);

// The same, to a collective of any of the rank's reducers.
bool holds_together(const reference::Program& program, const reference::Expectation& expectation,
                    std::size_t rank, std::uint32_t step);

// In the same group (F7): others do not hear of it.
bool is_peer(const reference::Program& program, std::size_t rank, std::size_t other);

// Whether a fault of a rank's peer, or its own, can be felt in this step: it lies there or before,
// with no recovery in between. Ranks do not march in step: the one at fault may be ahead, as far as
// its peers can let it: they are at least in the last step before that communicates.
bool reaches(const Case& c, const reference::Expectation& expectation,
             const Observation& observation, const faults::Fault& fault, std::size_t rank,
             std::uint32_t step);

// The rank of an original rank in the group that trains `step`; kNone if it is not in it.
int group_rank(const reference::Program& program, const Observation& observation,
               std::uint32_t step, std::size_t original);

}  // namespace lockstep::properties
