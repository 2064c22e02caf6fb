// The watchdog of a group, the thread that ends its communicator, and the end of a failed group.
#include <string>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/nccl/nccl_group_impl.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::int64_t in_ms(platform::Duration span) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
}

}  // namespace

using platform::Deadline;
using platform::MutexLock;
using platform::MutexUnlock;

// With nothing in flight the watchdog sleeps without a timer.
void NcclProcessGroup::Impl::watch() {
  if (options_.enter_thread) options_.enter_thread();
  MutexLock lock(mutex_);
  for (;;) {
    armed_.wait(mutex_, Deadline::never(), [this]() LOCKSTEP_REQUIRES(mutex_) {
      return end_.is_leaving() || (cause_.ok() ? !queue_.is_empty() : !end_.is_finished());
    });
    if (!cause_.ok() && !end_.is_finished()) {
      finish_failed();
      continue;
    }
    if (!cause_.ok() || queue_.is_empty()) break;  // The group is being destroyed.
    look_at_oldest();
  }
  LOCKSTEP_CHECK(end_.is_leaving());
  LOCKSTEP_CHECK(queue_.is_empty());  // Every Work is complete.
  end_.note_thread_ended();
  changed_.notify_all();
}

// Asks NCCL for an error before it looks at the events of the oldest operation, and reports the
// error only if neither event has come since. Ranks that disagree about an operation make its
// payload fail, after their headers were exchanged; the headers, which say why, must be compared
// first.
void NcclProcessGroup::Impl::look_at_oldest() {
  LOCKSTEP_CHECK(cause_.ok());
  LOCKSTEP_CHECK(!queue_.is_empty());
  Status found;  // What ends the operation, if it does not move on.
  {
    const MutexUnlock unlocked(mutex_);
    found = communicator_.link().look();
  }
  if (!cause_.ok()) return;
  Operation& operation = queue_.oldest();
  const Stage stage = operation.stage;
  const bool is_told = stage != Stage::kQueued && !operation.is_compared;
  if (is_told || stage == Stage::kSubmitted) {
    const Event event = is_told ? operation.header : operation.done;
    Status status;
    bool has_come = false;
    {
      const MutexUnlock unlocked(mutex_);
      status = stream_.synchronize(event, Deadline::in(options_.poll));
      has_come = status.ok();
      if (has_come && is_told)
        status = stream_.compare_headers(header_of(operation.collective, operation.sequence));
    }
    if (!cause_.ok()) return;
    LOCKSTEP_CHECK(&operation == &queue_.oldest());  // Only this thread removes one.
    if (!status.ok() && status.code() != Code::kTimeout)
      return fail_locked(about(operation, std::move(status.failure())));
    if (has_come && !is_told) return complete_oldest();
    if (has_come) {
      operation.is_compared = true;
      return;
    }
  } else {
    armed_.wait(mutex_, Deadline::in(options_.poll), [&]() LOCKSTEP_REQUIRES(mutex_) {
      return operation.stage != stage || !cause_.ok();
    });
  }
  if (!cause_.ok()) return;
  if (found.ok()) {
    const MutexUnlock unlocked(mutex_);
    found = peers_.check(operation.sequence);
    if (found.ok() && operation.deadline.passed()) found = overdue(operation);
  }
  if (!found.ok() && cause_.ok()) fail_locked(about(operation, std::move(found.failure())));
}

// The operation leaves the ring before its owner is notified, because the owner may destroy the
// group then.
void NcclProcessGroup::Impl::complete_oldest() {
  Operation& operation = queue_.oldest();
  LOCKSTEP_CHECK(operation.stage == Stage::kSubmitted);
  LOCKSTEP_CHECK(operation.is_compared);
  if (operation.staged_in != kNone) {
    {
      const MutexUnlock unlocked(mutex_);
      stream_.fill_host(operation.collective, operation.staged_in);
    }
    stream_.give_back(operation.staged_in);
  }
  Work* const done = operation.work;
  queue_.pop_oldest();
  progress_.fetch_add(1, std::memory_order_relaxed);
  // The next operation has waited for this one on the same stream, so its time begins now.
  if (!queue_.is_empty()) queue_.oldest().deadline = Deadline::in(options_.timeout);
  queued_.notify_all();
  const MutexUnlock unlocked(mutex_);
  done->complete(Status());
}

Failure NcclProcessGroup::Impl::overdue(const Operation& operation) {
  Failure failure;
  failure.code = Code::kTimeout;
  failure.detail = "not done within " + std::to_string(in_ms(options_.timeout)) + " ms";
  {
    MutexLock lock(mutex_);
    const bool has_agreed = options_.agree && operation.is_compared;
    if (operation.stage == Stage::kQueued)
      failure.detail += "; NCCL has not taken it yet";
    else if (options_.agree && !has_agreed)
      failure.detail += "; not all ranks have entered it";
    else if (has_agreed)
      failure.detail += "; all ranks have entered it";
  }
  failure.suspect = peers_.first_gone_before(operation.sequence);
  if (failure.suspect != kNone)
    failure.detail += "; rank " + std::to_string(failure.suspect) + " has left the group";
  return failure;
}

// --- The end of the group.

void NcclProcessGroup::Impl::fail_locked(const Status& cause) {
  LOCKSTEP_CHECK(!cause.ok());
  Status own = cause;
  if (cause_.ok()) own.failure().reported_by = rank();
  if (!cause_.set(own)) return;
  armed_.notify_all();
  closing_.notify_all();
}

// Tells the peers why the group has ended. The first cause may be that of a peer, but a user's
// abort stays this rank's cause.
void NcclProcessGroup::Impl::publish_cause() {
  LOCKSTEP_CHECK(!cause_.ok());
  LOCKSTEP_CHECK(!end_.is_published());
  const bool is_users = !for_peers_.ok();
  Status first = cause_.status();
  const std::size_t known = first.failure().later.size();
  const Failure for_peers = is_users ? for_peers_.failure() : first.failure();
  const bool is_kept = end_.is_communicator_kept();
  const std::int64_t entered = queue_.started();
  {
    const MutexUnlock unlocked(mutex_);
    if (is_kept)
      peers_.announce_shrink(entered);
    else
      first = peers_.publish(std::move(first), for_peers);
  }
  if (!is_users) cause_.replace(first, known);
  end_.note_published();
  closing_.notify_all();
}

// Waits until nobody uses the memory of what is in flight any more: the communicator has ended, the
// issuing thread has come back, and the GPU is done. Returns false if that takes too long, and the
// cause says so then.
bool NcclProcessGroup::Impl::await_unused_memory() {
  LOCKSTEP_CHECK(end_.is_published());
  const Deadline bound = Deadline::in(2 * options_.grace + options_.end_timeout);
  const bool is_aborted = changed_.wait(
      mutex_, bound, [this]() LOCKSTEP_REQUIRES(mutex_) { return end_.is_communicator_ended(); });
  const bool is_out = changed_.wait(
      mutex_, bound, [this]() LOCKSTEP_REQUIRES(mutex_) { return !queue_.is_issuing(); });
  bool is_over = false;
  if (is_out) {  // Only one thread at a time submits operations of one stream.
    const MutexUnlock unlocked(mutex_);
    // NCCL 2.19 to 2.25 may stop the GPU and then hang in the abort, which leaves no time until
    // `bound`.
    const Deadline for_gpu = is_aborted ? bound : Deadline::in(options_.grace);
    const Status status = stream_.synchronize(stream_.record(), for_gpu);
    is_over = status.code() != Code::kTimeout;
  }
  if (is_aborted && is_over) {
    LOCKSTEP_CHECK(!queue_.is_issuing());  // A group that has failed issues nothing more.
    return true;
  }
  std::string text = !is_aborted ? "ncclCommAbort did not return"
                     : is_out    ? "the GPU did not end what it was given"
                                 : "a thread did not come back from NCCL or the driver";
  text += " within " + std::to_string(in_ms(options_.end_timeout)) + " ms";
  if (!is_over) text += ": memory of what was in flight must not be used again";
  cause_.append(std::move(text));
  return false;
}

// Completes what is in flight when nobody uses its memory any more. An operation ends with the
// first cause. If that did not arise in an operation (a user aborted), this operation is the first
// one that it concerns.
void NcclProcessGroup::Impl::finish_failed() {
  publish_cause();
  const bool is_stuck = !await_unused_memory();
  while (!queue_.is_empty()) {
    Operation& operation = queue_.oldest();
    Status status = cause_.status();
    note_collective(status.failure(), operation.collective, operation.sequence);
    Work* const work = operation.work;
    queue_.pop_oldest();
    const MutexUnlock unlocked(mutex_);
    work->complete(std::move(status));
  }
  end_.note_finished(is_stuck);
  changed_.notify_all();
}

// The thread that ends the communicator, which may take long, or for ever.
void NcclProcessGroup::Impl::close() {
  if (options_.enter_thread) options_.enter_thread();
  MutexLock lock(mutex_);
  LOCKSTEP_CHECK(!end_.is_communicator_ended());
  closing_.wait(mutex_, Deadline::never(),
                [this]() LOCKSTEP_REQUIRES(mutex_) { return end_.is_leaving() || !cause_.ok(); });
  if (!cause_.ok()) {
    end_communicator();
    closing_.wait(mutex_, Deadline::never(),
                  [this]() LOCKSTEP_REQUIRES(mutex_) { return end_.is_leaving(); });
    const bool is_kept = end_.is_communicator_kept();
    lock.unlock();
    if (is_kept)
      communicator_.leave();  // Peers may still use it.
    else
      communicator_.finish_end();  // It was revoked.
  } else {
    LOCKSTEP_CHECK(queue_.is_empty());  // Otherwise shut_down() has made a cause.
    // The other threads have nothing to do any more.
    changed_.wait(mutex_, Deadline::in(options_.end_timeout),
                  [this]() LOCKSTEP_REQUIRES(mutex_) { return end_.running_threads() == 1; });
    const std::int64_t entered = queue_.started();
    lock.unlock();
    peers_.announce_departure(entered);
    communicator_.leave();
  }
  lock.lock();
  end_.note_thread_ended();
  changed_.notify_all();
}

// Peers notice that connections close, and should find the cause in the store then.
void NcclProcessGroup::Impl::end_communicator() {
  LOCKSTEP_CHECK(!cause_.ok());
  closing_.wait(mutex_, Deadline::in(options_.grace),
                [this]() LOCKSTEP_REQUIRES(mutex_) { return end_.is_published(); });
  const bool is_kept = end_.is_communicator_kept();
  {
    const MutexUnlock unlocked(mutex_);
    if (!is_kept) communicator_.end();
  }
  end_.note_communicator_ended();
  changed_.notify_all();
}

// Adds what is known about the operation, unless the failure came from a peer and has these fields
// already.
Failure NcclProcessGroup::Impl::about(const Operation& operation, Failure failure) const {
  const bool is_told = !failure.collective.empty();
  if (is_told || (failure.rank != kNone && failure.rank != rank())) return failure;
  // A lost peer is not this rank's fault, and NCCL does not say which peer it is.
  if (failure.code != Code::kPeerLost) failure.rank = rank();
  if (failure.code == Code::kPeerLost && size() == 2) failure.suspect = 1 - rank();
  note_collective(failure, operation.collective, operation.sequence);
  return failure;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
