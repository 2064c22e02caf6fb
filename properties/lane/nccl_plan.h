// Translates the faults of a case that NCCL's net plug-in carries out (faults/nccl_net) into the
// plug-in's terms. Each waits until its rank begins the step in which it is planned.
//
// A fault of message number `site` acts on every connection from that rank that exists when the
// fault first fires, at that message of the connection; it never acts on later connections. A flip
// acts only on the connection of verified payloads (see nccl_plan.cc), and is omitted if the number
// of that connection is not known. The rank itself carries out other kinds (real_environment.h);
// the rest do not apply here, because NCCL has no frames to truncate.
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

// Whether this NCCL drops the errors of its network, so that a rank whose network fails hangs and
// nobody can learn why (faults/sim/nccl/nccl_profile.h).
bool loses_network_errors(int nccl_version);
// Whether the fault is an error of the network; it is not put in force on such an NCCL.
bool is_network_error(faults::Kind kind);

// The result is the same for every process.
std::vector<PlannedNetFault> net_faults_of(const Case& c);

}  // namespace lockstep::properties
