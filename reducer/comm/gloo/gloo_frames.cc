#include "reducer/comm/gloo/gloo_frames.h"

#include <gloo/alltoall.h>

#include "reducer/comm/gloo/collectives.h"

namespace lockstep::inline LOCKSTEP_NS {

// Both exchanges of a collective have one tag: messages of one tag keep their order on a
// connection, and a rank receives those of the second when it has all of the first.
bool GlooFrames::exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) {
  const std::size_t all = static_cast<std::size_t>(size()) * frame_bytes;
  ::gloo::AlltoallOptions gloo(context_);
  gloo.setInput<std::uint8_t>(context_->createUnboundBuffer(out, all));
  gloo.setOutput<std::uint8_t>(context_->createUnboundBuffer(in, all));
  gloo.setTag(tag_);
  ::gloo::alltoall(gloo);
  return true;
}

void GlooFrames::add_in_order(const Collective& collective, const std::byte* parts,
                              std::size_t stride, std::size_t bytes, std::byte* sum) {
  lockstep::add_in_order(collective, parts, stride, bytes, static_cast<std::uint64_t>(size()), sum);
}

}  // namespace lockstep::inline LOCKSTEP_NS
