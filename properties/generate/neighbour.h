// neighbour: cases that are close to a given one. `lockstep fixed` runs them to tell whether what
// failed once is mended, or only missed by the one case that showed it.
//
// Number 0 is the case itself. Each other one has another schedule, other values, or one to three
// fields that differ a little: a number by at most two, a bool or an enum by any value. Lists keep
// their lengths. Every result is normalized, and needs nothing that the subject lacks.
//
// Threads: any; there is no state. The same arguments give the same case on every machine.
#pragma once

#include <cstdint>

#include "properties/case/capabilities.h"
#include "properties/case/case.h"

namespace lockstep::properties {

Case neighbour(const Case& base, std::uint64_t seed, std::uint64_t index, Capabilities able);

}  // namespace lockstep::properties
