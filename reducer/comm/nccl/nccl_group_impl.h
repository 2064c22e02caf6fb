// The implementation of NcclProcessGroup. nccl_process_group.cc makes and ends groups,
// nccl_group_issue.cc is the issuing thread, and nccl_group_watch.cc is the watchdog and the end of
// a failed group.
//
// The life of an operation: start() puts it at tail_, the issuing thread takes it at next_, and the
// watchdog completes it at head_. The three are counts that only grow. As there is one stream,
// operations end in order, and the watchdog needs to look only at the oldest.
//
// Locks: nccl.group is taken before nccl.link.
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

  // The steps of making a group, in this order; begin_threads() follows.
  Status reserve();
  Status connect();
  // What can be used again of a group that is to be shrunk.
  struct Remains {
    bool can_be_shrunk = false;  // Whether NCCL can shrink it.
    bool is_healthy = false;
  };
  // Call it after the parent's end_for_shrink(), which returned `own`.
  Status connect_out_of(Impl& parent, const std::vector<int>& excluded, Remains own,
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
  // Returns the stream to the device when everything that may have used it is gone. A group that is
  // stuck is never destroyed, and keeps its stream.
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

  // The issuing thread runs these.
  void issue();
  bool can_issue() const LOCKSTEP_REQUIRES(mutex_);
  bool is_checked(const Collective& collective) const;
  bool needs_stage(const Collective& collective) const;
  Status submit(Operation& operation, std::uint64_t index);
  Status submit_header(Operation& operation, std::uint64_t index);
  Status settle();
  std::size_t header_offset(std::uint64_t index) const;

  // The watchdog runs these.
  void watch();
  void look_at_oldest() LOCKSTEP_REQUIRES(mutex_);
  Status compare(const Operation& operation, std::uint64_t index);
  void complete_oldest() LOCKSTEP_REQUIRES(mutex_);
  Failure overdue(const Operation& operation);
  bool has_left_before(std::int64_t sequence, int peer);
  Status look_in_store();
  Failure told(const std::string& bytes) const;
  void finish_failed() LOCKSTEP_REQUIRES(mutex_);
  void publish(Status& own, const Failure& for_peers);
  void announce_shrink();
  Status look_for_shrink(std::int64_t sequence);

  // These end the group.
  void close();
  void end_communicator() LOCKSTEP_REQUIRES(mutex_);
  void fail_locked(const Status& cause) LOCKSTEP_REQUIRES(mutex_);
  void attach(const std::string& line) LOCKSTEP_REQUIRES(mutex_);
  Failure about(const Operation& operation, Failure failure) const;
  Status ended(const Operation& operation) const LOCKSTEP_REQUIRES(mutex_);
  Status check(const Collective& collective) const;
  std::string instead_of_id(Failure failure) const;
  Status make_id(NcclUniqueId& id);
  Status meet(NcclUniqueId& id, platform::Deadline deadline);
  Status give_up(platform::Deadline deadline);
  Failure late();
  Status report_unconnected(Status status);
  Result<Remains> remains_of_all(Remains own, platform::Deadline deadline);
  void release_by_abort();
  std::string key(const char* of) const { return options_.name + "/" + of; }
  Operation& at(std::uint64_t index) LOCKSTEP_REQUIRES(mutex_) { return operations_.at(index); }

  // The number of operations that were submitted and have not ended.
  static constexpr std::uint64_t kWindow = 16;

  Device& device_;
  const Stream stream_;
  const BorrowedStream borrowed_{device_, stream_};  // Declared before everything that uses it.
  const std::shared_ptr<Store> store_;
  const int rank_;
  const int size_;
  const NcclOptions options_;
  const char* origin_ = "";
  NcclLink link_;
  NcclPayload payload_;
  NcclFrames frames_;
  // Headers in the memory of the GPU; the two below are in pinned memory. Each has room for kWindow
  // times the headers that it holds.
  StreamMemory headers_;
  PinnedMemory told_;
  PinnedMemory heard_;
  std::vector<CollectiveHeader> compared_;  // Only the watchdog uses it.
  const std::string failure_key_;
  std::uint64_t id_ = 0;
  platform::Duration next_notice_{0};  // Only the watchdog uses it, and connect() before that.

  platform::Thread issuer_;
  platform::Thread watchdog_;
  platform::Thread closer_;

  mutable platform::Mutex mutex_{"nccl.group"};
  platform::CondVar queued_{"nccl.group.queued"};  // The issuing thread waits for it.
  platform::CondVar armed_{"nccl.group.armed"};    // The watchdog waits for it.
  // The thread that ends the communicator waits for it.
  platform::CondVar closing_{"nccl.group.closing"};
  // Any thread that waits for the fields below uses it.
  platform::CondVar changed_{"nccl.group.changed"};
  OperationRing<Operation> operations_ LOCKSTEP_GUARDED_BY(mutex_);
  platform::Atomic<std::uint64_t> progress_{0};  // The number of operations that have ended.
  std::uint64_t head_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::uint64_t tail_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::int64_t next_sequence_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  Status cause_ LOCKSTEP_GUARDED_BY(mutex_);
  // The failure that peers get instead of cause_.
  Status for_peers_ LOCKSTEP_GUARDED_BY(mutex_);
  // True while the issuing thread may touch memory of its operation.
  bool is_issuing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  // True once the cause is in the store.
  bool is_published_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  // True once the communicator is aborted, unless it is kept or was revoked.
  bool is_aborted_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  // True once nothing is in flight any more.
  bool is_finished_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  // Like is_finished_, but the GPU still uses some memory.
  bool is_stuck_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  // True if the group was shrunk while healthy: the communicator is destroyed with the group,
  // without an abort.
  bool is_kept_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool is_leaving_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  int threads_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // The number of running threads.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
