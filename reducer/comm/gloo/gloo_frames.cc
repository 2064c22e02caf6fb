#include "reducer/comm/gloo/gloo_frames.h"

#include <gloo/types.h>

#include "reducer/base/check.h"
#include "reducer/comm/reduce_functions.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// This works like gloo::alltoall. Both exchanges of a collective have one tag: messages of one tag
// keep their order on a connection, and a rank receives those of the second exchange after all of
// the first.
bool GlooFrames::exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) {
  const auto world = static_cast<std::size_t>(size());
  const auto self = static_cast<std::size_t>(rank());
  LOCKSTEP_CHECK_LT(self, world);
  LOCKSTEP_CHECK_LT(0u, frame_bytes);
  const auto slot = ::gloo::Slot::build(::gloo::kAlltoallSlotPrefix, tag_);
  const auto sender = context_->createUnboundBuffer(out, world * frame_bytes);
  const auto receiver = context_->createUnboundBuffer(in, world * frame_bytes);
  for (std::size_t i = 1; i < world; ++i) {
    const std::size_t from = (self + world - i) % world;
    receiver->recv(static_cast<int>(from), slot, from * frame_bytes, frame_bytes);
  }
  for (std::size_t i = 1; i < world; ++i) {
    const std::size_t to = (self + i) % world;
    sender->send(static_cast<int>(to), slot, to * frame_bytes, frame_bytes);
  }
  for (std::size_t i = 1; i < world; ++i) {
    sender->waitSend(context_->getTimeout());
    receiver->waitRecv(context_->getTimeout());
  }
  return true;
}

void GlooFrames::add_in_order(const Collective& collective, const std::byte* parts,
                              std::size_t stride, std::size_t bytes, std::byte* sum) {
  lockstep::add_in_order(collective, parts, stride, bytes, static_cast<std::uint64_t>(size()), sum);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
