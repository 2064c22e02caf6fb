// Plays NCCL's kernels on the host: what the blocks of a kernel do with the descriptions of work
// that NCCL's host code writes, over NCCL's own connections. A connection is a ring of kSteps slots
// in host memory. The receiver waits for `tail`, which NCCL's proxy raises when a message has come,
// and raises `head`; the sender waits for `head`, fills the slot, tells the proxy the size, and
// raises `tail`. Every wait looks at the communicator's abort flag.
//
// Played are sums (plain, and of scaled elements) by all-reduce, reduce and reduce-scatter;
// all-gather, broadcast, send and receive; all with the algorithm Ring and the protocol Simple.
//
// Threads: launch() from any; a kernel runs on its stream's thread, and a thread more for each
// channel behind the first. Ownership: the stream and NCCL's memory outlive the kernel; NCCL frees
// memory of a communicator that it has told to abort, so wait_for_aborted_kernels() comes first.
// Failure: kInvalidArgument, before anything runs, for work that is not played.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "faults/played_gpu/layout.h"
#include "reducer/base/status.h"
#include "reducer/device/native_stream.h"

namespace lockstep::played {

// Finds the memory of a buffer of the caller, who gave NCCL an address of its device.
using Reach = std::function<std::byte*(const std::byte* address)>;

// `arguments` are what NCCL gives to a kernel; they are copied.
Status launch(const Layout& layout, std::span<const int> row_to_id,
              std::span<const std::byte> arguments, NativeStream& stream, const Reach& reach);

// Returns when no kernel is left that was launched and whose communicator is to abort.
void wait_for_aborted_kernels();

}  // namespace lockstep::played
