// Payload faults (plan.h) carried out: what they make of the frames that one rank is about to send,
// whatever network they travel on. Threads: as the injector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "faults/injector.h"
#include "faults/plan.h"

namespace lockstep::faults {

// Frame r is for rank r of the group; all have one length.
struct Frames {
  std::span<std::byte> bytes;
  std::size_t frame_bytes = 0;

  std::size_t count() const { return frame_bytes == 0 ? 0 : bytes.size() / frame_bytes; }
  std::span<std::byte> at(std::size_t rank) const {
    return bytes.subspan(rank * frame_bytes, frame_bytes);
  }
};

// What a rank sent last on a connection. Kept only while a plan has a fault that sends it again.
struct SentBefore {
  std::vector<std::byte> bytes;
  std::size_t frame_bytes = 0;
};

// Does to `out` what the plan has in store for this exchange of `rank`, in a group of `members`
// (ranks of the plan), and tells the injector what came to anything.
void disturb(Injector& injector, std::uint32_t rank, std::span<const std::uint32_t> members,
             const Frames& out, SentBefore& before);

// One fault. `peer` is a rank of the group; `before` may have any length, or be empty.
void corrupt(const Fault& fault, std::size_t peer, const Frames& frames, const Frames& before);

}  // namespace lockstep::faults
