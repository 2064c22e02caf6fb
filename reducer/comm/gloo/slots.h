// The slots of messages that are ours. A slot tells the messages on one connection apart; Gloo's
// own collectives use those whose highest byte is 1 to 8.
#pragma once

#include <cstdint>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

enum class Channel : std::uint8_t {
  kNeighbours = 0x71,  // headers to the neighbours, or to everyone in small groups
  kOthers = 0x72,      // headers to the rest
  kNotice = 0x73,
  kHello = 0x74,
  kProbe = 0x75,  // never sent
  kRollCall = 0x76,
};

constexpr std::uint64_t slot_of(Channel channel, std::uint32_t tag = 0) {
  return static_cast<std::uint64_t>(channel) << 56 | static_cast<std::uint64_t>(tag) << 24;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
