// The lane of the subjects `torch` and `python` (properties/subject/torch_subject.h,
// python_subject.h). They have one lane, because they have their own engine and process group.
//
// Threads: one caller.
#pragma once

#include <memory>

#include "properties/lane/lane.h"

namespace lockstep::properties {

std::unique_ptr<Lane> make_torch_lane(const Subject& subject);

}  // namespace lockstep::properties
