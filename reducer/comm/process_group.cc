#include "reducer/comm/process_group.h"

#include <algorithm>
#include <limits>

#include "reducer/base/check.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

const char* name_of(Op op) {
  switch (op) {
    case Op::kAllReduceSum:
      return "all_reduce";
    case Op::kBroadcast:
      return "broadcast";
    case Op::kAllGather:
      return "all_gather";
  }
  return "unknown";
}

Work::Work() : mutex_("work"), completed_("work.completed") {}

Status Work::wait(platform::Deadline deadline) {
  platform::MutexLock lock(mutex_);
  if (!completed_.wait(mutex_, deadline,
                       [this]() LOCKSTEP_REQUIRES(mutex_) { return !in_flight_; })) {
    LOCKSTEP_CHECK(!deadline.is_never());
    Failure failure;
    failure.code = Code::kTimeout;
    failure.sequence = sequence_;
    failure.detail = "the collective did not end before the deadline";
    return failure;
  }
  return status_;
}

bool Work::done() const {
  platform::MutexLock lock(mutex_);
  return !in_flight_;
}

void Work::begin(std::int64_t sequence) {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK(!in_flight_);
  in_flight_ = true;
  sequence_ = sequence;
}

void Work::complete(Status status) {
  WorkObserver* const observer = observer_.exchange(nullptr);
  if (observer != nullptr && !status.ok()) observer->failed(status.failure());
  if (observer != nullptr) observer->ended();
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK(in_flight_);
  in_flight_ = false;
  completed_at_ = platform::now();
  status_ = std::move(status);
  completed_.notify_all();
}

std::int64_t Work::sequence() const {
  platform::MutexLock lock(mutex_);
  return sequence_;
}

platform::Duration Work::completed_at() const {
  platform::MutexLock lock(mutex_);
  return completed_at_;
}

bool ProcessGroup::can_reach(const Device& device) const { return device.is_host(); }

void note_collective(Failure& failure, const Collective& collective, std::int64_t sequence) {
  LOCKSTEP_CHECK_GE(sequence, 0);
  if (!failure.collective.empty()) return;
  failure.collective = name_of(collective.op);
  failure.sequence = sequence;
  if (failure.pass == kNone) failure.pass = collective.pass;
  if (failure.bucket != kNone) return;
  failure.bucket = collective.bucket;
  failure.reducer_id = collective.reducer_id;
}

Status cause_of_abort(Status cause, int rank) {
  LOCKSTEP_CHECK(!cause.ok());
  LOCKSTEP_CHECK_GE(rank, 0);
  Failure& failure = cause.failure();
  const bool is_of_user = failure.rank == kNone && failure.suspect == kNone &&
                          failure.reported_by == kNone && failure.sequence == kNone;
  if (!is_of_user) return cause;
  failure.rank = failure.reported_by = rank;
  failure.definite = true;
  return cause;
}

Failure abort_for_peers(const Status& cause, int rank) {
  LOCKSTEP_CHECK(!cause.ok());
  LOCKSTEP_CHECK_GE(rank, 0);
  Failure failure = cause.failure();
  failure.code = Code::kAborted;
  failure.rank = rank;
  if (failure.suspect == kNone) failure.suspect = rank;
  failure.definite = false;
  failure.detail = "rank " + std::to_string(rank) + " aborted the group: " + cause.to_string();
  return failure;
}

Status run(ProcessGroup& group, const Collective& collective) {
  Work work;
  return run(group, collective, work);
}

platform::Deadline deadline_behind(platform::Duration timeout) {
  LOCKSTEP_CHECK_GE(timeout.count(), 0);
  if (timeout >= platform::Duration::max() / 4) return platform::Deadline::never();
  return platform::Deadline::in(2 * timeout + std::chrono::seconds(1));
}

Status wait_behind(Work& work, std::initializer_list<const ProcessGroup*> groups) {
  LOCKSTEP_CHECK_LT(0u, groups.size());
  platform::Duration timeout{};
  for (const ProcessGroup* group : groups) {
    LOCKSTEP_CHECK(group != nullptr);
    timeout = std::max(timeout, group->timeout());
  }
  const auto progress = [&groups] {
    std::uint64_t sum = 0;
    for (const ProcessGroup* group : groups) sum += group->progress();
    return sum;
  };
  for (std::uint64_t seen = progress();;) {
    Status status = work.wait(deadline_behind(timeout));
    if (status.ok() || work.done())
      return status.ok() ? status : work.wait(platform::Deadline::in({}));
    LOCKSTEP_CHECK(status.code() == Code::kTimeout);
    const std::uint64_t now = progress();
    if (now == seen) return status;
    seen = now;
  }
}

Status check_arguments(const Collective& collective, int size, int copies) {
  LOCKSTEP_CHECK_LT(0, size);
  LOCKSTEP_CHECK_LT(0, copies);
  const auto invalid = [](const char* text) { return Status(Code::kInvalidArgument, text); };
  if (collective.op > Op::kAllGather)
    return invalid("a collective has an operation that is none of Op");
  if (size_of(collective.dtype) == 0)
    return invalid("a collective has a dtype that is none of DType");
  if (collective.reduction > Reduction::kRankOrdered)
    return invalid("a collective has a reduction that is none of Reduction");
  const std::uint64_t most = std::numeric_limits<std::int64_t>::max() / size_of(collective.dtype) /
                             static_cast<std::uint64_t>(size) / static_cast<std::uint64_t>(copies);
  if (collective.op == Op::kBroadcast && (collective.root < 0 || collective.root >= size))
    return invalid("the root of a broadcast is not a rank of the group");
  if (collective.count > most)
    return invalid("a collective's count is beyond what memory can hold");
  if (collective.count == 0) return {};
  if (collective.data == nullptr) return invalid("a collective has elements but no data");
  if (collective.op == Op::kAllGather && collective.gathered == nullptr)
    return invalid("an all_gather has nowhere to gather to");
  return {};
}

// The group enforces its own deadline and knows which peer it waited for.
Status run(ProcessGroup& group, const Collective& collective, Work& work) {
  LOCKSTEP_RETURN_IF_ERROR(group.start(collective, work));
  const Status status = wait_behind(work, {&group});
  if (work.done()) return work.wait(platform::Deadline::never());
  LOCKSTEP_CHECK(!status.ok());
  group.abort(status);
  return work.wait(platform::Deadline::never());  // abort() completes what is in flight.
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
