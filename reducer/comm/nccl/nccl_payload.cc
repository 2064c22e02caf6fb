#include "reducer/comm/nccl/nccl_payload.h"

#include <algorithm>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/device/grow.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

NcclDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return NcclDataType::kFloat64;
    case DType::kFloat32:
      return NcclDataType::kFloat32;
    case DType::kFloat16:
      return NcclDataType::kFloat16;
    case DType::kBFloat16:
      return NcclDataType::kBfloat16;
    case DType::kInt32:
      return NcclDataType::kInt32;
    case DType::kByte:
    case DType::kComplex64:
      break;
  }
  return NcclDataType::kUint8;  // The elements are moved, not added.
}

std::size_t bytes_of(const Collective& collective) {
  return static_cast<std::size_t>(collective.count) * size_of(collective.dtype);
}

// Grouped calls: NCCL submits the calls between begin and end as one. After the first error it
// makes no further call but that which ends the group, if the group has begun: NCCL keeps the text
// of the last error alone, and without a group a send would wait for its receiver.
class Group {
 public:
  explicit Group(const NcclApi& api) : api_(api), result_(api_.group_start()) {
    has_begun_ = is_fine();
  }
  template <class Call>
  void add(Call call) {
    if (is_fine()) result_ = call();
  }
  NcclResult end() {
    const NcclResult result = has_begun_ ? api_.group_end() : result_;
    return is_fine() ? result : result_;
  }

 private:
  bool is_fine() const {
    return result_ == NcclResult::kSuccess || result_ == NcclResult::kInProgress;
  }

  const NcclApi& api_;
  NcclResult result_;
  bool has_begun_ = false;
};

}  // namespace

bool nccl_can_sum(DType dtype) { return dtype != DType::kByte && dtype != DType::kComplex64; }

// New memory belongs to the current stream at first, and that stream may still use it.
Status StreamMemory::grow(Device& device, const Stream& stream, std::size_t bytes) {
  if (storage_ && storage_->bytes() >= bytes) return {};
  Result<Ref<Storage>> storage = device.allocate(grown_size(bytes));
  if (!storage) return std::move(storage.error());
  storage_ = std::move(*storage);
  device.note_use(stream, storage_->data());
  device.wait(stream, device.record(device.current_stream()));
  LOCKSTEP_CHECK_LE(bytes, storage_->bytes());
  return {};
}

bool NcclPayload::has_stage() const {
  return std::any_of(stages_.begin(), stages_.end(), [](const auto& s) { return !s.is_taken; });
}

int NcclPayload::take_stage() {
  const auto free = std::find_if(stages_.begin(), stages_.end(),
                                 [](const NcclStage& stage) { return !stage.is_taken; });
  LOCKSTEP_CHECK(free != stages_.end());
  free->is_taken = true;
  return static_cast<int>(free - stages_.begin());
}

Status NcclPayload::submit(const Collective& collective) {
  if (collective.count == 0) return {};
  const std::size_t bytes = bytes_of(collective);
  std::byte* const data = collective.data;
  LOCKSTEP_CHECK(data != nullptr);
  device_.note_use(stream_, data);
  switch (collective.op) {
    case Op::kAllReduceSum:
      return sum(collective);
    case Op::kBroadcast:
      return link_.call("ncclBroadcast", [&](NcclComm comm) {
        return link_.api().broadcast(data, data, bytes, NcclDataType::kUint8, collective.root, comm,
                                     native());
      });
    case Op::kAllGather:
      device_.note_use(stream_, collective.gathered);
      return link_.call("ncclAllGather", [&](NcclComm comm) {
        return link_.api().all_gather(data, collective.gathered, bytes, NcclDataType::kUint8, comm,
                                      native());
      });
  }
  return Status(Code::kInternal, "a collective of a kind that is not known");
}

Status NcclPayload::sum(const Collective& collective) {
  LOCKSTEP_CHECK(nccl_can_sum(collective.dtype));
  LOCKSTEP_CHECK(collective.factor == 1.0);
  const bool is_integral = collective.dtype == DType::kInt32;
  if (collective.reduction == Reduction::kRankOrdered && !is_integral && size_ > 1)
    return sum_in_order(collective);
  return link_.call("ncclAllReduce", [&](NcclComm comm) {
    return link_.api().all_reduce(collective.data, collective.data, collective.count,
                                  type_of(collective.dtype), NcclRedOp::kSum, comm, native());
  });
}

Status NcclPayload::sum_in_order(const Collective& collective) {
  LOCKSTEP_CHECK_LT(1, size_);
  LOCKSTEP_CHECK(nccl_can_sum(collective.dtype));
  const std::size_t width = size_of(collective.dtype);
  const auto ranks = static_cast<std::size_t>(size_);
  const auto count = static_cast<std::size_t>(collective.count);
  const std::size_t share = (count + ranks - 1) / ranks;
  const auto begin_of = [&](std::size_t rank) { return std::min(rank * share, count); };
  const auto share_of = [&](std::size_t rank) { return begin_of(rank + 1) - begin_of(rank); };
  LOCKSTEP_CHECK_EQ(begin_of(ranks), count);  // The pieces are the whole.
  const std::size_t own = share_of(static_cast<std::size_t>(rank_));
  LOCKSTEP_RETURN_IF_ERROR(scratch_.grow(device_, stream_, (ranks + 1) * share * width));
  std::byte* const pieces = scratch_.data();
  std::byte* const sum = pieces + ranks * own * width;
  std::byte* const data = collective.data;

  LOCKSTEP_RETURN_IF_ERROR(link_.call("the exchange of pieces", [&](NcclComm comm) {
    const NcclApi& api = link_.api();
    Group group(api);
    for (int peer = 0; peer < size_; ++peer) {
      const auto r = static_cast<std::size_t>(peer);
      if (share_of(r) > 0)
        group.add([&] {
          return api.send(data + begin_of(r) * width, share_of(r) * width, NcclDataType::kUint8,
                          peer, comm, native());
        });
      if (own > 0)
        group.add([&] {
          return api.receive(pieces + r * own * width, own * width, NcclDataType::kUint8, peer,
                             comm, native());
        });
    }
    return group.end();
  }));
  if (own > 0) {
    const auto elements = static_cast<std::int64_t>(own);
    const Tensor from(scratch_.storage(), 0, collective.dtype,
                      Shape::row_major({elements * size_}));
    const Tensor to(scratch_.storage(), elements * size_, collective.dtype,
                    Shape::row_major({elements}));
    device_.reduce_in_rank_order(stream_, from, to, 1.0);
  }
  if (count % ranks == 0)
    return link_.call("the all-gather of sums", [&](NcclComm comm) {
      return link_.api().all_gather(sum, data, share * width, NcclDataType::kUint8, comm, native());
    });
  return link_.call("the exchange of sums", [&](NcclComm comm) {
    const NcclApi& api = link_.api();
    Group group(api);
    for (int peer = 0; peer < size_; ++peer) {
      const auto r = static_cast<std::size_t>(peer);
      if (own > 0)
        group.add(
            [&] { return api.send(sum, own * width, NcclDataType::kUint8, peer, comm, native()); });
      if (share_of(r) > 0)
        group.add([&] {
          return api.receive(data + begin_of(r) * width, share_of(r) * width, NcclDataType::kUint8,
                             peer, comm, native());
        });
    }
    return group.end();
  });
}

Status NcclPayload::submit_staged(const Collective& collective, int stage) {
  NcclStage& on = at(stage);
  LOCKSTEP_CHECK(on.is_taken);
  LOCKSTEP_CHECK_LT(0u, collective.count);
  const std::size_t bytes = bytes_of(collective);
  const bool is_gather = collective.op == Op::kAllGather;
  const bool is_told = collective.op == Op::kBroadcast && collective.root != rank_;
  const std::size_t all = is_gather ? bytes * static_cast<std::size_t>(size_) : bytes;
  LOCKSTEP_RETURN_IF_ERROR(on.memory.grow(device_, stream_, all));
  LOCKSTEP_RETURN_IF_ERROR(grow(device_, on.pinned, all));
  Collective there = collective;
  there.data = on.memory.data();
  there.gathered = on.memory.data();
  if (is_gather) there.data += bytes * static_cast<std::size_t>(rank_);
  if (!is_told) {
    on.pinned.write(0, collective.data, bytes);
    device_.upload(stream_, on.pinned, 0, there.data, bytes);
  }
  LOCKSTEP_RETURN_IF_ERROR(submit(there));
  device_.download(stream_, on.memory.data(), on.pinned, 0, all);
  return {};
}

void NcclPayload::fill_host(const Collective& collective, int stage) {
  LOCKSTEP_CHECK(at(stage).is_taken);
  const std::size_t bytes = bytes_of(collective);
  const bool is_gather = collective.op == Op::kAllGather;
  std::byte* const to = is_gather ? collective.gathered : collective.data;
  at(stage).pinned.read(0, to, is_gather ? bytes * static_cast<std::size_t>(size_) : bytes);
}

Status NcclPayload::submit_frames(const PinnedMemory& out, const PinnedMemory& in,
                                  std::size_t frame_bytes) {
  const std::size_t all = frame_bytes * static_cast<std::size_t>(size_);
  LOCKSTEP_CHECK_LT(0u, frame_bytes);
  LOCKSTEP_CHECK_LE(all, out.bytes());
  LOCKSTEP_CHECK_LE(all, in.bytes());
  LOCKSTEP_RETURN_IF_ERROR(frames_.grow(device_, stream_, 2 * all));
  std::byte* const going = frames_.data();
  std::byte* const coming = frames_.data() + all;
  device_.upload(stream_, out, 0, going, all);
  LOCKSTEP_RETURN_IF_ERROR(link_.call("the exchange of frames", [&](NcclComm comm) {
    const NcclApi& api = link_.api();
    Group group(api);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const std::size_t at = static_cast<std::size_t>(peer) * frame_bytes;
      group.add([&] {
        return api.send(going + at, frame_bytes, NcclDataType::kUint8, peer, comm, native());
      });
      group.add([&] {
        return api.receive(coming + at, frame_bytes, NcclDataType::kUint8, peer, comm, native());
      });
    }
    return group.end();
  }));
  device_.download(stream_, coming, in, 0, all);
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
