#include "faults/gloo/faulty_group.h"

#include <chrono>
#include <thread>
#include <utility>

namespace lockstep {
inline namespace LOCKSTEP_NS {

FaultyGroup::FaultyGroup(std::shared_ptr<ProcessGroup> inner,
                         std::function<faults::OperationFault()> on_operation)
    : ForwardingGroup(std::move(inner)), on_operation_(std::move(on_operation)) {}

FaultyGroup::~FaultyGroup() {
  {
    platform::MutexLock lock(mutex_);
    is_ended_ = true;
    ended_.notify_all();
  }
  if (timer_.joinable()) timer_.join();
  complete_stalled(Status(Code::kAborted, "the group was destroyed"));
}

Status FaultyGroup::start(const Collective& collective, Work& work) {
  const faults::OperationFault fault = on_operation_();
  if (fault.delay_us != 0) std::this_thread::sleep_for(std::chrono::microseconds(fault.delay_us));
  {
    platform::MutexLock lock(mutex_);
    if (is_ended_) {
      Status refusal = cause_;
      note_collective(refusal.failure(), collective, next_sequence_);
      return refusal;
    }
    if (fault.stall && !is_stalling_) {
      is_stalling_ = true;
      timer_ = platform::Thread("stall", [this] { wait_out(); });
    }
    if (is_stalling_) {
      work.begin(next_sequence_++);
      stalled_.push_back({collective, &work});
      return {};
    }
    ++next_sequence_;
  }
  return ForwardingGroup::start(collective, work);
}

void FaultyGroup::abort(const Status& given) {
  const Status cause = cause_of_abort(given, rank());
  {
    platform::MutexLock lock(mutex_);
    if (!is_ended_) cause_ = cause;
    is_ended_ = true;
    ended_.notify_all();
  }
  ForwardingGroup::abort(cause);
  complete_stalled(cause);
}

void FaultyGroup::wait_out() {
  Failure failure;
  {
    platform::MutexLock lock(mutex_);
    const platform::Duration limit = timeout();
    const platform::Deadline deadline = limit == platform::Duration::max()
                                            ? platform::Deadline::never()
                                            : platform::Deadline::in(limit);
    if (ended_.wait(mutex_, deadline, [this]() LOCKSTEP_REQUIRES(mutex_) { return is_ended_; }))
      return;
    if (!stalled_.empty())
      note_collective(failure, stalled_.front().collective, stalled_.front().work->sequence());
  }
  failure.code = Code::kTimeout;
  failure.rank = rank();
  failure.reported_by = rank();
  failure.detail = "the collective did not begin on rank " + std::to_string(rank());
  abort(failure);
}

void FaultyGroup::complete_stalled(const Status& cause) {
  std::vector<Stalled> stalled;
  {
    platform::MutexLock lock(mutex_);
    stalled.swap(stalled_);
  }
  for (const Stalled& entry : stalled) entry.work->complete(cause);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
