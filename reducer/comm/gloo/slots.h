// The slots of our own messages. A slot distinguishes the messages on one connection; Gloo's own
// collectives use slots whose highest byte is 1 to 8.
#pragma once

#include <cstdint>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

enum class Channel : std::uint8_t {
  kNeighbours = 0x71,  // Headers to the neighbours, or to all ranks in small groups.
  kOthers = 0x72,      // Headers to the remaining ranks.
  kNotice = 0x73,
  kHello = 0x74,
  kProbe = 0x75,  // Never sent.
  kRollCall = 0x76,
};

constexpr std::uint64_t slot_of(Channel channel, std::uint32_t tag = 0) {
  return static_cast<std::uint64_t>(channel) << 56 | static_cast<std::uint64_t>(tag) << 24;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
