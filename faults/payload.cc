#include "faults/payload.h"

#include <algorithm>

namespace lockstep::faults {

void corrupt(const Fault& fault, std::size_t peer, const Frames& frames, const Frames& before) {
  if (peer >= frames.count()) return;
  const std::span<std::byte> frame = frames.at(peer);
  const std::size_t bytes = frame.size();
  switch (fault.kind) {
    case Kind::kPayloadFlip: {
      const std::size_t bit = fault.at % (8 * bytes);
      frame[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      break;
    }
    case Kind::kPayloadTruncate:
      std::fill(frame.begin() + static_cast<std::ptrdiff_t>(fault.at % bytes), frame.end(),
                std::byte{0});
      break;
    case Kind::kPayloadSwap: {
      const std::span<std::byte> next = frames.at((peer + 1) % frames.count());
      if (next.data() != frame.data()) std::swap_ranges(frame.begin(), frame.end(), next.begin());
      break;
    }
    case Kind::kPayloadStale: {
      if (peer >= before.count()) return;
      const std::span<std::byte> old = before.at(peer);
      std::copy_n(old.begin(), std::min(old.size(), bytes), frame.begin());
      break;
    }
    case Kind::kPayloadShift:
      std::rotate(frame.begin(),
                  frame.end() - static_cast<std::ptrdiff_t>((1 + std::size_t{fault.at}) % bytes),
                  frame.end());
      break;
    default:
      break;
  }
}

}  // namespace lockstep::faults
