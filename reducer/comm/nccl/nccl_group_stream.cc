#include "reducer/comm/nccl/nccl_group_stream.h"

#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

NcclGroupStream::NcclGroupStream(NcclLink& link, Device& device, const Stream& stream, int rank,
                                 int size, NcclFrames::Settle settle)
    : device_(device),
      stream_(stream),
      size_(size),
      payload_(link, device, stream, rank, size),
      frames_(payload_, device, stream, rank, size, std::move(settle)),
      headers_(link, device, stream, rank, size) {}

bool NcclGroupStream::is_checked(const Collective& collective) const {
  return collective.verify && collective.count > 0 && size_ > 1;
}

// A verified collective goes through the memory of the frames.
bool NcclGroupStream::needs_stage(const Collective& collective) const {
  return payload_.is_staged(collective) && !is_checked(collective);
}

int NcclGroupStream::choose_stage(const Collective& collective) {
  LOCKSTEP_CHECK(can_stage(collective));
  return needs_stage(collective) ? payload_.take_stage() : kNone;
}

Result<Event> NcclGroupStream::submit(const Collective& collective, const CollectiveId& id,
                                      int stage) {
  LOCKSTEP_CHECK_EQ(stage != kNone, needs_stage(collective));
  // The stream waits, and not this thread. A device on the host has done all work (is_host()).
  if (collective.ready.device == &device_) device_.wait(stream_, collective.ready);
  Status status;
  if (is_checked(collective)) {
    status = frames_.run(collective, id);
  } else if (stage != kNone) {
    status = payload_.submit_staged(collective, stage);
  } else {
    status = payload_.submit(collective);
  }
  if (!status.ok()) return failed(std::move(status));
  return device_.record(stream_);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
