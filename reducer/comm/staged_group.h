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
#include <list>
#include <memory>
#include <vector>

#include "reducer/comm/process_group.h"
#include "reducer/comm/staging_stream.h"
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
    return stream_.is_of(device) || group_->can_reach(device);
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
    StagingStream::Memory memory;
    Work sent;
  };
  // An entry moves from one list to the next, which allocates nothing: memory that is refused after
  // the device was asked to copy would be memory that is released while the device uses it.
  using Entries = std::list<Entry>;
  // Entries on their way to a thread, in their order. Under mutex_.
  class Queue {
   public:
    void push(Entries entry);            // one
    void close() { is_closed_ = true; }  // Nothing is pushed after this.
    // Whether there is an entry, or will never be one again.
    bool is_ready() const { return is_closed_ || !entries_.empty(); }
    // Returns the next entry, or none if there will never be one. Requires is_ready().
    Entries pop();

   private:
    Entries entries_;
    bool is_closed_ = false;
  };

  StagedGroup(std::shared_ptr<ProcessGroup> group, Device& device, const Stream& stream);
  Entries unused_entry() LOCKSTEP_REQUIRES(mutex_);

  // The sender runs these.
  void send();
  Entries next_to_send() LOCKSTEP_EXCLUDES(mutex_);
  Status begin(Entry& entry) LOCKSTEP_EXCLUDES(mutex_);

  // The receiver runs these.
  void receive();
  Entries next_to_receive() LOCKSTEP_EXCLUDES(mutex_);
  Status finish(Entry& entry) LOCKSTEP_EXCLUDES(mutex_);

  void end(Entries ended, Status status) LOCKSTEP_EXCLUDES(mutex_);
  Status own(Status status) const;
  Status cause() LOCKSTEP_EXCLUDES(mutex_);
  bool is_stuck() LOCKSTEP_EXCLUDES(mutex_);

  const std::shared_ptr<ProcessGroup> group_;
  StagingStream stream_;

  // The locks of the stream and of the group are never taken inside of it.
  platform::Mutex mutex_{"staged"};
  platform::CondVar changed_{"staged"};
  Queue to_send_ LOCKSTEP_GUARDED_BY(mutex_);
  Queue to_receive_ LOCKSTEP_GUARDED_BY(mutex_);
  Entries spare_ LOCKSTEP_GUARDED_BY(mutex_);
  // Entries whose memory the device may still use; they stay until the group ends.
  Entries stuck_ LOCKSTEP_GUARDED_BY(mutex_);
  std::size_t in_flight_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::int64_t next_sequence_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  Status cause_ LOCKSTEP_GUARDED_BY(mutex_);  // The cause of the group's death.

  platform::Thread sender_;
  platform::Thread receiver_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
