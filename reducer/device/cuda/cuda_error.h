// Errors of the CUDA runtime as Status. Every text names the device, what was asked for, and
// CUDA's name of the error. `error` is a cudaError_t.
#pragma once

#include <string_view>

#include "reducer/base/status.h"

namespace lockstep {

// A call, or work that was submitted earlier, failed: kOutOfMemory where memory was refused, else
// kTransport. The runtime remembers it no longer: it has been told. Some errors (an illegal
// address, a lost GPU) end the process's use of the GPU: then every later call fails with them.
// Where the driver is older than the runtime the text says so, as such a driver refuses what it
// does not know by an error like "invalid argument".
Status cuda_failure(int error, int ordinal, std::string_view what);

// What is there: the outcome of asking for the number of devices, and versions as CUDA writes them
// (13010 is 13.1); a driver of 0 is none.
struct CudaPresence {
  int error = 0;
  int driver_version = 0;
  int runtime_version = 0;
  int devices = 0;
};

// Ok when device `ordinal` is there; else what is missing, and what to do about it.
Status find_cuda_device(const CudaPresence& presence, int ordinal);

// Loading the kernels failed: kInvalidArgument, with what to do, where they were not compiled for
// the device, or only as PTX that its driver does not translate.
Status kernels_not_loaded(int error, int ordinal, std::string_view name, int major, int minor);

}  // namespace lockstep
