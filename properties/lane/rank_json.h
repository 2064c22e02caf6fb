// RankObservation as bytes (CBOR), for the way from a rank's process to its parent: two processes
// of one build.
#pragma once

#include <string>

#include "properties/lane/observation.h"

namespace lockstep::properties {

std::string to_bytes(const RankObservation& observation, const faults::Fired& fired);
bool from_bytes(const std::string& bytes, RankObservation& observation, faults::Fired& fired);

}  // namespace lockstep::properties
