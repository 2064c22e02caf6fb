// NcclFrames is the exchange of a verified collective (verified.h) over NCCL. Frames are made and
// compared in host memory, and go through pinned memory and the GPU, so the check covers the way
// from the sender's host to the receiver's.
//
// Threads: the issuing thread of one group.
// Memory: later collectives use it again.
// Failure: exchange() returns false when the group has ended, or when it could not begin; `status`
// then says why.
#pragma once

#include <functional>

#include "reducer/comm/nccl/nccl_payload.h"
#include "reducer/comm/verified.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclFrames final : public FrameExchange {
 public:
  // Waits until everything that was submitted so far is complete; kAborted means that the group has
  // ended.
  using Settle = std::function<Status()>;

  NcclFrames(NcclPayload& payload, Device& device, const Stream& stream, int rank, int size,
             Settle settle)
      : payload_(payload),
        device_(device),
        stream_(stream),
        rank_(rank),
        size_(size),
        settle_(std::move(settle)) {}

  // Runs the collective, to its end unless it fails. If the group has failed already, it returns
  // kAborted.
  Status run(const Collective& collective, const CollectiveId& id);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) override;
  void add_in_order(const Collective& collective, const std::byte* parts, std::size_t stride,
                    std::size_t bytes, std::byte* sum) override;

 private:
  Status run_on_host(const Collective& collective, const CollectiveId& id);

  NcclPayload& payload_;
  Device& device_;
  const Stream stream_;
  const int rank_;
  const int size_;
  const Settle settle_;
  HostDevice host_{-1};
  FrameMemory frames_;
  Ref<Storage> parts_;  // In host memory.
  PinnedMemory going_;
  PinnedMemory coming_;
  PinnedMemory data_;
  Status status_;  // Of the last exchange.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
