// StagingStream copies the data of collectives between a device and pinned memory, on a stream of
// its own.
//
// Threads: any. The lock serializes the submissions to the stream; no copy is waited for with it.
// Ownership: the device outlives this object, which returns the stream to it by give_back() alone,
// when nothing uses the stream any more.
#pragma once

#include "reducer/comm/process_group.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class StagingStream {
 public:
  // The pinned memory of one collective. Later collectives use it again.
  struct Memory {
    PinnedMemory data;
    PinnedMemory gathered;
  };

  // For a rank of a group of `size` ranks.
  StagingStream(Device& device, const Stream& stream, int rank, int size);

  // Submits the copy of what this rank sends to `memory`, behind `ready` of the collective, whose
  // data lies on the device. `memory` grows to what the collective needs. Returns the event at
  // which the copy is done.
  Result<Event> download(const Collective& collective, Memory& memory);
  // Submits the copy of the result back to the caller's memory.
  void upload(const Collective& collective, const Memory& memory);
  // An event behind everything that was submitted.
  Event record();
  Status synchronize(const Event& event, platform::Deadline deadline) {
    return device_.synchronize(event, deadline);
  }

  bool is_of(const Device& device) const { return &device == &device_; }
  void give_back() { device_.give_back(stream_); }

 private:
  // The bytes that all ranks contribute to an all-gather.
  std::size_t gathered_bytes(const Collective& collective) const;

  Device& device_;
  const Stream stream_;
  const int rank_;
  const int size_;
  platform::Mutex submitting_{"staged.starting"};
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
