// FaultReport: what became of a fault that a host, or the controller's store, has carried out.
#pragma once

#include <cstdint>
#include <string>

#include "faults/plan.h"

namespace lockstep::properties::hosts {

struct FaultReport {
  faults::Kind kind = faults::Kind::kNetPartition;
  std::uint64_t acted = 0;  // packets, calls or requests that it met; 0: it has done nothing
  std::string why;          // of 0: why not
};

}  // namespace lockstep::properties::hosts
