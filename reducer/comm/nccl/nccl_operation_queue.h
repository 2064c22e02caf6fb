// NcclOperationQueue holds the operations of a group that were started and have not ended, in their
// order. start() pushes an operation, the issuing thread takes it and submits it to NCCL, and the
// watchdog pops it. As there is one stream, operations end in order, and the watchdog needs to look
// only at the oldest.
//
// An operation's number, from 0 on, is also the sequence number of its collective.
//
// Threads: under the mutex of the group. Without it, the issuing thread uses the operation that it
// has taken, until it has submitted it; then the watchdog does.
// Memory: that of OperationRing; operations do not move.
#pragma once

#include <cstdint>

#include "reducer/comm/operation_ring.h"
#include "reducer/comm/process_group.h"
#include "reducer/device/device.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct NcclOperation {
  enum class Stage : std::uint8_t { kQueued, kHeaderSubmitted, kSubmitted };

  Collective collective;
  Work* work = nullptr;
  platform::Deadline deadline = platform::Deadline::never();
  std::int64_t sequence = 0;
  Stage stage = Stage::kQueued;
  bool is_compared = false;  // Whether the headers of all ranks are equal, or need not be compared.
  int staged_in = kNone;     // The stage of NcclPayload that it has.
  Event header;              // All headers are here. Set from kHeaderSubmitted on.
  Event done;                // The stream has passed the payload. Set in kSubmitted.
};

class NcclOperationQueue {
 public:
  // The number of operations that are taken and have not ended is at most this.
  static constexpr std::uint64_t kWindow = 16;

  bool is_empty() const { return oldest_ == end_; }
  // The number of operations that were ever started, and the sequence number of the next one.
  std::int64_t started() const { return static_cast<std::int64_t>(end_); }

  // Adds an operation. It returns null, and adds nothing, if memory is refused.
  NcclOperation* push(const Collective& collective, Work& work);

  // The next operation that the issuing thread may take, or null if there is none, or if the window
  // is full. Not for a group that has failed.
  const NcclOperation* next() const;
  // Takes it; requires next(). The issuing thread calls end_issue() when it no longer touches the
  // operation's memory.
  NcclOperation& begin_issue();
  void end_issue();
  bool is_issuing() const { return is_issuing_; }

  // Requires !is_empty(). A failed group pops also operations that were never issued.
  NcclOperation& oldest();
  void pop_oldest();

 private:
  OperationRing<NcclOperation> operations_;
  // Counts that only grow: the operations in the ring are those from oldest_ to end_ - 1, and
  // next_ is the first one that was not taken.
  std::uint64_t oldest_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t end_ = 0;
  bool is_issuing_ = false;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
