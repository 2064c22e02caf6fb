// What opens the GPU that the ranks of the nccl lane share. It depends on the build: CUDA's
// (nccl_gpu_cuda.cc), or an error where the CUDA parts are not built (nccl_gpu_none.cc).
//
// Threads: set before ranks run. Failure: kInvalidArgument with what to do, where there is no GPU.
#pragma once

#include <memory>

#include "reducer/base/status.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using OpenGpu = Result<std::unique_ptr<Device>> (*)();

// Tests without a GPU put another function in its place.
OpenGpu& open_gpu();

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
