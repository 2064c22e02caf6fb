// How the small NCCL of the tests (test_libraries) puts work on a stream of the played GPU, and
// finds what is at an address of the GPU.
#pragma once

#include <cstddef>

namespace lockstep::properties {

using HostGpuSubmit = void (*)(void* stream, void (*body)(void*), void* data);
using HostGpuReach = std::byte* (*)(void* stream, const void* data);
extern HostGpuSubmit host_gpu_submit;  // of the GPU that this process has opened
extern HostGpuReach host_gpu_reach;

}  // namespace lockstep::properties
