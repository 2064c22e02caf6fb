// Seal is the header of every piece of a verified collective (F3). It tells the receiver whether
// the piece is the expected one, whole and unchanged. If it is not, the seal tells what arrived
// instead: a piece of an earlier collective, one for another rank, or bytes that nobody sent.
//
// The receiver knows every field but the checksum beforehand. A frame is a seal and its payload,
// padded with zeros. The checksum covers all of that, so that no byte of a frame can change without
// being noticed (except with probability 2^-64).
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
  std::uint64_t checksum = 0;  // XXH3 of the other fields and the payload.
  std::uint64_t group = 0;     // Identifies the group, among those that use a connection in turn.
  std::int64_t sequence = 0;   // The sequence number of the collective in the group.
  std::uint64_t bytes = 0;     // The bytes of the payload, without padding.
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::uint32_t step = 0;  // The number of the exchange; a collective has one or two.
  std::uint32_t magic = 0x4c53'5331;
  std::uint64_t zeros[2] = {};  // The payload behind the seal is aligned to 64 bytes.
  bool operator==(const Seal&) const = default;
};
constexpr std::size_t kSealBytes = 64;
static_assert(sizeof(Seal) == kSealBytes && std::has_unique_object_representations_v<Seal>);

// Writes the seal to the beginning of a frame that holds its payload already.
void put_seal(Seal seal, std::byte* frame, std::size_t frame_bytes);

// Describes what is wrong with a frame that should have this seal; empty if nothing is.
std::string flaw_of(const Seal& expected, const std::byte* frame, std::size_t frame_bytes);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
