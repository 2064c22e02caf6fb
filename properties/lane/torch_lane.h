// The lane of the subject `torch` (properties/subject/torch_subject.h). It has one lane, because it
// has its own engine and its own process group.
//
// Threads: one caller.
#pragma once

#include <memory>

#include "properties/lane/lane.h"

namespace lockstep::properties {

std::unique_ptr<Lane> make_torch_lane(const Subject& subject);

}  // namespace lockstep::properties
