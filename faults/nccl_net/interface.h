// Chooses the network interface on which the plug-in listens. LOCKSTEP_NET_IFNAME names one.
// Otherwise NCCL_SOCKET_IFNAME is read as NCCL reads it (prefixes separated by commas; after "="
// all are exact, after "^" all are excluded). Otherwise the interface is the loopback.
#pragma once

#include <string>

#include "faults/nccl_net/socket.h"

namespace lockstep::faults::net {

struct Interface {
  std::string name;
  Address address;  // port 0
};

Outcome<Interface> choose_interface();

// Returns whether NCCL_SOCKET_IFNAME with the value `pattern` selects the interface `name`.
bool nccl_pattern_matches(const std::string& pattern, const std::string& name);

}  // namespace lockstep::faults::net
