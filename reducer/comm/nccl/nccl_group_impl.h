// The implementation of NcclProcessGroup: its one mutex, its three threads, and what they tell each
// other. nccl_process_group.cc makes and ends groups, nccl_group_issue.cc is the issuing thread,
// and nccl_group_watch.cc is the watchdog, the closer, and the end of a failed group.
//
//   NcclOperationQueue      what was started and has not ended
//   FirstCause              why the group has ended
//   NcclGroupEnd            how far the end has come
//   NcclGroupStream         the GPU's stream, and what is submitted to it
//   NcclGroupCommunicator   the communicator's life
//   NcclPeers               what the ranks tell each other through the store
//
// Locks: nccl.group is taken before nccl.link. No thread holds nccl.group while it waits for the
// GPU, NCCL or the store.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/first_cause.h"
#include "reducer/comm/nccl/nccl_group_communicator.h"
#include "reducer/comm/nccl/nccl_group_end.h"
#include "reducer/comm/nccl/nccl_group_stream.h"
#include "reducer/comm/nccl/nccl_operation_queue.h"
#include "reducer/comm/nccl/nccl_peers.h"
#include "reducer/comm/nccl/nccl_process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclProcessGroup::Impl {
 public:
  Impl(const NcclApi& api, Device& device, const Stream& stream, std::shared_ptr<Store> store,
       int rank, int size, const NcclOptions& options);

  // The steps of making a group, in this order: connect() or connect_out_of(), begin_threads().
  Status connect();
  // Call it after the parent's end_for_shrink(), which returned `own`.
  Status connect_out_of(Impl& parent, const std::vector<int>& excluded, NcclPeers::Remains own,
                        platform::Deadline deadline);
  Status begin_threads();
  // False means that a thread did not end within the bound; then this object must not be destroyed.
  bool shut_down();

  Status start(const Collective& collective, Work& work);
  void abort(const Status& cause);
  Status health() const;
  // Ends a group that is to be shrunk: it takes no more collectives, and nothing is in flight. A
  // healthy group keeps its communicator, because peers may still be in their last collective on
  // it.
  NcclPeers::Remains end_for_shrink();
  // After end_for_shrink(), for a group that has failed on some rank: finalizing its communicator
  // might wait for that rank, so it is aborted.
  void release_by_abort();

  int rank() const { return peers_.rank(); }
  int size() const { return peers_.size(); }
  Device& device() const { return stream_.device(); }
  const NcclOptions& options() const { return options_; }
  const char* origin() const { return communicator_.origin(); }
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  const NcclApi& api() const { return communicator_.api(); }

 private:
  using Operation = NcclOperation;
  using Stage = NcclOperation::Stage;

  Status check(const Collective& collective) const;

  // The issuing thread runs these.
  void issue();
  bool can_issue() const LOCKSTEP_REQUIRES(mutex_);
  Status submit(Operation& operation) LOCKSTEP_EXCLUDES(mutex_);
  Status submit_header(Operation& operation) LOCKSTEP_EXCLUDES(mutex_);
  Status settle() LOCKSTEP_EXCLUDES(mutex_);

  // The watchdog runs these.
  void watch();
  void look_at_oldest() LOCKSTEP_REQUIRES(mutex_);
  void complete_oldest() LOCKSTEP_REQUIRES(mutex_);
  Failure overdue(const Operation& operation) LOCKSTEP_EXCLUDES(mutex_);
  void finish_failed() LOCKSTEP_REQUIRES(mutex_);
  void publish_cause() LOCKSTEP_REQUIRES(mutex_);
  bool await_unused_memory() LOCKSTEP_REQUIRES(mutex_);

  // The closer runs these.
  void close();
  void end_communicator() LOCKSTEP_REQUIRES(mutex_);

  void fail_locked(const Status& cause) LOCKSTEP_REQUIRES(mutex_);
  Failure about(const Operation& operation, Failure failure) const;

  const NcclOptions options_;
  NcclPeers peers_;
  NcclGroupCommunicator communicator_;
  NcclGroupStream stream_;
  std::array<platform::Thread, 3> threads_;

  mutable platform::Mutex mutex_{"nccl.group"};
  platform::CondVar queued_{"nccl.group.queued"};    // The issuing thread waits for it.
  platform::CondVar armed_{"nccl.group.armed"};      // The watchdog waits for it.
  platform::CondVar closing_{"nccl.group.closing"};  // The closer waits for it.
  platform::CondVar changed_{"nccl.group.changed"};  // Any thread waits for it.
  NcclOperationQueue queue_ LOCKSTEP_GUARDED_BY(mutex_);
  platform::Atomic<std::uint64_t> progress_{0};  // The number of operations that were completed.
  FirstCause cause_ LOCKSTEP_GUARDED_BY(mutex_);
  // The failure that peers get instead of cause_, if a user has aborted.
  Status for_peers_ LOCKSTEP_GUARDED_BY(mutex_);
  NcclGroupEnd end_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
