#include "reducer/training_position.h"

#include <algorithm>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/base/status.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Another reducer on the group may have started the collective (F7).
bool is_of_other(const TrainingPosition& position, const Failure& failure) {
  return failure.reducer_id != kNone && failure.reducer_id != position.reducer_id;
}

// A peer has aborted the group. What the failure says of pass and bucket is where that peer was.
bool is_abort_of_peer(int rank, const Failure& failure) {
  return failure.code == Code::kAborted && failure.rank != rank;
}

}  // namespace

Failure describe(const TrainingPosition& position, Code code, std::string detail) {
  LOCKSTEP_CHECK_GE(position.rank, 0);
  LOCKSTEP_CHECK_LT(position.rank, position.size);
  Failure failure;
  failure.code = code;
  failure.detail = std::move(detail);
  failure.rank = position.rank;
  failure.reported_by = failure.rank;
  failure.pass = position.pass;
  return failure;
}

void keep_to_group(int rank, int size, Failure& failure) {
  LOCKSTEP_CHECK_GE(rank, 0);
  LOCKSTEP_CHECK_LT(rank, size);
  const auto is_strange = [size](int each) { return each < kNone || each >= size; };
  if (is_strange(failure.rank)) failure.rank = rank;
  if (is_strange(failure.suspect)) failure.suspect = kNone;
  failure.bucket = std::max(failure.bucket, kNone);
  for (std::int64_t* number : {&failure.pass, &failure.reducer_id, &failure.sequence})
    *number = std::max<std::int64_t>(*number, kNone);
}

void seen_by(int rank, int size, Failure& failure) {
  keep_to_group(rank, size, failure);
  if (is_abort_of_peer(rank, failure)) {  // Its text says it, too. This reducer was elsewhere.
    failure.pass = failure.bucket = kNone;
    failure.parameters.clear();
  }
  if (failure.rank == kNone) failure.rank = failure.suspect;
}

void name_parameters(const TrainingPosition& position, Failure& failure) {
  if (failure.bucket == kNone || !failure.parameters.empty()) return;
  const std::vector<BucketLayout>& buckets = position.layout.buckets;
  const auto bucket = static_cast<std::size_t>(failure.bucket);
  if (is_of_other(position, failure) || bucket >= buckets.size()) {
    failure.bucket = kNone;
    return;
  }
  for (const BucketMember& member : buckets[bucket].members) {
    LOCKSTEP_CHECK_LT(member.parameter, position.parameters.size());
    failure.parameters.push_back(position.parameters[member.parameter].name);
  }
}

void annotate(const TrainingPosition& position, Failure& failure, int bucket) {
  seen_by(position.rank, position.size, failure);
  // The group knows where it failed first, which may be behind this rank. A collective that a
  // forward, or the beginning of a backward, starts comes before its pass has a number.
  if (failure.pass == kNone || is_of_other(position, failure))
    failure.pass = position.pass != kNone ? position.pass : position.next_pass;
  // Where the group names a collective by its number, it says the bucket, too, if it is one of a
  // bucket: a usage map, or an agreement with which a peer was late, is of none.
  const bool is_said = !failure.collective.empty() && failure.sequence != kNone;
  const bool is_of_bucket = !is_said || is_abort_of_peer(position.rank, failure);
  if (failure.bucket == kNone && is_of_bucket) failure.bucket = bucket;
  name_parameters(position, failure);
  LOCKSTEP_CHECK(failure.bucket == kNone || !failure.parameters.empty());
}

void complete(const TrainingPosition& position, Failure& failure) {
  keep_to_group(position.rank, position.size, failure);
  failure.reported_by = position.rank;
  if (failure.pass == kNone)
    failure.pass = position.pass != kNone ? position.pass : position.next_pass;
  if (failure.rank != kNone || is_of_group(failure)) return;
  failure.rank = position.rank;
  const bool is_inferred = failure.code == Code::kTimeout || failure.code == Code::kPoisoned;
  if (!is_inferred) failure.definite = true;
  LOCKSTEP_CHECK(is_possible(failure, position.size));
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
