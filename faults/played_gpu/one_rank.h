// The kernel that NCCL launches for a communicator of one rank, whose elements it scales
// (ncclRedOpCreatePreMulSum). Without a factor NCCL copies instead.
//
// Threads: any. Failure: kNotSupported for another kernel.
#pragma once

#include "reducer/device/native_stream.h"

namespace lockstep::played {

int launch_one_rank(const void* kernel, void** arguments, NativeStream& stream);

}  // namespace lockstep::played
