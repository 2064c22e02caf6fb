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
  if (!cause_.ok() || next_ == tail_ || next_ - head_ >= kWindow) return false;
  const Collective& collective = operations_.at(next_).collective;
  return !needs_stage(collective) || payload_.has_stage();
}

bool NcclProcessGroup::Impl::is_checked(const Collective& collective) const {
  return collective.verify && collective.count > 0 && size_ > 1;
}

// A verified collective goes through the memory of the frames.
bool NcclProcessGroup::Impl::needs_stage(const Collective& collective) const {
  return payload_.is_staged(collective) && !is_checked(collective);
}

void NcclProcessGroup::Impl::issue() {
  if (options_.enter_thread) options_.enter_thread();
  MutexLock lock(mutex_);
  for (;;) {
    queued_.wait(mutex_, Deadline::never(),
                 [this]() LOCKSTEP_REQUIRES(mutex_) { return is_leaving_ || can_issue(); });
    if (is_leaving_) break;
    const std::uint64_t index = next_++;
    Operation& operation = at(index);
    if (needs_stage(operation.collective)) operation.staged_in = payload_.take_stage();
    is_issuing_ = true;
    lock.unlock();

    Status status;
    try {
      status = submit(operation, index);
    } catch (const std::bad_alloc&) {
      status = out_of_memory();
    }

    lock.lock();
    is_issuing_ = false;
    if (status.ok()) {
      operation.stage = Stage::kSubmitted;
    } else if (cause_.ok()) {
      fail_locked(about(operation, std::move(status.failure())));
    }
    armed_.notify_all();
    changed_.notify_all();
  }
  --threads_;
  changed_.notify_all();
}

std::size_t NcclProcessGroup::Impl::header_offset(std::uint64_t index) const {
  return index % kWindow * static_cast<std::size_t>(size_) * sizeof(CollectiveHeader);
}

Status NcclProcessGroup::Impl::submit(Operation& operation, std::uint64_t index) {
  const Collective& collective = operation.collective;
  if (options_.agree && size_ > 1) LOCKSTEP_RETURN_IF_ERROR(submit_header(operation, index));
  // The stream waits, and not this thread. A device on the host has done all work (is_host()).
  if (collective.ready.device == &device_) device_.wait(stream_, collective.ready);
  if (is_checked(collective)) {
    const CollectiveId id{id_, operation.sequence};
    LOCKSTEP_RETURN_IF_ERROR(frames_.run(collective, id));
  } else if (operation.staged_in != kNone) {
    LOCKSTEP_RETURN_IF_ERROR(payload_.submit_staged(collective, operation.staged_in));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(payload_.submit(collective));
  }
  operation.done = device_.record(stream_);
  return {};
}

// From here on the watchdog compares headers, because the payload may hang where ranks differ.
Status NcclProcessGroup::Impl::submit_header(Operation& operation, std::uint64_t index) {
  const CollectiveHeader header = header_of(operation.collective, operation.sequence);
  const std::size_t offset = header_offset(index);
  const std::size_t own = offset + static_cast<std::size_t>(rank_) * sizeof(CollectiveHeader);
  told_.write(own, &header, sizeof header);
  device_.upload(stream_, told_, own, headers_.data() + own, sizeof header);
  LOCKSTEP_RETURN_IF_ERROR(link_.call("the exchange of headers", [&](NcclComm comm) {
    return link_.api().all_gather(headers_.data() + own, headers_.data() + offset,
                                  sizeof(CollectiveHeader), NcclDataType::kUint8, comm,
                                  device_.native(stream_));
  }));
  device_.download(stream_, headers_.data() + offset, heard_, offset,
                   static_cast<std::size_t>(size_) * sizeof(CollectiveHeader));
  const Event event = device_.record(stream_);
  MutexLock lock(mutex_);
  operation.header = event;
  operation.stage = Stage::kHeaderSubmitted;
  armed_.notify_all();
  return {};
}

// Waits for everything that was submitted, or until the group has failed.
Status NcclProcessGroup::Impl::settle() {
  const Event event = device_.record(stream_);
  for (;;) {
    Status status = device_.synchronize(event, Deadline::in(options_.poll));
    if (status.ok() || status.code() != Code::kTimeout) return status;
    MutexLock lock(mutex_);
    if (!cause_.ok()) return Status(Code::kAborted, "the group ended meanwhile");
  }
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
