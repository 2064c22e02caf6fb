// What the reducer does when something fails: it names the cause, reports it to the peers, and
// refuses further work (F2, P5, P12).
#include <algorithm>
#include <new>

#include "reducer/base/check.h"
#include "reducer/pass.h"
#include "reducer/reducer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Runs what the handling of a failure can do without, if memory runs out.
template <class Call>
void attempt(const Call& call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
  }
}

constexpr platform::Duration kDrainLimit = std::chrono::seconds(60);

}  // namespace

Failure Reducer::describe(Code code, std::string detail) const {
  Failure failure;
  failure.code = code;
  failure.detail = std::move(detail);
  failure.rank = membership_.group->rank();
  failure.reported_by = failure.rank;
  if (pass_) failure.pass = pass_->number;
  return failure;
}

// Adds what the reducer knows to a failure of the process group.
void Reducer::annotate(Failure& failure, int bucket) const {
  const int rank = membership_.group->rank();
  if (failure.code == Code::kAborted && failure.rank != rank) {
    // These fields say where the reducer of the peer was that aborted the group; its text says so,
    // too. This reducer was elsewhere.
    failure.pass = failure.bucket = kNone;
    failure.parameters.clear();
  }
  failure.reported_by = rank;
  if (failure.rank == kNone) failure.rank = failure.suspect;
  // Another reducer on the group may have started the collective (F7).
  const bool is_of_other = failure.reducer_id != kNone && failure.reducer_id != reducer_id_;
  // The group knows where it failed first, which may be behind this rank. A collective that a
  // forward, or the beginning of a backward, starts comes before its pass has a number.
  if (failure.pass == kNone || is_of_other)
    failure.pass = pass_ && pass_->number >= 0 ? pass_->number : next_pass_;
  if (failure.bucket == kNone) failure.bucket = bucket;
  if (failure.bucket == kNone || !failure.parameters.empty()) return;
  if (is_of_other || static_cast<std::size_t>(failure.bucket) >= layout_.buckets.size()) {
    failure.bucket = kNone;
    return;
  }
  for (const BucketMember& member :
       layout_.buckets[static_cast<std::size_t>(failure.bucket)].members)
    failure.parameters.push_back(infos_[member.parameter].name);
}

Status Reducer::incomplete() {
  const core::PassCore& core = idle_core();
  Failure failure = describe(Code::kIncomplete, "");
  for (const ReducedParameter& reduced : reduced_parameters_) {
    if (core.is_parameter_ready(reduced.number)) continue;
    if (failure.bucket == kNone) failure.bucket = static_cast<int>(reduced.bucket);
    each_replica(reduced, [&](const ReplicaGradient& replica) {
      if (!core.is_gradient_ready(replica.number))
        failure.parameters.push_back(replica.parameter->name());
    });
  }
  failure.definite = true;
  if (options_.static_graph)
    failure.detail =
        "backward ended and these parameters had fewer hooks than in the first pass: with "
        "static_graph on every pass has to be the same";
  else
    failure.detail =
        "backward ended and these parameters had received no gradient. Use every parameter in the "
        "loss, or turn find_unused_parameters on";
  return failure;
}

// Completes a failure in or around the communication hook of a bucket (S4). An error of the group
// stays what it is.
Status Reducer::hook_failed(Status status, std::size_t b) const {
  Failure& failure = status.failure();
  if (!concerns_group(failure.code)) {
    if (failure.code != Code::kOutOfMemory) failure.code = Code::kUserFailure;
    failure.rank = membership_.group->rank();
    failure.definite = true;
    failure.detail =
        "the communication hook " + options_.hook->name() + " failed: " + failure.detail;
  }
  annotate(failure, static_cast<int>(b));
  if (failure.rank == kNone) failure.rank = membership_.group->rank();
  return status;
}

Status Reducer::hook_never_ended(std::size_t b) const {
  Failure failure =
      describe(Code::kTimeout, "the communication hook " + options_.hook->name() +
                                   " has not completed its future within the timeout of the group");
  failure.definite = true;
  annotate(failure, static_cast<int>(b));
  return failure;
}

// Gives up a pass that cannot be completed. If nothing was launched, no peer is in the middle of a
// collective, and the reducer stays usable (P12).
Status Reducer::give_up(Status status) {
  if (launched_ > 0 || concerns_group(status.code())) return fail(std::move(status.failure()));
  note_failure(status.failure());
  close_pass(false);
  return status;
}

Status Reducer::backward_failed(Status status) {
  // If the group of another reducer ended the backward (F7), this reducer's group may have failed
  // earlier without notice, because nobody had waited for it yet. Then that failure is the one to
  // report to the peers.
  const auto take_own = [&] {
    std::size_t launched = 0;
    {
      platform::MutexLock lock(mutex_);
      launched = core_.next_bucket();
    }
    for (std::size_t b = 0; b < launched; ++b) {
      if (buckets_[b].hooked || !buckets_[b].work.done()) continue;
      Status own = buckets_[b].work.wait(platform::Deadline::in({}));
      if (own.ok()) continue;
      annotate(own.failure(), static_cast<int>(b));
      status = std::move(own);
      return;
    }
  };
  if (concerns_group(status.code()) && !status.failure().definite) attempt(take_own);
  Failure& failure = status.failure();
  failure.reported_by = membership_.group->rank();
  if (failure.rank == kNone) failure.rank = failure.reported_by;
  if (failure.pass == kNone && pass_) failure.pass = pass_->number;
  return give_up(std::move(status));
}

// Makes a failure in memory that was reserved for it.
Status Reducer::reserved(Code code, const char* detail) {
  Status status = std::move(reserve_);
  if (status.ok()) status = Status(Failure());
  status.failure().code = code;
  attempt([&] { status.failure().detail = detail; });
  return status;
}

// A user's argument to abort(), or the failure of another group with other ranks that ended a
// backward (F7), may name a rank that this group does not have.
void Reducer::keep_to_group(Failure& failure) const {
  const int size = membership_.group->size();
  const auto is_strange = [size](int rank) { return rank < kNone || rank >= size; };
  if (is_strange(failure.rank)) failure.rank = membership_.group->rank();
  if (is_strange(failure.suspect)) failure.suspect = kNone;
  failure.bucket = std::max(failure.bucket, kNone);
  for (std::int64_t* number : {&failure.pass, &failure.reducer_id, &failure.sequence})
    *number = std::max<std::int64_t>(*number, kNone);
}

// Reports what is known to the peers, wakes them by closing the group, and finds the first cause.
// If memory runs out, the group is closed and the reducer poisoned all the same.
Status Reducer::fail(Failure failure) {
  // The first cause stays (F2), also if this function itself ran out of memory.
  if (!poison_.ok()) return copy_of_poison();
  const int rank = membership_.group->rank();
  FailureBoard board(membership_.store, rank, membership_.group->size());
  failure.reported_by = rank;
  keep_to_group(failure);
  Status own = reserved(failure.code, "");
  own.failure() = std::move(failure);
  attempt([&] {
    note_failure(own.failure());
    board.publish(flight_record());
  });
  attempt([&] { board.publish(own.failure()); });
  stop_group(own);
  poison_ = std::move(own);
  attempt([&] { poison_ = Status(board.settle(poison_.failure(), options_.failure_grace)); });
  close_pass(false);
  return copy_of_poison();
}

Status Reducer::copy_of_poison() const {
  Status copy;
  attempt([&] { copy = poison_; });
  return copy.ok() ? out_of_memory() : copy;
}

void Reducer::abort(const Status& cause) {
  if (!poison_.ok()) return;
  LOCKSTEP_CHECK(!cause.ok());
  Failure failure;
  failure.code = cause.code();
  attempt([&] { failure = cause.failure(); });
  const bool is_named = failure.code == Code::kUnevenInputs && failure.rank != kNone;
  const int rank = membership_.group->rank();
  const bool is_of_another =
      failure.rank >= 0 && failure.rank < membership_.group->size() && failure.rank != rank;
  if (!is_named && is_of_another && failure.suspect == kNone) failure.suspect = failure.rank;
  if (!is_named) failure.rank = rank;
  failure.definite = true;
  attempt([&] { fail(std::move(failure)).ignore(); });
}

// Ends the group on this rank, and waits until the group no longer uses the buckets' memory.
void Reducer::stop_group(const Status& cause) {
  membership_.group->abort(cause);
  if (membership_.backward_group) membership_.backward_group->abort(cause);
  for (Bucket& bucket : buckets_) {
    bucket.work.wait(platform::Deadline::in(kDrainLimit)).ignore();
    LOCKSTEP_CHECK(bucket.work.done());  // An aborted group completes what is in flight.
    const platform::Deadline limit = platform::Deadline::in(kDrainLimit);
    LOCKSTEP_CHECK(!bucket.hooked || bucket.hooked->is_drained(limit));
  }
  usage_work_.wait(platform::Deadline::in(kDrainLimit)).ignore();
  LOCKSTEP_CHECK(usage_work_.done());
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
