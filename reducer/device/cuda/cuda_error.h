// Errors of the CUDA runtime as Status. Every text names the device, the operation, and CUDA's name
// of the error. `error` is a cudaError_t.
#pragma once

#include <string_view>

#include "reducer/base/status.h"

namespace lockstep {

// Makes a Status of a call, or of earlier submitted work, that failed: kOutOfMemory where an
// allocation was refused, else kTransport. The call also clears the runtime's last error. Some
// errors (an illegal address, a lost GPU) end the process's use of the GPU: every later call fails
// with them. Where the driver is older than the runtime the text says so, because such a driver
// reports what it does not know as an error like "invalid argument".
Status cuda_failure(int error, int ordinal, std::string_view what);

// What the runtime found: the result of the query for the number of devices, and versions as CUDA
// writes them (13010 is 13.1). A driver version of 0 means that there is no driver.
struct CudaPresence {
  int error = 0;
  int driver_version = 0;
  int runtime_version = 0;
  int devices = 0;
};

// Ok when device `ordinal` exists; otherwise an error that says what is missing and what to do
// about it.
Status find_cuda_device(const CudaPresence& presence, int ordinal);

// The Status when loading the kernels failed: kInvalidArgument, with what to do, if they were not
// compiled for the device, or only as PTX that its driver does not translate.
Status kernels_not_loaded(int error, int ordinal, std::string_view name, int major, int minor);

}  // namespace lockstep
