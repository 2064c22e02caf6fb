// The nccl lane: one process per rank, all on one GPU. NCCL sends over our net plug-in, or over
// sockets, and is pinned to one order of addition. NCCL's log must prove that, or the case is
// Failing::kUnproven. There is one lane for all builds of the reducer, because ranks are processes,
// in which each finds its own build.
//
// Threads: one caller. The process of the lane never uses CUDA itself, because it forks.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "properties/lane/lane.h"

namespace lockstep::properties {

std::unique_ptr<Lane> make_nccl_lane(const Subject& subject);

// Returns the name of this process's fault plan while its lane runs a case. There is one at a time.
std::string net_plan_of(pid_t process);
// Call this after a process of the lane was killed.
void remove_net_plan_of(pid_t process);

}  // namespace lockstep::properties
