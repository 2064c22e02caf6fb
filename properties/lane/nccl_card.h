// What opens the card that the ranks of the nccl lane share. It depends on the build: CUDA's
// (nccl_card_cuda.cc), or an error where the CUDA parts are not built (nccl_card_none.cc).
//
// Threads: set before ranks run. Failure: kInvalidArgument with what to do, where there is no card.
#pragma once

#include <memory>

#include "reducer/base/status.h"
#include "reducer/device/device.h"

namespace lockstep::inline LOCKSTEP_NS {

using OpenCard = Result<std::unique_ptr<Device>> (*)();

// Tests without a card put another function in its place.
OpenCard& open_card();

}  // namespace lockstep::inline LOCKSTEP_NS
