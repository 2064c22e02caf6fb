// The issuing thread of a group: it submits operations to NCCL in their order.
#include <new>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/nccl/nccl_group_impl.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using platform::Deadline;
using platform::MutexLock;

bool NcclProcessGroup::Impl::can_issue() const {
  if (!cause_.ok()) return false;
  const Operation* const next = queue_.next();
  return next != nullptr && stream_.can_stage(next->collective);
}

void NcclProcessGroup::Impl::issue() {
  if (options_.enter_thread) options_.enter_thread();
  MutexLock lock(mutex_);
  for (;;) {
    queued_.wait(mutex_, Deadline::never(),
                 [this]() LOCKSTEP_REQUIRES(mutex_) { return end_.is_leaving() || can_issue(); });
    if (end_.is_leaving()) break;
    Operation& operation = queue_.begin_issue();
    operation.staged_in = stream_.choose_stage(operation.collective);
    lock.unlock();

    Status status;
    try {
      status = submit(operation);
    } catch (const std::bad_alloc&) {
      status = out_of_memory();
    }

    lock.lock();
    queue_.end_issue();
    if (status.ok()) {
      const bool has_header = options_.agree && size() > 1;
      LOCKSTEP_CHECK_EQ(operation.stage == Stage::kHeaderSubmitted, has_header);
      operation.stage = Stage::kSubmitted;
    } else if (cause_.ok()) {
      fail_locked(about(operation, std::move(status.failure())));
    }
    armed_.notify_all();
    changed_.notify_all();
  }
  end_.note_thread_ended();
  changed_.notify_all();
}

Status NcclProcessGroup::Impl::submit(Operation& operation) {
  LOCKSTEP_CHECK(operation.stage == Stage::kQueued);
  if (options_.agree && size() > 1) LOCKSTEP_RETURN_IF_ERROR(submit_header(operation));
  const CollectiveId id{communicator_.id(), operation.sequence};
  Result<Event> done = stream_.submit(operation.collective, id, operation.staged_in);
  if (!done) return std::move(done.error());
  operation.done = *done;
  return {};
}

// From here on the watchdog compares headers, because the payload may hang where ranks differ.
Status NcclProcessGroup::Impl::submit_header(Operation& operation) {
  LOCKSTEP_CHECK(!operation.is_compared);
  Result<Event> all_here =
      stream_.submit_header(header_of(operation.collective, operation.sequence));
  if (!all_here) return std::move(all_here.error());
  MutexLock lock(mutex_);
  operation.header = *all_here;
  operation.stage = Stage::kHeaderSubmitted;
  armed_.notify_all();
  return {};
}

// Waits for everything that was submitted, or until the group has failed.
Status NcclProcessGroup::Impl::settle() {
  const Event event = stream_.record();
  for (;;) {
    Status status = stream_.synchronize(event, Deadline::in(options_.poll));
    if (status.ok() || status.code() != Code::kTimeout) return status;
    MutexLock lock(mutex_);
    LOCKSTEP_CHECK(queue_.is_issuing());
    if (!cause_.ok()) return Status(Code::kAborted, "the group ended meanwhile");
  }
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
