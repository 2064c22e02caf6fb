// make_hosted_subject(): wraps a reducer from a shared library
// (properties/subject/lockstep_subject.h) as a TrainingSubject. The same library runs in every
// lane: it sees our parameters, engine and process group only through C functions, which each lane
// compiles for its platform.
//
// `table` must remain unchanged for as long as the subject lives.
#pragma once

#include <memory>

#include "properties/observe/training_subject.h"
#include "properties/subject/lockstep_subject.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

std::unique_ptr<TrainingSubject> make_hosted_subject(const lockstep_subject* table);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
