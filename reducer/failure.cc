// What the reducer does when something fails: it names the cause, reports it to the peers, and
// refuses further work (F2, P5, P12).
#include <algorithm>
#include <new>

#include "reducer/base/check.h"
#include "reducer/failure_board.h"
#include "reducer/pass.h"
#include "reducer/reducer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr platform::Duration kDrainLimit = std::chrono::seconds(60);

}  // namespace

Status Reducer::incomplete() {
  LOCKSTEP_CHECK(passes_.current());
  const core::PassCore& core = idle_core();
  Failure failure = describe(position(), Code::kIncomplete, "");
  for (const ReducedParameter& reduced : replicas_) {
    if (core.is_parameter_ready(reduced.number)) continue;
    if (failure.bucket == kNone) failure.bucket = static_cast<int>(reduced.bucket);
    replicas_.each_replica(reduced, [&](const ReplicaGradient& replica) {
      if (!core.is_gradient_ready(replica.number))
        failure.parameters.push_back(replica.parameter->name());
    });
  }
  failure.definite = true;
  if (options_.static_graph)
    failure.detail =
        "backward ended and these parameters had fewer hooks than in the first pass: with "
        "static_graph on, every pass has to be the same";
  else
    failure.detail =
        "backward ended and these parameters had received no gradient. Use every parameter in the "
        "loss, or turn find_unused_parameters on";
  return failure;
}

// Gives up a pass that cannot be completed. If nothing was launched, no peer is in the middle of a
// collective, and the reducer stays usable (P12).
Status Reducer::give_up(Status status) {
  LOCKSTEP_CHECK(!status.ok());
  const bool has_group = !concerns_group(status.code()) && !collectives_.has_ended();
  if (collectives_.launched() > 0 || !has_group) return fail(std::move(status.failure()));
  complete(position(), status.failure());
  note_failure(status.failure());
  attempt([&] { leave_note(status.to_string()); });
  close_pass(false);
  return status;
}

void Reducer::leave_note(std::string_view reason) const {
  if (failures_.is_poisoned() || (passes_.is_running() && collectives_.launched() > 0)) return;
  const std::int64_t pass = passes_.number() == kNone ? passes_.next() : passes_.number();
  FailureBoard(collectives_.store(), collectives_.rank(), collectives_.size())
      .leave_note(collectives_.reducer_id(), pass, reason);
}

TrainingPosition Reducer::position() const {
  return {collectives_.rank(), collectives_.size(), collectives_.reducer_id(), passes_.number(),
          passes_.next(),      buckets_.layout(),   replicas_.infos()};
}

// A node or a hook may fail after a collective did that nobody has waited for yet. The peers know
// of the collective already, and it is the first cause on this rank, too. Where a group failed, a
// user of this rank may have aborted the reducer's other group before, and peers that followed have
// ended this one: then the abort is the first cause. A report that was made before the abort stays.
void Reducer::put_first_cause_first(Failure& failure) {
  LOCKSTEP_CHECK(!failures_.is_poisoned());  // The first cause stays (F2).
  std::optional<Failure> first = collectives_.take_report();
  if (!first && concerns_group(failure.code) && !failure.definite) first = collectives_.own_cause();
  if (!first) return;
  const bool is_same =
      first->code == failure.code && first->rank == failure.rank && first->detail == failure.detail;
  if (is_same) return;
  annotate(position(), *first, kNone);
  first->later.push_back("rank " + std::to_string(collectives_.rank()) +
                         " saw: " + failure.to_string());
  failure = *std::move(first);
}

// Reports what is known to the peers, wakes them by closing the group, and finds the first cause.
// If memory runs out, the group is closed and the reducer poisoned all the same.
Status Reducer::fail(Failure failure) {
  // The first cause stays (F2), also if this function itself ran out of memory.
  if (failures_.is_poisoned()) {
    leave_backward();  // A user may have aborted the reducer inside of it.
    return failures_.copy_of_poison();
  }
  end_group(std::move(failure), position());
  close_pass(false);
  return failures_.copy_of_poison();
}

void Reducer::end_group(Failure failure, const TrainingPosition& at) {
  const int rank = collectives_.rank();
  FailureBoard board(collectives_.store(), rank, collectives_.size());
  complete(at, failure);
  attempt([&] { put_first_cause_first(failure); });
  Status own = failures_.reserved(failure.code, "");
  own.failure() = std::move(failure);
  attempt([&] {
    note_failure(own.failure());
    board.publish(flight_record());
  });
  attempt([&] { board.publish(own.failure()); });
  stop_group(own);
  failures_.set_poison(std::move(own));
  attempt([&] {
    Failure first = board.settle(failures_.poison().failure(), options_.failure_grace,
                                 collectives_.reducer_id());
    name_parameters(position(), first);
    failures_.set_poison(Status(std::move(first)));
  });
  LOCKSTEP_CHECK(failures_.is_poisoned());
}

Status Reducer::memory_refused() const {
  Status status = out_of_memory();
  complete(position(), status.failure());
  return status;
}

void Reducer::abort(const Status& cause) {
  if (failures_.is_poisoned()) return;
  LOCKSTEP_CHECK(!cause.ok());
  Failure failure;
  failure.code = cause.code();
  attempt([&] { failure = cause.failure(); });
  const bool is_named = failure.code == Code::kUnevenInputs && failure.rank != kNone;
  const int rank = collectives_.rank();
  const bool is_of_another =
      failure.rank >= 0 && failure.rank < collectives_.size() && failure.rank != rank;
  // Another rank gave up as it had lost a peer without a name. That rank has done its part.
  const bool has_lost_a_peer = failure.code == Code::kPeerLost && failure.definite;
  if (!is_named && is_of_another && !has_lost_a_peer && failure.suspect == kNone)
    failure.suspect = failure.rank;
  if (!is_named) failure.rank = rank;
  failure.definite = true;
  attempt([&] { end_group(std::move(failure), position()); });
  // The pass stays, so that its next backward is refused with this cause, until the reset.
  buckets_.restore_stale_grads();
}

// Ends the group on this rank, and waits until the group no longer uses the buckets' memory.
void Reducer::stop_group(const Status& cause) {
  collectives_.abort(cause);
  for (Bucket& bucket : buckets_) {
    bucket.work.wait(platform::Deadline::in(kDrainLimit)).ignore();
    LOCKSTEP_CHECK(bucket.work.done());  // An aborted group completes what is in flight.
    for (Bucket::Rows& rows : bucket.rows) {
      rows.work.wait(platform::Deadline::in(kDrainLimit)).ignore();
      LOCKSTEP_CHECK(rows.work.done());
    }
    const platform::Deadline limit = platform::Deadline::in(kDrainLimit);
    LOCKSTEP_CHECK(!bucket.hooked || bucket.hooked->is_drained(limit));
  }
  collectives_.control().wait(platform::Deadline::in(kDrainLimit)).ignore();
  LOCKSTEP_CHECK(collectives_.control().done());
}

ProgressSnapshot Reducer::progress() const {
  ProgressSnapshot progress;
  progress.pass = passes_.next();
  if (!passes_.current()) return progress;
  progress.doing = FlightRecord::Doing::kArmed;
  if (!passes_.is_running()) return progress;
  progress.pass = passes_.current()->number;
  platform::MutexLock lock(mutex_);
  progress.next_bucket = shared_.core.next_bucket();
  LOCKSTEP_CHECK_LE(progress.next_bucket, buckets_.size());
  if (shared_.running_task != nullptr)
    progress.doing = FlightRecord::Doing::kBackward;
  else
    progress.doing = shared_.core.is_all_ready() ? FlightRecord::Doing::kFinishing
                                                 : FlightRecord::Doing::kBetween;
  return progress;
}

FlightRecord Reducer::flight_record() const try {
  const ProgressSnapshot progress =
      failures_.failed_at() ? *failures_.failed_at() : this->progress();
  FlightRecord record = record_flight(position(), progress, collectives_.trace());
  if (progress.doing != FlightRecord::Doing::kIdle && progress.next_bucket < buckets_.size()) {
    record.next_bucket = static_cast<int>(progress.next_bucket);
    // The parameters of an armed pass still have the state of the last one.
    const bool armed = progress.doing == FlightRecord::Doing::kArmed;
    const auto is_ready = [&](const ReplicaGradient& replica, std::size_t parameter) {
      platform::MutexLock lock(mutex_);
      return shared_.core.is_parameter_ready(parameter) ||
             shared_.core.is_gradient_ready(replica.number);
    };
    for (const std::size_t reduced : buckets_[progress.next_bucket].members)
      replicas_.each_replica(replicas_[reduced], [&](const ReplicaGradient& replica) {
        if (armed || !is_ready(replica, reduced)) record.missing.add(replica.parameter->name());
      });
  }
  if (failures_.is_poisoned()) record.failure = failures_.poison().failure();
  return record;
} catch (const std::bad_alloc&) {
  FlightRecord nothing;  // Without memory, the record says only which rank it belongs to.
  nothing.rank = collectives_.rank();
  nothing.size = collectives_.size();
  nothing.reducer_id = collectives_.reducer_id();
  return nothing;
}

// Takes the progress before anything is cleaned up, because the state of the pass is lost
// afterwards. The first failure since a pass began stays.
void Reducer::note_failure(const Failure& failure) {
  if (!failures_.failed_at()) failures_.note(progress(), failure);
}

Result<Diagnosis> Reducer::diagnose(platform::Duration patience) const try {
  FailureBoard board(collectives_.store(), collectives_.rank(), collectives_.size());
  FlightRecord own = flight_record();
  // The failure has published the record, memory permitting. The first record stays: one from
  // before the last failure would be out of date when peers read it.
  if (failures_.is_poisoned()) board.publish(own);
  return lockstep::diagnose(board.records(std::move(own), platform::Deadline::in(patience)));
} catch (const std::bad_alloc&) {
  return failed(out_of_memory());
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
