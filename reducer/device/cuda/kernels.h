// The kernels, as functions for a compiler that knows nothing of CUDA. Errors are the runtime's
// numbers (cudaError_t), with 0 for none; streams are the runtime's.
// Threads: all calls from any thread, with the right device current. A launch returns at once.
#pragma once

#include <cstdint>

#include "reducer/device/cuda/kernel_table.h"

struct CUstream_st;

namespace lockstep::kernels {

// Runs the operation over a table. Its `far` part, if any, must be in the memory of the GPU by the
// time that the stream gets there. Where the operation does not take many segments, or there are
// few, the call reads no more of the argument than a FewSegments has.
int launch(const Operation& operation, std::uint32_t blocks, const ManySegments& argument,
           CUstream_st* stream);

// Loads every kernel onto the current device, and returns an error if they were not compiled for
// it. Otherwise the runtime would load each kernel at its first launch, and might then wait for the
// whole GPU, including a collective that waits for this rank.
int load();

}  // namespace lockstep::kernels
