#include "reducer/collective_launcher.h"

#include "reducer/base/check.h"
#include "reducer/comm/checked_store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

CollectiveLauncher::CollectiveLauncher(Membership membership, const ReducerOptions& options,
                                       const Positioned& training)
    : training_(training),
      is_after_backward_(options.schedule == Schedule::kAfterBackward),
      verifies_payload_(options.verify_payload),
      trace_(options.trace_capacity) {
  move_to(std::move(membership));
}

Status CollectiveLauncher::moved_on() {
  return {Code::kAborted, "the reducer moved to a new process group"};
}

void CollectiveLauncher::leave_for(const Membership& next) {
  for (const auto& group : {membership_.group, membership_.backward_group})
    if (group && group != next.group && group != next.backward_group) group->abort(moved_on());
}

void CollectiveLauncher::move_to(Membership membership) {
  LOCKSTEP_CHECK(membership.group != nullptr);
  LOCKSTEP_CHECK(membership.store != nullptr);
  membership.store = std::make_shared<CheckedStore>(std::move(membership.store));
  membership_ = std::move(membership);
  report_.move_to(membership_);
  has_ended_ = false;
}

void CollectiveLauncher::forget_passes() {
  launched_ = 0;
  trace_.clear();
}

Status CollectiveLauncher::launch(Collective& collective, Work& work, TraceEntry::What what,
                                  std::int64_t& sequence) {
  LOCKSTEP_CHECK_GE(reducer_id_, 0);  // The ranks have agreed.
  const TrainingPosition position = training_.position();
  if (collective.pass == kNone) collective.pass = position.pass;
  LOCKSTEP_CHECK_GE(collective.pass, 0);
  LOCKSTEP_CHECK_GE(launched_, 0);
  collective.reducer_id = reducer_id_;
  collective.verify = verifies_payload_;
  const bool by_first_group = what == TraceEntry::What::kState || what == TraceEntry::What::kJoin;
  ProcessGroup& group = by_first_group ? *membership_.group : backward_group();
  work.observe(report_);
  if (Status status = group.start(collective, work); !status.ok()) {
    // A group that has ended says which collective it refuses. One that refuses invalid arguments
    // does not, and stays usable, as does one that has no memory for the collective.
    const bool is_named = !status.failure().collective.empty();
    if (!is_named) status.failure().collective = name_of(collective.op);
    if (is_named && status.code() != Code::kOutOfMemory) has_ended_ = true;
    annotate(position, status.failure(), collective.bucket);
    return status;
  }
  TraceEntry entry;
  entry.number = work.sequence();
  entry.pass = collective.pass;
  entry.what = what;
  entry.op = collective.op;
  entry.dtype = collective.dtype;
  entry.bucket = collective.bucket;
  entry.layout_hash = position.layout.hash;
  entry.count = static_cast<std::int64_t>(collective.count);
  entry.launched = platform::now();
  sequence = trace_.append(entry);
  const bool is_of_pass = what == TraceEntry::What::kBucket || what == TraceEntry::What::kUsageMap;
  if (is_of_pass) ++launched_;
  return {};
}

Status CollectiveLauncher::await(Work& work, std::int64_t sequence, int bucket) {
  Status status = wait_for(work);
  close_trace(sequence, status);
  if (!status.ok()) annotate(training_.position(), status.failure(), bucket);
  return status;
}

// The process group ends every collective itself; this deadline lies behind the group's own.
Status CollectiveLauncher::wait_for(Work& work) const {
  return wait_behind(work, {membership_.group.get(), &backward_group()});
}

void CollectiveLauncher::close_trace(std::int64_t sequence, const Status& status) {
  trace_.close(sequence, status.ok() ? TraceEntry::State::kCompleted : TraceEntry::State::kFailed,
               platform::now());
  if (!status.ok()) has_ended_ = true;
}

void CollectiveLauncher::abort(const Status& cause) {
  membership_.group->abort(cause);
  if (membership_.backward_group) membership_.backward_group->abort(cause);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
