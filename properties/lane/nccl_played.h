// NCCL on a GPU that is played on the host (faults/played_gpu), where the nccl lane has none.
//
// From the user's environment: LOCKSTEP_NCCL_PLAYED=1 asks for it (--played sets it, and ranks
// inherit it), and 0 refuses it.
//
// Threads: one caller, before others begin. Failure: kInvalidArgument, in one line that says what
// to do.
#pragma once

#include <string>

#include "reducer/base/status.h"

namespace lockstep::properties {

bool is_nccl_played();
bool may_play_nccl();  // false with LOCKSTEP_NCCL_PLAYED=0
void play_nccl();

// Loads the library so that its GPU is played in this process.
Status load_played_nccl(const std::string& library);

}  // namespace lockstep::properties
