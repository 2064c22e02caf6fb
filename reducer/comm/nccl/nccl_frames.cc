#include "reducer/comm/nccl/nccl_frames.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/device/grow.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

void add_integers(const std::byte* parts, std::size_t stride, std::size_t bytes, std::size_t ranks,
                  std::byte* sum) {
  LOCKSTEP_CHECK_LE(bytes, stride);
  LOCKSTEP_CHECK_EQ(bytes % sizeof(std::uint32_t), 0u);
  std::memcpy(sum, parts, bytes);
  for (std::size_t r = 1; r < ranks; ++r) {
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint32_t)) {
      std::uint32_t total = 0;
      std::uint32_t part = 0;
      std::memcpy(&total, sum + at, sizeof total);
      std::memcpy(&part, parts + r * stride + at, sizeof part);
      total += part;
      std::memcpy(sum + at, &total, sizeof total);
    }
  }
}

}  // namespace

Status NcclFrames::run(const Collective& collective, const CollectiveId& id) {
  LOCKSTEP_CHECK(collective.verify);
  LOCKSTEP_CHECK_LT(0u, collective.count);
  if (collective.device != &device_) return run_on_host(collective, id);
  const bool is_gather = collective.op == Op::kAllGather;
  const std::size_t bytes = collective.count * size_of(collective.dtype);
  const std::size_t all = is_gather ? bytes * static_cast<std::size_t>(size_) : bytes;
  LOCKSTEP_RETURN_IF_ERROR(grow(device_, data_, all));
  const std::size_t own = is_gather ? bytes * static_cast<std::size_t>(rank_) : 0;
  device_.note_use(stream_, collective.data);
  device_.download(stream_, collective.data, data_, own, bytes);
  LOCKSTEP_RETURN_IF_ERROR(settle_());
  Collective here = collective;
  here.gathered = data_.to_write(0, all);
  here.data = here.gathered + own;
  LOCKSTEP_RETURN_IF_ERROR(run_on_host(here, id));
  if (is_gather) device_.note_use(stream_, collective.gathered);
  device_.upload(stream_, data_, 0, is_gather ? collective.gathered : collective.data, all);
  // The next collective uses this memory as soon as it is issued.
  return settle_();
}

Status NcclFrames::run_on_host(const Collective& collective, const CollectiveId& id) {
  Flaw flaw;
  if (run_verified(collective, id, *this, frames_, flaw)) return {};
  if (flaw.sender != kNone) return corrupted(flaw, rank_);
  LOCKSTEP_CHECK(!status_.ok());
  return status_;
}

bool NcclFrames::exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) {
  const std::size_t all = frame_bytes * static_cast<std::size_t>(size_);
  status_ = grow(device_, going_, all);
  if (status_.ok()) status_ = grow(device_, coming_, all);
  if (!status_.ok()) return false;
  going_.write(0, out, all);
  status_ = payload_.submit_frames(going_, coming_, frame_bytes);
  if (status_.ok()) status_ = settle_();
  if (!status_.ok()) return false;
  for (int peer = 0; peer < size_; ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * frame_bytes;
    if (peer != rank_) coming_.read(at, in + at, frame_bytes);
  }
  return true;
}

void NcclFrames::add_in_order(const Collective& collective, const std::byte* parts,
                              std::size_t stride, std::size_t bytes, std::byte* sum) {
  LOCKSTEP_CHECK(collective.factor == 1.0);  // An NCCL group does not scale.
  LOCKSTEP_CHECK_LE(bytes, stride);
  LOCKSTEP_CHECK_EQ(bytes % size_of(collective.dtype), 0u);
  const auto ranks = static_cast<std::size_t>(size_);
  if (collective.dtype == DType::kInt32) return add_integers(parts, stride, bytes, ranks, sum);
  const std::size_t all = (ranks + 1) * bytes;
  if (!parts_ || parts_->bytes() < all) {
    Result<Ref<Storage>> storage = host_.allocate(grown_size(all));
    if (!storage) throw std::bad_alloc();
    parts_ = std::move(*storage);
  }
  for (std::size_t r = 0; r < ranks; ++r)
    std::memcpy(parts_->data() + r * bytes, parts + r * stride, bytes);
  const auto elements = static_cast<std::int64_t>(bytes / size_of(collective.dtype));
  const Tensor from(parts_, 0, collective.dtype, Shape::row_major({elements * size_}));
  const Tensor to(parts_, elements * size_, collective.dtype, Shape::row_major({elements}));
  host_.reduce_in_rank_order({&host_, 0}, from, to, 1.0);
  std::memcpy(sum, to.data(), bytes);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
