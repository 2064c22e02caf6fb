#include "reducer/device/grow.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::size_t kLeastBytes = 256;

}  // namespace

Status grow(Device& device, PinnedMemory& memory, std::size_t bytes) {
  if (memory.bytes() >= std::max<std::size_t>(bytes, 1)) return {};
  Result<PinnedMemory> larger = device.allocate_pinned(std::bit_ceil(std::max(bytes, kLeastBytes)));
  if (!larger) return std::move(larger.error());
  memory = std::move(*larger);
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
