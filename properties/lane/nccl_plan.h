// The faults of a case that NCCL's net plug-in carries out (faults/nccl_net), in its terms. Each
// waits until its rank begins the step that it lies in.
//
// What becomes of them: a fault of the message number `site` concerns every connection from that
// rank: each that is there when it first fires has it at that message, later ones never. A flip is
// for the connection of verified payloads alone (see nccl_plan.cc), and is left out where its
// number is not known. Other kinds are those of the rank itself (real_environment.h), or of no use
// here: NCCL has no frames to cut.
//
// Pure; any thread; nothing fails.
#pragma once

#include <cstddef>
#include <vector>

#include "faults/nccl_net/net_plan.h"
#include "properties/case/case.h"

namespace lockstep::properties {

struct PlannedNetFault {
  std::size_t index = 0;  // in the case's plan
  std::uint32_t rank = 0;
  std::uint32_t step = 0;
  faults::Kind kind = faults::Kind::kMessageDelay;
  faults::net::NetFault fault;
};

// The same for every process that asks.
std::vector<PlannedNetFault> net_faults_of(const Case& c);

}  // namespace lockstep::properties
