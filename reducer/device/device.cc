#include "reducer/device/device.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::inline LOCKSTEP_NS {
namespace {

// Pinned memory is dear, and stays the device's: large things go in pieces.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

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

Status write(Device& device, std::span<const std::byte> from, std::byte* to,
             platform::Deadline deadline) {
  if (from.empty()) return {};
  Result<PinnedMemory> pinned = device.allocate_pinned(std::min(from.size(), kPieceBytes));
  if (!pinned) return pinned.error();
  const Stream stream = device.current_stream();
  for (std::size_t at = 0; at < from.size(); at += pinned->bytes()) {
    const std::size_t bytes = std::min(pinned->bytes(), from.size() - at);
    std::memcpy(pinned->data(), from.data() + at, bytes);
    device.upload(stream, *pinned, 0, to + at, bytes);
    LOCKSTEP_RETURN_IF_ERROR(device.synchronize(device.record(stream), deadline));
  }
  return {};
}

Status read(Device& device, const std::byte* from, std::span<std::byte> to,
            platform::Deadline deadline) {
  if (to.empty()) return {};
  Result<PinnedMemory> pinned = device.allocate_pinned(std::min(to.size(), kPieceBytes));
  if (!pinned) return pinned.error();
  const Stream stream = device.current_stream();
  for (std::size_t at = 0; at < to.size(); at += pinned->bytes()) {
    const std::size_t bytes = std::min(pinned->bytes(), to.size() - at);
    device.download(stream, from + at, *pinned, 0, bytes);
    LOCKSTEP_RETURN_IF_ERROR(device.synchronize(device.record(stream), deadline));
    std::memcpy(to.data() + at, pinned->data(), bytes);
  }
  return {};
}

}  // namespace lockstep::inline LOCKSTEP_NS
