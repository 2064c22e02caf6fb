// The hosts lane: real Gloo between ranks on hosts of their own (host_ranks.h).
#pragma once

#include <memory>

#include "properties/lane/lane.h"

namespace lockstep::properties {

std::unique_ptr<Lane> make_hosts_lane(const Subject& subject);

}  // namespace lockstep::properties
