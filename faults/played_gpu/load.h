// Loads an NCCL whose CUDA is played: the library that NCCL asks for the GPU's place in the machine
// (libnvidia-ml.so.1), NCCL itself, and then NCCL's calls of the CUDA runtime are turned to ours.
//
// Threads: one. Failure: kInvalidArgument, in one line, for a library that is no NCCL, has a
// version that is not known, or lacks its symbol table.
#pragma once

#include <string>

#include "reducer/base/status.h"

namespace lockstep::played {

// `folder` holds the played libnvidia-ml.so.1, and libcudart.so.12 and .13.
Status load(const std::string& library, const std::string& folder);

// Turns the library's calls of a CUDA runtime that it holds to ours; a library that is linked with
// libcudart.so must have got ours. Returns how many functions it calls.
Result<std::size_t> redirect_runtime(void* library);

}  // namespace lockstep::played
