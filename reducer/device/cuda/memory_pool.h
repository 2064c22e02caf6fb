// The pool from which a CudaDevice allocates: made so that no stream waits for another one only to
// get that stream's memory, and open to the other GPUs of the process.
//
// Threads: any. Failure: a Status that names the GPU and the call.
#pragma once

#include "reducer/base/build_namespace.h"
#include "reducer/base/status.h"

struct CUmemPoolHandle_st;

namespace lockstep {
inline namespace LOCKSTEP_NS {

Status make_pool(int ordinal, CUmemPoolHandle_st*& pool);

// Gives the GPU `other` access to the memory that is and will be allocated from the pool of another
// GPU, `ordinal`. GPUs that cannot reach each other are skipped: NCCL goes through the host between
// them.
Status open_pool(CUmemPoolHandle_st* pool, int ordinal, int other);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
