// Which network interface the plug-in listens on: LOCKSTEP_NET_IFNAME names one; NCCL_SOCKET_IFNAME
// is read as NCCL does (prefixes with commas between them, all exact after "=", all excluded after
// "^"); otherwise it is the loopback.
#pragma once

#include <string>

#include "faults/nccl_net/socket.h"

namespace lockstep::faults::net {

struct Interface {
  std::string name;
  Address address;  // port 0
};

Outcome<Interface> choose_interface();

// Whether NCCL_SOCKET_IFNAME, set to `pattern`, means the interface `name`.
bool nccl_pattern_matches(const std::string& pattern, const std::string& name);

}  // namespace lockstep::faults::net
