// NcclPayload: the collectives as calls of NCCL on the group's stream, with the memory that they
// need besides the caller's.
//
//   native sum       ncclAllReduce
//   rank-ordered sum every rank gets its shard from all (grouped send and receive), adds with
//                    Device::fold, and all get the sums (all-gather; grouped send and receive where
//                    the shards differ in size). Integers, whose sums know no order, go natively.
//   broadcast, all-gather   NCCL's own, of bytes
//   checked (F3)     frames of host memory go through pinned memory and the GPU (verified.h)
//
// Data of the host is staged: pinned memory, the GPU, pinned memory, the host's again. At most
// kStages collectives are staged at once.
//
// Threads: submit() and exchange() by the issuing thread; take_stage() by it, give_back() by
// another, both under the group's lock. Ownership: what is in flight must be over before this is
// destroyed. Memory is kept from one collective to the next and grows to what is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "reducer/comm/nccl/nccl_link.h"
#include "reducer/comm/process_group.h"
#include "reducer/device/device.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

bool nccl_can_sum(DType dtype);

// Memory of the GPU that grows; it is the stream's until it is grown or destroyed.
class StreamMemory {
 public:
  Status grow(Device& device, const Stream& stream, std::size_t bytes);
  std::byte* data() const { return storage_->data(); }
  const Ref<Storage>& storage() const { return storage_; }

 private:
  Ref<Storage> storage_;
};

// What takes data of the host to the GPU and back.
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

  // Whether its data has to be staged.
  bool is_staged(const Collective& collective) const {
    return collective.device != &device_ && collective.count > 0;
  }
  bool has_stage() const;
  int take_stage();  // one that is free
  void give_back(int stage) { at(stage).is_taken = false; }

  // Submits a collective on the GPU's memory.
  Status submit(const Collective& collective);
  // The same for the host's, whose contribution is read before this returns.
  Status submit_staged(const Collective& collective, int stage);
  // Fills the host's memory with the result, when the stream is past it.
  void fill_host(const Collective& collective, int stage);

  // Submits an exchange of frames, which are in pinned memory: frame r of `out` goes to rank r, and
  // what r sent comes to frame r of `in`.
  Status submit_frames(const PinnedMemory& out, const PinnedMemory& in, std::size_t frame_bytes);

 private:
  NcclStage& at(int stage) { return stages_[static_cast<std::size_t>(stage)]; }
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
