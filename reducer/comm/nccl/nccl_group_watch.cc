// The watchdog of a group, the thread that ends its communicator, and the end of a failed group.
#include <algorithm>
#include <sstream>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/nccl/nccl_group_impl.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::size_t kMaxLater = 8;

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
      return is_leaving_ || (cause_.ok() ? head_ != tail_ : !is_finished_);
    });
    if (!cause_.ok() && !is_finished_) {
      finish_failed();
      continue;
    }
    if (!cause_.ok() || head_ == tail_) break;  // The group is being destroyed.
    look_at_oldest();
  }
  --threads_;
  changed_.notify_all();
}

// Asks NCCL for an error before it looks at the events of the oldest operation, and reports the
// error only if neither event has come since. Ranks that disagree about an operation make its
// payload fail, after their headers were exchanged; the headers, which say why, must be compared
// first.
void NcclProcessGroup::Impl::look_at_oldest() {
  Status found;  // What ends the operation, if it does not move on.
  {
    const MutexUnlock unlocked(mutex_);
    found = link_.look();
  }
  if (!cause_.ok()) return;
  const std::uint64_t index = head_;
  Operation& operation = at(index);
  const Stage stage = operation.stage;
  const bool is_told = stage != Stage::kQueued && !operation.is_compared;
  if (is_told || stage == Stage::kSubmitted) {
    const Event event = is_told ? operation.header : operation.done;
    Status status;
    bool has_come = false;
    {
      const MutexUnlock unlocked(mutex_);
      status = device_.synchronize(event, Deadline::in(options_.poll));
      has_come = status.ok();
      if (has_come && is_told) status = compare(operation, index);
    }
    if (!cause_.ok()) return;
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
    if (platform::now() >= next_notice_) {
      found = look_in_store();
      if (found.ok()) found = look_for_shrink(operation.sequence);
    }
    if (found.ok() && operation.deadline.passed()) found = overdue(operation);
  }
  if (!found.ok() && cause_.ok()) fail_locked(about(operation, std::move(found.failure())));
}

Status NcclProcessGroup::Impl::compare(const Operation& operation, std::uint64_t index) {
  heard_.read(header_offset(index), compared_.data(), compared_.size() * sizeof(CollectiveHeader));
  const CollectiveHeader own = header_of(operation.collective, operation.sequence);
  if (compared_[static_cast<std::size_t>(rank_)] != own)
    return Status(Code::kTransport, "what this rank sent about its " + describe(own) +
                                        " came back from NCCL as something else");
  return compare_headers(compared_, rank_);
}

// The operation leaves the ring before its owner is notified, because the owner may destroy the
// group then.
void NcclProcessGroup::Impl::complete_oldest() {
  Operation& operation = at(head_);
  if (operation.staged_in != kNone) {
    {
      const MutexUnlock unlocked(mutex_);
      payload_.fill_host(operation.collective, operation.staged_in);
    }
    payload_.give_back(operation.staged_in);
  }
  Work* const done = operation.work;
  ++head_;
  progress_.fetch_add(1, std::memory_order_relaxed);
  // The next operation has waited for this one on the same stream, so its time begins now.
  if (head_ != tail_) at(head_).deadline = Deadline::in(options_.timeout);
  queued_.notify_all();
  const MutexUnlock unlocked(mutex_);
  done->complete(Status());
}

// Whether the peer has left the group and never entered this collective. A rank that has completed
// the collective may leave while others are still in it, and holds up nobody.
bool NcclProcessGroup::Impl::has_left_before(std::int64_t sequence, int peer) {
  const std::string left = key("left/") + std::to_string(peer);
  const Result<bool> is_there = store_->contains(left);
  if (!is_there || !*is_there) return false;
  const Result<std::string> text = store_->get(left, Deadline::in(options_.grace));
  if (!text) return false;
  std::istringstream words(*text);
  std::int64_t entered = 0;
  return words >> entered && entered >= 0 && entered <= sequence;
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
  for (int peer = 0; peer < size_; ++peer) {
    if (!has_left_before(operation.sequence, peer)) continue;
    failure.suspect = peer;
    failure.detail += "; rank " + std::to_string(peer) + " has left the group";
    break;
  }
  return failure;
}

// --- The first cause, for all ranks.

// A report that cannot be read is no cause (F2). Its writer has ended the group all the same; of
// more than two ranks NCCL does not say which one that is.
Failure NcclProcessGroup::Impl::told(const std::string& bytes) const {
  const bool is_readable = read_failure(bytes, size_).has_value();
  Failure failure = decode_failure(bytes, size_);
  failure.reported_by = rank_;
  if (is_readable) return failure;
  failure.code = Code::kPeerLost;
  if (size_ == 2) failure.suspect = 1 - rank_;
  failure.detail = "a peer has ended the group, and " + failure.detail;
  return failure;
}

Status NcclProcessGroup::Impl::look_in_store() {
  next_notice_ = platform::now() + options_.notice;
  const Result<bool> is_there = store_->contains(failure_key_);
  // The group does not depend on the store; a store that fails is ignored.
  if (!is_there || !*is_there) return {};
  const Result<std::string> bytes = store_->get(failure_key_, Deadline::in(options_.grace));
  if (!bytes) return {};
  return told(*bytes);
}

// Writes why this rank failed. If another rank has written before, its failure is the first cause,
// unless it is not definite and this one is.
void NcclProcessGroup::Impl::publish(Status& own, const Failure& for_peers) {
  const Result<bool> is_new = store_->set(failure_key_, encode(for_peers));
  if (!is_new || *is_new) return;
  const Result<std::string> bytes = store_->get(failure_key_, Deadline::in(options_.grace));
  if (!bytes) return;
  Failure first = told(*bytes);
  const bool is_own = own.failure().rank == rank_ || own.failure().rank == kNone;
  if (first.to_string() == own.failure().to_string() || !is_own) return;
  // The other ranks saw only a consequence of this failure.
  if (own.failure().definite && !first.definite) {
    own.failure().later.push_back("rank " + std::to_string(rank_) +
                                  " learned: " + first.to_string());
    return;
  }
  first.later.push_back("rank " + std::to_string(rank_) + ": " + own.to_string());
  own = first;
}

// A rank that shrinks a healthy group tells the others which collectives it has completed; its last
// messages of these may still be in flight. It enters no later collective.
void NcclProcessGroup::Impl::announce_shrink() {
  std::int64_t entered = 0;
  {
    MutexLock lock(mutex_);
    entered = next_sequence_;
  }
  static_cast<void>(
      store_->set(key("shrinks"), std::to_string(rank_) + " " + std::to_string(entered)));
}

// Returns an error if this collective cannot end, because a rank has made a smaller group before
// it.
Status NcclProcessGroup::Impl::look_for_shrink(std::int64_t sequence) {
  const Result<bool> is_there = store_->contains(key("shrinks"));
  if (!is_there || !*is_there) return {};
  const Result<std::string> text = store_->get(key("shrinks"), Deadline::in(options_.grace));
  if (!text) return {};
  std::istringstream words(*text);
  int from = kNone;
  std::int64_t entered = 0;
  if (!(words >> from >> entered) || from < 0 || from >= size_ || entered < 0) return {};
  if (sequence < entered) return {};
  Failure failure;
  failure.code = Code::kAborted;
  failure.rank = from;
  failure.detail =
      "rank " + std::to_string(from) + " makes a smaller group, and does not enter this collective";
  return failure;
}

// --- The end of the group.

void NcclProcessGroup::Impl::attach(const std::string& line) {
  std::vector<std::string>& later = cause_.failure().later;
  const bool is_new =
      line != cause_.to_string() && std::find(later.begin(), later.end(), line) == later.end();
  if (is_new && later.size() < kMaxLater) later.push_back(line);
}

void NcclProcessGroup::Impl::fail_locked(const Status& cause) {
  LOCKSTEP_CHECK(!cause.ok());
  if (!cause_.ok()) return attach(cause.to_string());
  cause_ = cause;
  cause_.failure().reported_by = rank_;
  armed_.notify_all();
  closing_.notify_all();
}

// Completes what is in flight when nobody uses its memory any more.
void NcclProcessGroup::Impl::finish_failed() {
  const bool is_users = !for_peers_.ok();
  Status first = cause_;
  const std::size_t known = first.failure().later.size();
  const Failure for_peers = is_users ? for_peers_.failure() : cause_.failure();
  const bool is_kept = is_kept_;
  {
    const MutexUnlock unlocked(mutex_);
    if (is_kept)
      announce_shrink();
    else
      publish(first, for_peers);
  }
  if (!is_users) {
    // The lines that were attached meanwhile follow those of `first`, and `first` does not have
    // them.
    const std::vector<std::string> attached = std::exchange(cause_, first).failure().later;
    for (std::size_t i = known; i < attached.size(); ++i) attach(attached[i]);
  }
  is_published_ = true;
  closing_.notify_all();

  const Deadline bound = Deadline::in(2 * options_.grace + options_.end_timeout);
  const bool is_aborted =
      changed_.wait(mutex_, bound, [this]() LOCKSTEP_REQUIRES(mutex_) { return is_aborted_; });
  const bool is_out =
      changed_.wait(mutex_, bound, [this]() LOCKSTEP_REQUIRES(mutex_) { return !is_issuing_; });
  bool is_over = false;
  if (is_out) {  // Only one thread at a time submits operations of one stream.
    const MutexUnlock unlocked(mutex_);
    // NCCL 2.19 to 2.25 may stop the GPU and then hang in the abort, which leaves no time until
    // `bound`.
    const Deadline for_gpu = is_aborted ? bound : Deadline::in(options_.grace);
    const Status status = device_.synchronize(device_.record(stream_), for_gpu);
    is_over = status.code() != Code::kTimeout;
  }
  is_stuck_ = !is_aborted || !is_over;
  if (is_stuck_) {
    std::string text = !is_aborted ? "ncclCommAbort did not return"
                       : is_out    ? "the GPU did not end what it was given"
                                   : "a thread did not come back from NCCL or the driver";
    text += " within " + std::to_string(in_ms(options_.end_timeout)) + " ms";
    if (!is_over) text += ": memory of what was in flight must not be used again";
    cause_.failure().later.push_back(std::move(text));
  }
  while (head_ != tail_) {
    Operation& operation = at(head_);
    Status status = ended(operation);
    Work* const work = operation.work;
    ++head_;
    const MutexUnlock unlocked(mutex_);
    work->complete(std::move(status));
  }
  is_finished_ = true;
  changed_.notify_all();
}

// The thread that ends the communicator, which may take long, or for ever.
void NcclProcessGroup::Impl::close() {
  if (options_.enter_thread) options_.enter_thread();
  MutexLock lock(mutex_);
  closing_.wait(mutex_, Deadline::never(),
                [this]() LOCKSTEP_REQUIRES(mutex_) { return is_leaving_ || !cause_.ok(); });
  if (!cause_.ok()) {
    end_communicator();
    closing_.wait(mutex_, Deadline::never(),
                  [this]() LOCKSTEP_REQUIRES(mutex_) { return is_leaving_; });
    const bool is_kept = is_kept_;
    lock.unlock();
    if (is_kept)
      link_.leave(Deadline::in(options_.end_timeout));  // Peers may still use it.
    else
      link_.abort(platform::Duration(0));  // It was revoked.
  } else {
    // The other threads have nothing to do any more.
    changed_.wait(mutex_, Deadline::in(options_.end_timeout),
                  [this]() LOCKSTEP_REQUIRES(mutex_) { return threads_ == 1; });
    const std::string entered = std::to_string(next_sequence_);
    lock.unlock();
    static_cast<void>(store_->set(key("left/") + std::to_string(rank_), entered));
    link_.leave(Deadline::in(options_.end_timeout));
  }
  lock.lock();
  --threads_;
  changed_.notify_all();
}

// Peers notice that connections close, and should find the cause in the store then.
void NcclProcessGroup::Impl::end_communicator() {
  closing_.wait(mutex_, Deadline::in(options_.grace),
                [this]() LOCKSTEP_REQUIRES(mutex_) { return is_published_; });
  const bool is_kept = is_kept_;
  {
    const MutexUnlock unlocked(mutex_);
    const bool is_wanted = options_.keeps_for_shrink && api().comm_shrink != nullptr;
    if (!is_kept && is_wanted)
      link_.revoke(options_.grace, Deadline::in(options_.end_timeout));
    else if (!is_kept)
      link_.abort(options_.grace);
  }
  is_aborted_ = true;
  changed_.notify_all();
}

// Adds what is known about the operation, unless the failure came from a peer and has these fields
// already.
Failure NcclProcessGroup::Impl::about(const Operation& operation, Failure failure) const {
  const bool is_told = !failure.collective.empty();
  if (is_told || (failure.rank != kNone && failure.rank != rank_)) return failure;
  // A lost peer is not this rank's fault, and NCCL does not say which peer it is.
  if (failure.code != Code::kPeerLost) failure.rank = rank_;
  if (failure.code == Code::kPeerLost && size_ == 2) failure.suspect = 1 - rank_;
  note_collective(failure, operation.collective, operation.sequence);
  return failure;
}

// Returns the first cause. If that did not arise in an operation (a user aborted), this operation
// is the first one that it concerns.
Status NcclProcessGroup::Impl::ended(const Operation& operation) const {
  Status status = cause_;
  note_collective(status.failure(), operation.collective, operation.sequence);
  return status;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
