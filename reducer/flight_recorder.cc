// Makes the flight record of this rank, and reads those of its peers (T1).
#include <new>

#include "reducer/pass.h"
#include "reducer/reducer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::int64_t microseconds(platform::Duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

RecordedCollective::What reported(TraceEntry::What what) {
  switch (what) {
    case TraceEntry::What::kBucket:
      return RecordedCollective::What::kBucket;
    case TraceEntry::What::kUsageMap:
      return RecordedCollective::What::kUsageMap;
    case TraceEntry::What::kRebuild:
      return RecordedCollective::What::kOrder;
    case TraceEntry::What::kState:
      return RecordedCollective::What::kState;
    case TraceEntry::What::kJoin:
      break;
  }
  return RecordedCollective::What::kJoin;
}

RecordedCollective::State reported(TraceEntry::State state) {
  switch (state) {
    case TraceEntry::State::kLaunched:
      return RecordedCollective::State::kInFlight;
    case TraceEntry::State::kCompleted:
      return RecordedCollective::State::kCompleted;
    case TraceEntry::State::kFailed:
      break;
  }
  return RecordedCollective::State::kFailed;
}

}  // namespace

Reducer::ProgressSnapshot Reducer::progress() const {
  ProgressSnapshot progress;
  progress.pass = next_pass_;
  if (!pass_) return progress;
  progress.doing = FlightRecord::Doing::kArmed;
  if (pass_->state == Pass::State::kOpen) return progress;
  progress.pass = pass_->number;
  platform::MutexLock lock(mutex_);
  progress.next_bucket = core_.next_bucket();
  if (running_task_ != nullptr)
    progress.doing = FlightRecord::Doing::kBackward;
  else
    progress.doing =
        core_.is_all_ready() ? FlightRecord::Doing::kFinishing : FlightRecord::Doing::kBetween;
  return progress;
}

FlightRecord Reducer::flight_record() const try {
  const ProgressSnapshot progress = failed_at_ ? *failed_at_ : this->progress();
  FlightRecord record;
  record.rank = membership_.group->rank();
  record.size = membership_.group->size();
  record.reducer_id = reducer_id_;
  record.doing = progress.doing;
  record.pass = progress.pass;
  if (progress.doing != FlightRecord::Doing::kIdle && progress.next_bucket < buckets_.size()) {
    record.next_bucket = static_cast<int>(progress.next_bucket);
    const bool armed =
        // The parameters still have the state of the last pass.
        progress.doing == FlightRecord::Doing::kArmed;
    const auto is_ready = [&](const ReplicaGradient& replica, std::size_t parameter) {
      platform::MutexLock lock(mutex_);
      return core_.is_parameter_ready(parameter) || core_.is_gradient_ready(replica.number);
    };
    for (const std::size_t reduced : buckets_[progress.next_bucket].members)
      each_replica(reduced_parameters_[reduced], [&](const ReplicaGradient& replica) {
        if (armed || !is_ready(replica, reduced)) record.missing.add(replica.parameter->name());
      });
  }
  record.failure = progress.failure;
  if (!poison_.ok()) record.failure = poison_.failure();
  const std::vector<TraceEntry> entries = trace_.entries();
  record.collectives.reserve(entries.size());
  for (const TraceEntry& entry : entries) {
    RecordedCollective& c = record.collectives.emplace_back();
    c.sequence = entry.sequence;
    c.pass = entry.pass;
    c.what = reported(entry.what);
    c.op = name_of(entry.op);
    c.dtype = entry.dtype;
    c.state = reported(entry.state);
    c.bucket = entry.bucket;
    c.count = entry.count;
    c.layout_hash = entry.layout_hash;
    c.launched_us = microseconds(entry.launched);
    c.completed_us = microseconds(entry.completed);
    if (entry.bucket == kNone || entry.layout_hash != layout_.hash) continue;
    for (const BucketMember& member :
         layout_.buckets[static_cast<std::size_t>(entry.bucket)].members)
      c.parameters.add(infos_[member.parameter].name);
  }
  record.next_sequence = trace_.next_sequence();
  return record;
} catch (const std::bad_alloc&) {
  FlightRecord nothing;  // Without memory, the record says only which rank it belongs to.
  nothing.rank = membership_.group->rank();
  nothing.size = membership_.group->size();
  nothing.reducer_id = reducer_id_;
  return nothing;
}

// Takes the progress before anything is cleaned up, because the state of the pass is lost
// afterwards.
void Reducer::note_failure(const Failure& failure) {
  if (failed_at_) return;
  failed_at_ = progress();
  failed_at_->failure = failure;
}

Result<Diagnosis> Reducer::diagnose(platform::Duration patience) const try {
  FailureBoard board(membership_.store, membership_.group->rank(), membership_.group->size());
  FlightRecord own = flight_record();
  // The failure has published the record, memory permitting. The first record stays: one from
  // before the last failure would be out of date when peers read it.
  if (!poison_.ok()) board.publish(own);
  return lockstep::diagnose(board.records(std::move(own), platform::Deadline::in(patience)));
} catch (const std::bad_alloc&) {
  return failed(out_of_memory());
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
