// The nccl lane: one process per rank, all on one GPU. NCCL carries what they send over our net
// plug-in, or over sockets, and is pinned to one way of adding; what it logs has to prove that, or
// the case is Failing::kUnproven. There is one lane for all builds of the reducer, as ranks are
// processes in which each finds its own.
//
// Threads: one caller. The process of the lane itself never touches CUDA: it forks.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "properties/lane/lane.h"

namespace lockstep::properties {

std::unique_ptr<Lane> make_nccl_lane(const Subject& subject);

// The name of the fault plan that this process has while its lane runs a case: one at a time.
std::string net_plan_of(pid_t process);
// After a process of the lane was killed.
void remove_net_plan_of(pid_t process);

}  // namespace lockstep::properties
