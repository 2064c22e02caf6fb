// train(): trains one rank of a case on torch. It follows reference/job.h with torch's autograd
// engine and torch's reducer. It is the counterpart of properties/observe/training.h.
//
// Threads: one caller; torch has threads of its own. Failure: the observation holds any error.
#pragma once

#include <cstdint>

#include "properties/lane/rank_server.h"
#include "properties/subject/torch/model/policies.h"

namespace lockstep::torch_subject {

// Must be called once, before anything else.
void prepare_process();

// Bugs that a test can plant in the subject, to see whether the oracles find them:
//   kSwallowedErrors  calls that fail are reported as if they had succeeded
//   kSkippedEndings   where the user would end a pass by hand, nothing is called
enum class Planted : std::uint8_t { kNothing, kSwallowedErrors, kSkippedEndings };

// `policies`: of this version.
void train(const properties::RankJob& job, properties::RankObservation& observation,
           faults::Fired& fired, const properties::torch_model::Policies& policies,
           Planted planted = Planted::kNothing);

}  // namespace lockstep::torch_subject
