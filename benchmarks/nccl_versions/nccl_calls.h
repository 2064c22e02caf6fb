// Calls of NCCL's functions that a machine without a GPU can make: with arguments that are right
// but for the device, or with a null communicator.
//
// Threads: each call in a process of its own; the library may leave anything behind.
#pragma once

#include <vector>

#include "reducer/comm/nccl/nccl_api.h"

namespace lockstep::benchmarks {

struct NcclCall {
  const char* name;                 // for the report: the function, and what was passed
  const char* function;             // as NCCL names it
  int (*call)(const NcclApi& api);  // returns the result as a number
};

const std::vector<NcclCall>& nccl_calls();

}  // namespace lockstep::benchmarks
