// train(): one rank of a case on torch: the text of reference/program.h, driven through torch's
// autograd engine and torch's reducer. The counterpart of properties/lane/training.h.
//
// Threads: one caller; torch has threads of its own. Failure: what goes wrong is in the
// observation.
#pragma once

#include <cstdint>

#include "properties/lane/rank_server.h"

namespace lockstep::torch_subject {

// Once, before anything else.
void prepare_process();

// What can be planted, for the oracles to find: calls that fail are told as if they had ended well.
enum class Planted : std::uint8_t { kNothing, kSwallowedErrors };

void train(const properties::RankJob& job, properties::RankObservation& observation,
           faults::Fired& fired, Planted planted = Planted::kNothing);

}  // namespace lockstep::torch_subject
