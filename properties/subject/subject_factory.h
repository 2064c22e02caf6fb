// Makes the adapter through which the training loop drives a subject: the production reducer, or a
// user's reducer from a shared library. It exists once per build of the reducer.
#pragma once

#include "properties/observe/training_subject.h"
#include "properties/subject/subject.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

SubjectFactory make_subject_factory(const properties::Subject& subject);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
