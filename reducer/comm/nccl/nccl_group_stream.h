// NcclGroupStream is what a group has on its GPU: the stream, and how the header and the payload of
// a collective are submitted to it.
//
// Threads: submit_header(), submit() and choose_stage() by the issuing thread; compare_headers()
// and fill_host() by the watchdog. can_stage(), choose_stage() and give_back() under the mutex of
// the group. record() and synchronize() by any thread, but only one thread at a time submits.
// Failure: that of the device, or of NcclLink.
// Ownership: the stream is borrowed from the device, and goes back to it with this object.
// Everything in flight must have ended by then; a group that is stuck is never destroyed, and keeps
// its stream.
#pragma once

#include "reducer/comm/nccl/nccl_frames.h"
#include "reducer/comm/nccl/nccl_header_exchange.h"
#include "reducer/comm/nccl/nccl_payload.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclGroupStream {
 public:
  // `settle` waits for what was submitted, see NcclFrames.
  NcclGroupStream(NcclLink& link, Device& device, const Stream& stream, int rank, int size,
                  NcclFrames::Settle settle);

  // Allocates what every collective needs. Call it before the first submission.
  Status reserve() { return headers_.reserve(); }

  // Whether the collective can be submitted now: it may need memory of which all is taken.
  bool can_stage(const Collective& collective) const {
    return !needs_stage(collective) || payload_.has_stage();
  }
  // Takes a stage for a collective that needs one; kNone for others. Requires can_stage().
  int choose_stage(const Collective& collective);
  void give_back(int stage) { payload_.give_back(stage); }

  // Submits the exchange of headers, and returns the event at which they are here.
  Result<Event> submit_header(const CollectiveHeader& own) { return headers_.submit(own); }
  Status compare_headers(const CollectiveHeader& own) { return headers_.compare(own); }
  // Submits the payload behind `ready` of the collective, and returns the event at which it is
  // done. A verified collective has run when this returns.
  Result<Event> submit(const Collective& collective, const CollectiveId& id, int stage);
  // Copies the result of a staged collective to the caller's memory, after its event has come.
  void fill_host(const Collective& collective, int stage) { payload_.fill_host(collective, stage); }

  Device& device() const { return device_; }
  Event record() { return device_.record(stream_); }
  Status synchronize(const Event& event, platform::Deadline deadline) {
    return device_.synchronize(event, deadline);
  }

 private:
  struct BorrowedStream {
    Device& device;
    const Stream stream;
    ~BorrowedStream() { device.give_back(stream); }
  };
  bool is_checked(const Collective& collective) const;
  bool needs_stage(const Collective& collective) const;

  Device& device_;
  const Stream stream_;
  const BorrowedStream borrowed_{device_, stream_};  // Declared before everything that uses it.
  const int size_;
  NcclPayload payload_;
  NcclFrames frames_;
  NcclHeaderExchange headers_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
