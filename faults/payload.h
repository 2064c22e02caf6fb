// Payload faults (plan.h) carried out: what they make of the frames that one rank is about to send.
// Frame r of `frames` is for rank r of the group, all have one length; `before` are the frames of
// the exchange before, of any length, or empty. Pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "faults/plan.h"

namespace lockstep::faults {

struct Frames {
  std::span<std::byte> bytes;
  std::size_t frame_bytes = 0;

  std::size_t count() const { return frame_bytes == 0 ? 0 : bytes.size() / frame_bytes; }
  std::span<std::byte> at(std::size_t rank) const {
    return bytes.subspan(rank * frame_bytes, frame_bytes);
  }
};

// `peer` is a rank of the group.
void corrupt(const Fault& fault, std::size_t peer, const Frames& frames, const Frames& before);

}  // namespace lockstep::faults
