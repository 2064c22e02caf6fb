// Functions with which the small NCCL of the tests (test_libraries) submits work to a stream of the
// host's stand-in for a GPU, and finds the memory at an address of that GPU.
#pragma once

#include <cstddef>

namespace lockstep::properties {

using HostGpuSubmit = void (*)(void* stream, void (*body)(void*), void* data);
using HostGpuReach = std::byte* (*)(void* stream, const void* data);
extern HostGpuSubmit host_gpu_submit;  // for the GPU that this process has opened
extern HostGpuReach host_gpu_reach;

}  // namespace lockstep::properties
