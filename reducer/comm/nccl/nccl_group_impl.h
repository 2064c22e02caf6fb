// The inside of NcclProcessGroup. nccl_process_group.cc makes and ends groups, nccl_group_issue.cc
// is the issuing thread, nccl_group_watch.cc the watchdog and the end of a failed group.
//
// An operation's life: start() puts it at the tail, the issuing thread takes it at next_, the
// watchdog completes it at head_. The three are counts that only grow. As there is one
// stream, operations end in order, and the oldest is the only one to look at.
//
// Locks: nccl.group, then nccl.link.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/nccl/compare_headers.h"
#include "reducer/comm/nccl/nccl_frames.h"
#include "reducer/comm/nccl/nccl_link.h"
#include "reducer/comm/nccl/nccl_payload.h"
#include "reducer/comm/nccl/nccl_process_group.h"
#include "reducer/comm/operation_ring.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclProcessGroup::Impl {
 public:
  Impl(const NcclApi& api, Device& device, const Stream& stream, std::shared_ptr<Store> store,
       int rank, int size, const NcclOptions& options);

  // Making one, in this order; then begin_threads().
  Status reserve();
  Status connect();
  // What there is of a group that is to be shrunk.
  struct Remains {
    bool can_be_shrunk = false;  // by NCCL
    bool is_healthy = false;
  };
  // After the parent's end_for_shrink(), which gave `own`.
  Status connect_out_of(Impl& parent, const std::vector<int>& excluded, Remains own,
                        platform::Deadline deadline);
  Status begin_threads();
  // False: a thread did not end within the bound; then this must not be destroyed.
  bool shut_down();

  Status start(const Collective& collective, Work& work);
  void abort(const Status& cause);
  // Ends a group that is to be shrunk: it takes no collective any more, and nothing is in flight. A
  // healthy one keeps its communicator, on which peers may still be in their last collective.
  Remains end_for_shrink();

  int rank() const { return rank_; }
  int size() const { return size_; }
  Device& device() const { return device_; }
  const NcclOptions& options() const { return options_; }
  const char* origin() const { return origin_; }
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  const NcclApi& api() const { return link_.api(); }

 private:
  friend class NcclProcessGroup;
  // The device has it again when all that may have used it is gone. A group that is stuck is never
  // destroyed, and keeps it.
  struct BorrowedStream {
    Device& device;
    const Stream stream;
    ~BorrowedStream() { device.give_back(stream); }
  };
  enum class Stage : std::uint8_t { kQueued, kHeaderSubmitted, kSubmitted };
  struct Operation {
    Collective collective;
    Work* work = nullptr;
    platform::Deadline deadline = platform::Deadline::never();
    std::int64_t sequence = 0;
    Stage stage = Stage::kQueued;
    bool is_compared = false;
    int staged_in = kNone;
    Event header;
    Event done;
  };

  // Issuing.
  void issue();
  bool can_issue() const;
  bool is_checked(const Collective& collective) const;
  bool needs_stage(const Collective& collective) const;
  Status submit(Operation& operation, std::uint64_t index);
  Status submit_header(Operation& operation, std::uint64_t index);
  Status await_ready(const Operation& operation);
  bool settle(const Operation& operation);
  std::size_t header_offset(std::uint64_t index) const;

  // Watching.
  void watch();
  void look_at_oldest(platform::MutexLock& lock);
  Status compare(const Operation& operation, std::uint64_t index);
  void complete_oldest(platform::MutexLock& lock);
  Failure overdue(const Operation& operation);
  Status look_in_store();
  Failure told(const std::string& bytes) const;
  void finish_failed(platform::MutexLock& lock);
  void publish(Status& own, const Failure& for_peers);
  void announce_shrink();
  Status look_for_shrink(std::int64_t sequence);

  // Ending.
  void close();
  void end_communicator(platform::MutexLock& lock);
  void fail_locked(const Status& cause);
  void attach(const std::string& line);
  Failure about(const Operation& operation, Failure failure) const;
  Status ended(const Operation& operation) const;
  Status check(const Collective& collective) const;
  std::string instead_of_id(Failure failure) const;
  Status make_id(NcclUniqueId& id);
  Status meet(NcclUniqueId& id, platform::Deadline deadline);
  Status give_up(platform::Deadline deadline);
  Failure late();
  Status connected(Status status);
  Result<Remains> remains_of_all(Remains own, platform::Deadline deadline);
  void release_by_abort();
  std::string key(const char* of) const { return options_.name + "/" + of; }
  Operation& at(std::uint64_t index) { return operations_.at(index); }

  static constexpr std::uint64_t kWindow = 16;  // submitted and not ended

  Device& device_;
  const Stream stream_;
  const BorrowedStream borrowed_{device_, stream_};  // before what uses it
  const std::shared_ptr<Store> store_;
  const int rank_;
  const int size_;
  const NcclOptions options_;
  const char* origin_ = "";
  NcclLink link_;
  NcclPayload payload_;
  NcclFrames frames_;
  StreamMemory headers_;  // of the GPU, and below in pinned memory: kWindow times those of all
  PinnedMemory told_;
  PinnedMemory heard_;
  std::vector<CollectiveHeader> compared_;  // the watchdog's
  const std::string failure_key_;
  std::uint64_t id_ = 0;
  const Operation* issued_ = nullptr;  // the issuing thread's
  platform::Duration next_notice_{0};  // the watchdog's; of connect() before

  platform::Thread issuer_;
  platform::Thread watchdog_;
  platform::Thread closer_;

  platform::Mutex mutex_{"nccl.group"};
  platform::CondVar queued_{"nccl.group.queued"};    // the issuing thread waits
  platform::CondVar armed_{"nccl.group.armed"};      // the watchdog
  platform::CondVar closing_{"nccl.group.closing"};  // the one that ends the communicator
  platform::CondVar changed_{"nccl.group.changed"};  // whoever waits for these
  OperationRing<Operation> operations_;              // the rest is guarded by mutex_
  platform::Atomic<std::uint64_t> progress_{0};      // operations that have ended
  std::uint64_t head_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t tail_ = 0;
  std::int64_t next_sequence_ = 0;
  Status cause_;
  Status for_peers_;           // what they hear instead
  bool is_issuing_ = false;    // the issuing thread may touch memory of its operation
  bool is_published_ = false;  // the cause
  bool is_aborted_ = false;    // so is the communicator, unless it is kept or was revoked
  bool is_finished_ = false;   // nothing is in flight any more
  bool is_stuck_ = false;      // but for what the GPU would not let go of
  bool is_kept_ = false;  // shrunk while healthy: the communicator ends with the group, in peace
  bool is_leaving_ = false;
  int threads_ = 0;  // running
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
