#include "faults/sim/frames.h"

#include <cstring>

#include "faults/sim/arithmetic.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

bool SimFrames::exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) {
  const std::span<std::byte> all(out, static_cast<std::size_t>(size()) * frame_bytes);
  faults::disturb(injector_, mesh_.world_rank(rank()), mesh_.members(), {all, frame_bytes},
                  before_);
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

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
