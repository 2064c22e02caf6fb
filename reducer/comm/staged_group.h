// StagedGroup makes a group that reaches only host memory work on the memory of a device. It copies
// what is to be sent to pinned memory, runs the collective of the group there, and copies the
// result back. With it, Gloo trains GPUs that have no NCCL between them, and verified collectives
// (F3) work on GPUs, at the cost of two copies of each bucket over the bus.
//
// Collectives of host memory go through it too, in one order with the others. The copies of one
// collective overlap with the communication of another.
// Threads: as ProcessGroup says. The class has two threads of its own, which end with it, and a
// stream of the device.
// Ownership: the group is shared, and nobody else starts anything in it; the device outlives this
// object.
// Memory: pinned memory for each collective that is in flight at once, which later collectives use
// again.
// Failure: those of the group. A device that fails, or does not finish within the group's timeout,
// aborts the group; the error names this rank, and is definite if the device failed. A Work
// completes when the device no longer uses the caller's memory, as far as the device answers.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "reducer/comm/process_group.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class StagedGroup final : public ProcessGroup {
 public:
  static Result<std::unique_ptr<StagedGroup>> create(std::shared_ptr<ProcessGroup> group,
                                                     Device& device);
  ~StagedGroup() override;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  bool can_reduce(DType dtype) const override { return group_->can_reduce(dtype); }
  bool can_scale(DType dtype) const override { return group_->can_scale(dtype); }
  bool can_verify() const override { return group_->can_verify(); }
  bool can_reach(const Device& device) const override {
    return &device == &device_ || group_->can_reach(device);
  }
  Status start(const Collective& collective, Work& work) override;
  void abort(const Status& cause) override;
  // Whatever ends this group ends the one that it stands on, and that one may have failed before.
  Status health() const override { return group_->health(); }
  platform::Duration timeout() const override { return group_->timeout(); }
  std::uint64_t progress() const override { return group_->progress(); }

 private:
  struct Entry {
    Collective collective;
    Work* work = nullptr;
    bool is_staged = false;
    platform::Deadline deadline = platform::Deadline::never();
    Event downloaded;
    PinnedMemory data;
    PinnedMemory gathered;
    Work sent;
  };
  using Entries = std::deque<std::unique_ptr<Entry>>;

  StagedGroup(std::shared_ptr<ProcessGroup> group, Device& device, const Stream& stream);
  Status stage(Entry& entry);
  void send();
  void receive();
  Status begin(Entry& entry);
  Status own(Status status) const;
  Status cause();
  bool is_stuck();
  Status finish(Entry& entry);
  void end(std::unique_ptr<Entry> entry, Status status);
  std::unique_ptr<Entry> next(Entries StagedGroup::*queue, bool StagedGroup::*is_closed);

  const std::shared_ptr<ProcessGroup> group_;
  Device& device_;
  const Stream stream_;

  // Lock order: starting_ is outermost; the locks of the group are never taken inside of either.
  platform::Mutex starting_{"staged.starting"};  // Serializes the submission of downloads.
  platform::Mutex mutex_{"staged"};
  platform::CondVar changed_{"staged"};
  Entries to_send_ LOCKSTEP_GUARDED_BY(mutex_);
  Entries to_receive_ LOCKSTEP_GUARDED_BY(mutex_);
  Entries spare_ LOCKSTEP_GUARDED_BY(mutex_);
  // Entries whose memory the device may still use; they stay until the group ends.
  Entries stuck_ LOCKSTEP_GUARDED_BY(mutex_);
  std::size_t in_flight_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::int64_t next_sequence_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  Status cause_ LOCKSTEP_GUARDED_BY(mutex_);  // The cause of the group's death.
  bool is_closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  // True when nothing more will be sent.
  bool is_sent_ LOCKSTEP_GUARDED_BY(mutex_) = false;

  platform::Thread sender_;
  platform::Thread receiver_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
