// The operations of SimDevice: they queue HostDevice's arithmetic together with the bytes it
// accesses.
#include <algorithm>
#include <cstring>

#include "faults/sim/device/sim_device.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {
namespace {

// Adds the ranges of memory that contain the elements: one range if they are dense, and otherwise
// one per gap, so that interleaved views are not confused.
void add_touches(std::vector<Touch>& touches, const std::byte* data, DType dtype,
                 const Shape& shape, bool is_write) {
  const auto count = static_cast<std::size_t>(shape.elements());
  const std::size_t bytes = size_of(dtype);
  if (count == 0) return;
  if (shape.is_dense()) {
    touches.push_back({data, count * bytes, is_write});
    return;
  }
  std::vector<std::int64_t> offsets{0};
  offsets.reserve(count);
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.dims); ++d) {
    const std::size_t inner = offsets.size();
    for (std::int64_t i = 1; i < shape.sizes[d]; ++i)
      for (std::size_t at = 0; at < inner; ++at)
        offsets.push_back(offsets[at] + i * shape.strides[d]);
  }
  std::sort(offsets.begin(), offsets.end());
  offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
  for (std::size_t first = 0; first < offsets.size();) {
    std::size_t last = first + 1;
    while (last < offsets.size() && offsets[last] == offsets[last - 1] + 1) ++last;
    touches.push_back({data + offsets[first] * static_cast<std::int64_t>(bytes),
                       (last - first) * bytes, is_write});
    first = last;
  }
}

void add_touches(std::vector<Touch>& touches, const Tensor& tensor, bool is_write) {
  add_touches(touches, tensor.data(), tensor.dtype(), tensor.shape(), is_write);
}

std::vector<Touch> from_to(const Tensor& from, const Tensor& to) {
  std::vector<Touch> touches;
  add_touches(touches, from, false);
  add_touches(touches, to, true);
  return touches;
}

// Copies of what the transfers point to, because the originals are gone when the operation runs.
struct KeptTransfer {
  Tensor gradient;
  std::byte* slot;
  Shape order;
};

std::vector<Transfer> transfers_of(const std::vector<KeptTransfer>& kept) {
  std::vector<Transfer> transfers;
  transfers.reserve(kept.size());
  for (const KeptTransfer& one : kept) transfers.push_back({&one.gradient, one.slot, &one.order});
  return transfers;
}

}  // namespace

Tensor SimDevice::borrowed(const Tensor& tensor) {
  const std::size_t bytes =
      static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype());
  return Tensor(make_ref<Storage>(borrowed_, tensor.data(), bytes), 0, tensor.dtype(),
                tensor.shape());
}

void SimDevice::fill_zero(const Stream& stream, std::byte* data, std::size_t bytes) {
  submit(stream, "fill_zero", {{data, bytes, true}}, [data, bytes] {
    if (bytes != 0) std::memset(data, 0, bytes);
  });
}

void SimDevice::copy(const Stream& stream, const Tensor& from, const Tensor& to) {
  LOCKSTEP_CHECK(from.dtype() == to.dtype());
  LOCKSTEP_CHECK(from.shape().same_sizes(to.shape()));
  submit(stream, "copy", from_to(from, to), [this, source = borrowed(from), target = borrowed(to)] {
    arithmetic_.copy({}, source, target);
  });
}

void SimDevice::add(const Stream& stream, const Tensor& from, const Tensor& to) {
  LOCKSTEP_CHECK(from.dtype() == to.dtype());
  LOCKSTEP_CHECK(from.shape().same_sizes(to.shape()));
  submit(stream, "add", from_to(from, to), [this, source = borrowed(from), target = borrowed(to)] {
    arithmetic_.add({}, source, target);
  });
}

void SimDevice::convert(const Stream& stream, const Tensor& from, const Tensor& to, double factor) {
  LOCKSTEP_CHECK(from.shape().same_sizes(to.shape()));
  submit(stream, "convert", from_to(from, to),
         [this, source = borrowed(from), target = borrowed(to), factor] {
           arithmetic_.convert({}, source, target, factor);
         });
}

void SimDevice::pack_bucket(const Stream& stream, std::span<const Transfer> transfers,
                            double factor) {
  std::vector<Touch> touches;
  std::vector<KeptTransfer> kept;
  for (const Transfer& one : transfers) {
    add_touches(touches, *one.gradient, false);
    add_touches(touches, one.slot, one.gradient->dtype(), *one.order, true);
    kept.push_back({borrowed(*one.gradient), one.slot, *one.order});
  }
  submit(stream, "pack_bucket", std::move(touches), [this, kept = std::move(kept), factor] {
    arithmetic_.pack_bucket({}, transfers_of(kept), factor);
  });
}

void SimDevice::unpack_bucket(const Stream& stream, std::span<const Transfer> transfers) {
  std::vector<Touch> touches;
  std::vector<KeptTransfer> kept;
  for (const Transfer& one : transfers) {
    add_touches(touches, one.slot, one.gradient->dtype(), *one.order, false);
    add_touches(touches, *one.gradient, true);
    kept.push_back({borrowed(*one.gradient), one.slot, *one.order});
  }
  submit(stream, "unpack_bucket", std::move(touches),
         [this, kept = std::move(kept)] { arithmetic_.unpack_bucket({}, transfers_of(kept)); });
}

void SimDevice::reduce_in_rank_order(const Stream& stream, const Tensor& from, const Tensor& to,
                                     double factor) {
  submit(stream, "reduce_in_rank_order", from_to(from, to),
         [this, source = borrowed(from), target = borrowed(to), factor] {
           arithmetic_.reduce_in_rank_order({}, source, target, factor);
         });
}

void SimDevice::upload(const Stream& stream, const PinnedMemory& from, std::size_t offset,
                       std::byte* to, std::size_t bytes) {
  LOCKSTEP_CHECK_LE(offset, from.bytes());
  LOCKSTEP_CHECK_LE(bytes, from.bytes() - offset);
  upload(stream, from.data() + offset, to, bytes);
}

void SimDevice::download(const Stream& stream, const std::byte* from, const PinnedMemory& to,
                         std::size_t offset, std::size_t bytes) {
  LOCKSTEP_CHECK_LE(offset, to.bytes());
  LOCKSTEP_CHECK_LE(bytes, to.bytes() - offset);
  download(stream, from, to.data() + offset, bytes);
}

void SimDevice::upload(const Stream& stream, const std::byte* from, std::byte* to,
                       std::size_t bytes) {
  bool is_pinned = false;
  {
    platform::MutexLock lock(mutex_);
    is_pinned = bytes == 0 || memory_.find(from) != nullptr;  // no bytes: no memory need be there
  }
  if (is_pinned) {
    submit(stream, "upload", {{from, bytes, false}, {to, bytes, true}},
           [from, to, bytes] { std::memcpy(to, from, bytes); });
    return;
  }
  submit(stream, "upload", {{to, bytes, true}},
         [staged = std::vector<std::byte>(from, from + bytes), to] {
           std::copy(staged.begin(), staged.end(), to);
         });
}

void SimDevice::download(const Stream& stream, const std::byte* from, std::byte* to,
                         std::size_t bytes) {
  bool is_pinned = false;
  {
    platform::MutexLock lock(mutex_);
    is_pinned = bytes == 0 || memory_.find(to) != nullptr;  // no bytes: no memory need be there
  }
  std::vector<Touch> touches{{from, bytes, false}};
  if (is_pinned) touches.push_back({to, bytes, true});
  submit(stream, "download", std::move(touches),
         [from, to, bytes] { std::memcpy(to, from, bytes); });
  // A failure is reported when the caller waits for the stream.
  if (!is_pinned) synchronize(record(stream), platform::Deadline::never()).ignore();
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
