#include "faults/payload.h"

#include <algorithm>
#include <utility>

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

namespace {

// Faults of one exchange may undo each other, so what has fired is determined after all have acted.
void corrupt_all(const std::vector<Fault>& planned, Injector& injector,
                 std::span<const std::uint32_t> members, const Frames& out, const Frames& before) {
  const std::vector<std::byte> meant(out.bytes.begin(), out.bytes.end());
  // Returns the position of the fault's peer among the members, or their number if it is none.
  const auto rank_of = [members](const Fault& fault) {
    return static_cast<std::size_t>(std::find(members.begin(), members.end(), fault.peer) -
                                    members.begin());
  };
  for (const Fault& fault : planned) corrupt(fault, rank_of(fault), out, before);
  for (const Fault& fault : planned) {
    const std::size_t peer = rank_of(fault);
    if (peer >= out.count()) continue;
    const std::span<std::byte> frame = out.at(peer);
    const auto offset = static_cast<std::ptrdiff_t>(peer * out.frame_bytes);
    if (!std::equal(frame.begin(), frame.end(), meant.begin() + offset))
      injector.note_effect(fault);
  }
}

}  // namespace

void disturb(Injector& injector, std::uint32_t rank, std::span<const std::uint32_t> members,
             const Frames& out, SentBefore& before) {
  const std::vector<Fault> planned = injector.on_exchange(rank);
  std::vector<std::byte> meant;
  if (injector.has_stale()) meant.assign(out.bytes.begin(), out.bytes.end());
  if (!planned.empty())
    corrupt_all(planned, injector, members, out, {before.bytes, before.frame_bytes});
  if (!injector.has_stale()) return;
  before.bytes = std::move(meant);
  before.frame_bytes = out.frame_bytes;
}

}  // namespace lockstep::faults
