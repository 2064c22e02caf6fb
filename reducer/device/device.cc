#include "reducer/device/device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Pinned memory is expensive, and the device keeps it, so large data is copied in pieces.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

// Waits for a copy of `pinned`. If the copy does not end in time, `pinned` stays in its use.
Status wait_for_copy(Device& device, const Stream& stream, PinnedMemory& pinned,
                     platform::Deadline deadline) {
  Status status = device.synchronize(device.record(stream), deadline);
  if (status.code() == Code::kTimeout) pinned.abandon();
  return status;
}

}  // namespace

void PinnedMemory::swap(PinnedMemory& other) {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(capacity_, other.capacity_);
}

PinnedMemory::~PinnedMemory() {
  if (device_ != nullptr) device_->release_pinned(data_, capacity_);
}

std::byte* PinnedMemory::to_write(std::size_t offset, std::size_t bytes) const {
  LOCKSTEP_CHECK_LE(offset, bytes_);
  LOCKSTEP_CHECK_LE(bytes, bytes_ - offset);
  if (bytes > 0) device_->note_host_write(data_ + offset, bytes);
  return data_ + offset;
}

void PinnedMemory::write(std::size_t offset, const void* from, std::size_t bytes) const {
  std::byte* const to = to_write(offset, bytes);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void PinnedMemory::read(std::size_t offset, void* into, std::size_t bytes) const {
  LOCKSTEP_CHECK_LE(offset, bytes_);
  LOCKSTEP_CHECK_LE(bytes, bytes_ - offset);
  if (bytes == 0) return;
  device_->note_host_read(data_ + offset, bytes);
  std::memcpy(into, data_ + offset, bytes);
}

Status write(Device& device, std::span<const std::byte> from, std::byte* to,
             platform::Deadline deadline) {
  if (from.empty()) return {};
  Result<PinnedMemory> pinned = device.allocate_pinned(std::min(from.size(), kPieceBytes));
  if (!pinned) return pinned.error();
  LOCKSTEP_CHECK(pinned->bytes() > 0);
  const Stream stream = device.current_stream();
  for (std::size_t at = 0; at < from.size(); at += pinned->bytes()) {
    const std::size_t bytes = std::min(pinned->bytes(), from.size() - at);
    pinned->write(0, from.data() + at, bytes);
    device.upload(stream, *pinned, 0, to + at, bytes);
    LOCKSTEP_RETURN_IF_ERROR(wait_for_copy(device, stream, *pinned, deadline));
  }
  return {};
}

Status read(Device& device, const std::byte* from, std::span<std::byte> to,
            platform::Deadline deadline) {
  if (to.empty()) return {};
  Result<PinnedMemory> pinned = device.allocate_pinned(std::min(to.size(), kPieceBytes));
  if (!pinned) return pinned.error();
  LOCKSTEP_CHECK(pinned->bytes() > 0);
  const Stream stream = device.current_stream();
  for (std::size_t at = 0; at < to.size(); at += pinned->bytes()) {
    const std::size_t bytes = std::min(pinned->bytes(), to.size() - at);
    device.download(stream, from + at, *pinned, 0, bytes);
    LOCKSTEP_RETURN_IF_ERROR(wait_for_copy(device, stream, *pinned, deadline));
    pinned->read(0, to.data() + at, bytes);
  }
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
