#include "reducer/comm/seal.h"

#define XXH_INLINE_ALL  // Only the header is needed.
#include <xxhash.h>

#include <cstring>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::uint64_t checksum_of(Seal seal, const std::byte* payload, std::size_t bytes) {
  seal.checksum = 0;
  return XXH3_64bits_withSeed(payload, bytes, XXH3_64bits(&seal, sizeof seal));
}

// Describes another message that arrived whole.
std::string describe(const Seal& came, const Seal& expected) {
  std::string text = "it got what rank " + std::to_string(came.from) + " had for rank " +
                     std::to_string(came.to) + " in exchange " + std::to_string(came.step) +
                     " of collective " + std::to_string(came.sequence);
  if (came.group != expected.group) text += " of another group";
  return text + ", not what belongs to exchange " + std::to_string(expected.step) +
         " of collective " + std::to_string(expected.sequence);
}

}  // namespace

void put_seal(Seal seal, std::byte* frame, std::size_t frame_bytes) {
  LOCKSTEP_CHECK_LE(kSealBytes + seal.bytes, frame_bytes);
  seal.checksum = checksum_of(seal, frame + kSealBytes, frame_bytes - kSealBytes);
  std::memcpy(frame, &seal, sizeof seal);
}

std::string flaw_of(const Seal& expected, const std::byte* frame, std::size_t frame_bytes) {
  LOCKSTEP_CHECK_LE(kSealBytes + expected.bytes, frame_bytes);
  const std::byte* const payload = frame + kSealBytes;
  const std::size_t bytes = frame_bytes - kSealBytes;
  Seal came;
  std::memcpy(&came, frame, sizeof came);
  const bool is_whole = came.checksum == checksum_of(came, payload, bytes);
  Seal mine = expected;
  mine.checksum = came.checksum;
  if (is_whole && came == mine) return {};
  if (is_whole && came.magic == expected.magic) return describe(came, expected);
  return "the checksum does not fit: bytes were changed, moved or lost";
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
