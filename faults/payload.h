// Carries out payload faults (plan.h) on the frames that one rank is about to send, for any
// network. Threads: as Injector says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "faults/injector.h"
#include "faults/plan.h"

namespace lockstep::faults {

// Frame r goes to rank r of the group. All frames have one length.
struct Frames {
  std::span<std::byte> bytes;
  std::size_t frame_bytes = 0;

  std::size_t count() const { return frame_bytes == 0 ? 0 : bytes.size() / frame_bytes; }
  std::span<std::byte> at(std::size_t rank) const {
    return bytes.subspan(rank * frame_bytes, frame_bytes);
  }
};

// The frames that a rank sent last on a connection. They are stored only while the plan has a fault
// that sends them again.
struct SentBefore {
  std::vector<std::byte> bytes;
  std::size_t frame_bytes = 0;
};

// Applies to `out` the faults that the plan has for this exchange of `rank`. `members` lists the
// group's ranks as ranks of the plan. Reports to the injector each fault that changed the bytes.
void disturb(Injector& injector, std::uint32_t rank, std::span<const std::uint32_t> members,
             const Frames& out, SentBefore& before);

// Applies one fault. `peer` is a rank of the group. `before` may have any length, or be empty.
void corrupt(const Fault& fault, std::size_t peer, const Frames& frames, const Frames& before);

}  // namespace lockstep::faults
