// The kernels, as functions for a compiler that knows nothing of CUDA. Errors are the runtime's
// numbers (cudaError_t), 0 for none; streams are the runtime's. Threads: all from any thread, with
// the right device current. A launch returns at once.
#pragma once

#include <cstdint>

#include "reducer/device/cuda/kernel_table.h"

struct CUstream_st;

namespace lockstep::kernels {

// Runs the operation over a table whose `far` part, if any, is in the memory of the GPU by the
// time that the stream gets there. Where the operation does not take many segments, or there are
// few, no more of the argument is read than a FewSegments has.
int launch(const Operation& operation, std::uint32_t blocks, const ManySegments& argument,
           CUstream_st* stream);

// Loads every kernel onto the current device; an error where they were not compiled for it. Else
// the runtime would load each at its first launch, and may wait for the whole GPU then, for a
// collective that waits for us, too.
int load();

}  // namespace lockstep::kernels
