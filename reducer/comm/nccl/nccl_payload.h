// NcclPayload runs collectives as calls of NCCL on the group's stream, with the memory that they
// need besides the caller's.
//
//   native sum       ncclAllReduce
//   rank-ordered sum every rank gets its piece from all ranks (grouped send and receive), adds with
//                    Device::reduce_in_rank_order, and all ranks get the sums (all-gather; grouped
//                    send and receive where the pieces differ in size). Integers, whose sums do not
//                    depend on the order, use the native sum.
//   broadcast, all-gather   NCCL's own, of bytes
//   verified (F3)    frames of host memory go through pinned memory and the GPU (verified.h)
//
// Host data is staged: it goes to pinned memory, to the GPU, back to pinned memory, and back to the
// caller's memory. At most kStages collectives are staged at once.
//
// Threads: submit() and exchange() by the issuing thread; take_stage() by it, give_back() by
// another, both under the group's lock.
// Ownership: everything in flight must have ended before this object is destroyed. Later
// collectives use its memory again; it grows to what is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "reducer/base/check.h"
#include "reducer/comm/nccl/nccl_link.h"
#include "reducer/comm/process_group.h"
#include "reducer/device/device.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

bool nccl_can_sum(DType dtype);

// GPU memory that grows; the stream owns it until it is grown or destroyed.
class StreamMemory {
 public:
  Status grow(Device& device, const Stream& stream, std::size_t bytes);
  std::byte* data() const { return storage_->data(); }
  const Ref<Storage>& storage() const { return storage_; }

 private:
  Ref<Storage> storage_;
};

// The memory that takes host data to the GPU and back.
struct NcclStage {
  StreamMemory memory;
  PinnedMemory pinned;
  bool is_taken = false;
};

class NcclPayload {
 public:
  static constexpr int kStages = 4;

  NcclPayload(NcclLink& link, Device& device, const Stream& stream, int rank, int size)
      : link_(link), device_(device), stream_(stream), rank_(rank), size_(size) {}

  // Whether the collective's data has to be staged.
  bool is_staged(const Collective& collective) const {
    return collective.device != &device_ && collective.count > 0;
  }
  bool has_stage() const;
  int take_stage();  // Takes a stage that is free.
  void give_back(int stage) {
    LOCKSTEP_CHECK(at(stage).is_taken);
    at(stage).is_taken = false;
  }

  // Submits a collective on GPU memory.
  Status submit(const Collective& collective);
  // Submits a collective on host memory. It reads the contribution before it returns.
  Status submit_staged(const Collective& collective, int stage);
  // Copies the result to host memory, after the stream has passed it.
  void fill_host(const Collective& collective, int stage);

  // Submits an exchange of frames in pinned memory: frame r of `out` goes to rank r, and what r
  // sent is received in frame r of `in`.
  Status submit_frames(const PinnedMemory& out, const PinnedMemory& in, std::size_t frame_bytes);

 private:
  NcclStage& at(int stage) {
    LOCKSTEP_CHECK_LT(static_cast<std::size_t>(stage), stages_.size());
    return stages_[static_cast<std::size_t>(stage)];
  }
  Status sum(const Collective& collective);
  Status sum_in_order(const Collective& collective);
  void* native() const { return device_.native(stream_); }

  NcclLink& link_;
  Device& device_;
  const Stream stream_;
  const int rank_;
  const int size_;
  StreamMemory scratch_;
  StreamMemory frames_;
  std::array<NcclStage, kStages> stages_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
