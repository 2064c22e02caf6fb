// Opens the GPU that the ranks of the nccl lane share. The function depends on the build: it opens
// a CUDA device (nccl_gpu_cuda.cc), or returns an error if the CUDA parts are not built
// (nccl_gpu_none.cc).
//
// Threads: set it before ranks run. Failure: kInvalidArgument with what to do if there is no GPU.
#pragma once

#include <memory>

#include "reducer/base/status.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using OpenGpu = Result<std::unique_ptr<Device>> (*)();

// Tests without a GPU replace the function.
OpenGpu& open_gpu();

// Whether leave_to_process() was called on a GPU that open_gpu() opens.
bool is_left(const Device& gpu);

// The GPU of an NCCL that is played (nccl_played.h), and the same question about it.
Result<std::unique_ptr<Device>> open_played_gpu();
bool is_played_gpu_left(const Device& gpu);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
