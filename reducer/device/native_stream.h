// NativeStream is what Device::native() points to for a device that is played on the host, so that
// a library that knows no class of the program (an NCCL of the tests, a played CUDA runtime) can
// use its streams and its memory.
//
// Threads: any thread may make any call.
#pragma once

#include <cstddef>

namespace lockstep {

struct NativeStream {
  // Runs body(data) when the stream reaches it.
  void (*submit)(void* native, void (*body)(void*), void* data);
  // Returns the memory of a GPU address.
  std::byte* (*reach)(void* native, const void* data);
};

}  // namespace lockstep
