// The nccl lane: one process per rank, all on one card. NCCL carries what they send over our net
// plug-in, or over sockets, and is pinned to one way of adding; what it logs has to prove that, or
// the case is Failing::kUnproven. There is one lane for all builds of the reducer, as ranks are
// processes in which each finds its own.
//
// Threads: one caller. The process of the lane itself never touches CUDA: it forks.
#pragma once

#include <memory>

#include "properties/lane/lane.h"

namespace lockstep::properties {

std::unique_ptr<Lane> make_nccl_lane(const Subject& subject);

}  // namespace lockstep::properties
