#include "faults/sim/frames.h"

#include <algorithm>
#include <cstring>

#include "faults/sim/arithmetic.h"

namespace lockstep::inline LOCKSTEP_NS::simulated {

// kNone: it is not of this group.
int SimFrames::member(std::uint32_t world_rank) const {
  for (int rank = 0; rank < size(); ++rank)
    if (mesh_.world_rank(rank) == world_rank) return rank;
  return kNone;
}

// Faults of one exchange may undo each other: what has fired is seen when all have acted.
void SimFrames::corrupt(const std::vector<faults::Fault>& planned, const faults::Frames& out) {
  const std::vector<std::byte> meant(out.bytes.begin(), out.bytes.end());
  const faults::Frames before{before_.bytes, before_.frame_bytes};
  for (const faults::Fault& fault : planned)
    if (const int peer = member(fault.peer); peer != kNone)
      faults::corrupt(fault, static_cast<std::size_t>(peer), out, before);
  for (const faults::Fault& fault : planned) {
    const int peer = member(fault.peer);
    if (peer == kNone) continue;
    const std::span<std::byte> frame = out.at(static_cast<std::size_t>(peer));
    const auto offset = frame.data() - out.bytes.data();
    if (!std::equal(frame.begin(), frame.end(), meant.begin() + offset))
      injector_.note_effect(fault);
  }
}

void SimFrames::act_on(const faults::Frames& out) {
  const std::vector<faults::Fault> planned = injector_.on_exchange(mesh_.world_rank(rank()));
  std::vector<std::byte> meant;
  if (injector_.has_stale()) meant.assign(out.bytes.begin(), out.bytes.end());
  if (!planned.empty()) corrupt(planned, out);
  if (!injector_.has_stale()) return;
  before_.bytes = std::move(meant);
  before_.frame_bytes = out.frame_bytes;
}

bool SimFrames::exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) {
  const auto own = static_cast<std::size_t>(rank());
  act_on({std::span(out, static_cast<std::size_t>(size()) * frame_bytes), frame_bytes});
  std::memcpy(in + own * frame_bytes, out + own * frame_bytes, frame_bytes);
  ++part_;
  const auto frame = [frame_bytes](std::byte* frames, int of) {
    return std::span(frames + static_cast<std::size_t>(of) * frame_bytes, frame_bytes);
  };
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && !exchange_.send(peer, part_, frame(out, peer))) return false;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && !exchange_.receive(peer, part_, frame(in, peer))) return false;
  return true;
}

void SimFrames::add_in_order(const Collective& collective, const std::byte* parts,
                             std::size_t stride, std::size_t bytes, std::byte* sum) {
  std::memcpy(sum, parts, bytes);
  for (int r = 1; r < size(); ++r)
    sum_into(collective.dtype, sum, parts + static_cast<std::size_t>(r) * stride, bytes);
}

}  // namespace lockstep::inline LOCKSTEP_NS::simulated
