#include "reducer/device/grow.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep {
inline namespace LOCKSTEP_NS {

std::size_t grown_size(std::size_t bytes) {
  constexpr std::size_t kLeast = 256;
  return std::bit_ceil(std::max(bytes, kLeast));
}

Status grow(Device& device, PinnedMemory& memory, std::size_t bytes) {
  if (memory.bytes() >= std::max<std::size_t>(bytes, 1)) return {};
  Result<PinnedMemory> larger = device.allocate_pinned(grown_size(bytes));
  if (!larger) return std::move(larger.error());
  memory = std::move(*larger);
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
