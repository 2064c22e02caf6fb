// Seal: what travels before every shard of a verified collective (F3), so that whoever receives it
// knows whether it is the shard that was to come, whole and unchanged, and if not, what it is
// instead: one of an earlier collective, one for another rank, or bytes that nobody sent.
//
// The receiver knows every field but the checksum beforehand. A frame is a seal and its payload,
// filled up with zeros; the checksum is of all of that, so that no byte of a frame can change
// without being noticed (but for one change in 2^64).
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct Seal {
  std::uint64_t checksum = 0;  // XXH3, of the other fields and the payload
  std::uint64_t group = 0;     // which of the groups that use a connection in turn
  std::int64_t sequence = 0;   // of the collective in the group
  std::int64_t pass = 0;
  std::int64_t reducer_id = 0;
  std::uint64_t bytes = 0;  // of the payload, without what fills it up
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::uint32_t step = 0;  // a collective has one or two exchanges
  std::uint32_t magic = 0x4c53'5331;
  bool operator==(const Seal&) const = default;
};
constexpr std::size_t kSealBytes = 64;
static_assert(sizeof(Seal) == kSealBytes && std::has_unique_object_representations_v<Seal>);

// Writes the seal at the beginning of a frame whose payload is there already.
void put_seal(Seal seal, std::byte* frame, std::size_t frame_bytes);

// What is wrong with a frame that should have this seal, in words; empty if nothing is.
std::string flaw_of(const Seal& expected, const std::byte* frame, std::size_t frame_bytes);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
