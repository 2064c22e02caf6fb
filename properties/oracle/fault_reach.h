// Decides which faults of a plan can make calls fail, and in which steps. Pure functions; any
// thread; nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "properties/case/case.h"
#include "properties/observe/observation.h"
#include "reference/expectation.h"

namespace lockstep::properties {

// Returns the faults of the plan whose kind fired and is not benign. Their ranks and steps are
// within the program.
std::vector<faults::Fault> fatal_faults(const Case& c, const Observation& observation);

// Returns the faults of the plan that let a store fail, or damage what is in it, if their kind
// fired. Alone they end no step. They are as in fatal_faults().
std::vector<faults::Fault> broken_stores(const Case& c, const Observation& observation);

// Whether the text of the error of a call that the plan made fail has the words of that call: what
// the device said, or NCCL's last error and the name of its result.
bool has_words_of_call(const Case& c, const Failure& failure);

// Returns whether the fault is that the user of this rank aborts its reducers, and not its groups.
bool aborts_reducers(const faults::Fault& fault, std::size_t rank);

// Returns whether the groups and reducers that a user's abort ended on its rank may be those of the
// step, which is that of the abort or a later one: no recovery has replaced them, and no reset that
// was repeated because of the abort.
bool outlives(const Observation& observation, const faults::Fault& fault, std::uint32_t step);

// Returns whether the user of the rank may have aborted its reducers in this step or before, with
// no recovery in between.
bool has_aborted_reducers(const Case& c, const Observation& observation, std::size_t rank,
                          std::uint32_t step);

// Returns the receiver of what a payload fault changes.
std::uint32_t receiver_of(const faults::Fault& fault, const Case& c);

// Whether a fault of a rank's peer, or its own, can affect the rank in this step: the fault lies in
// this step or before, with no recovery in between. Ranks can be in different steps: the faulty one
// may be ahead as far as its peers allow. They are at least in the last earlier step that
// communicates.
bool reaches(const Case& c, const reference::Expectation& expectation,
             const Observation& observation, const faults::Fault& fault, std::size_t rank,
             std::uint32_t step);

}  // namespace lockstep::properties
