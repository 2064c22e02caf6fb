// The part of group_failure.cc that draws what fails in one step of one rank, and the group that
// fails so.
//
// Threads: the rank's own fiber.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "properties/components/checks.h"
#include "reducer/data_parallel.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace group_failure {

// A number of a rank that no group here has. Its own size is another.
constexpr int kStranger = 100;

// The collective in which the group failed first, as the failure names it.
enum class Place {
  kHere,       // the one that this rank starts
  kAgreement,  // one without a reducer, which a late peer has not entered
  kUsageMap,   // one of this reducer without a bucket
  kOther,      // one of another reducer on the group
  kAhead,      // one of a later pass, in which a peer was ahead
  kBeyond,     // one of a bucket that this rank's layout lacks
  kNowhere,    // numbers of another library, in a cause that its user has given
};
constexpr std::uint32_t kPlaces = 7;

// How the rank learns of it.
enum class By {
  kWork,     // the collective has started, and its Work ends with the failure
  kStart,    // the group has failed, and refuses the collective
  kRefusal,  // the group refuses this collective alone, and goes on
};

// What the user does in the same backward, behind the first buckets.
enum class User { kNothing, kThrows, kTimesOut, kAborts };

struct Plan {
  int rank = 0;
  int size = 1;
  int at = 0;  // the number of the collective that fails, of those of the step
  By by = By::kWork;
  Place place = Place::kHere;
  User user = User::kNothing;
  bool has_two_groups = false;
  bool is_dynamic = false;
  bool has_buffer = false;
  std::uint64_t bucket_bytes = 1;
  Failure failure;
};

// A group of which only one rank is played. The others have the same data.
class FailingGroup final : public ProcessGroup {
 public:
  FailingGroup(int rank, int size) : rank_(rank), size_(size) {}

  // The collective behind `after` others fails so. `names` completes the failure.
  void fail(int after, By by, Failure failure,
            std::function<void(Failure&, const Collective&, std::int64_t)> names) {
    left_ = after;
    by_ = by;
    failure_ = std::move(failure);
    names_ = std::move(names);
  }
  void go_on() { left_ = kNone; }  // and nothing fails any more
  bool has_failed() const { return has_failed_; }
  const std::optional<Collective>& failed() const { return failed_; }
  const std::optional<Failure>& named() const { return named_; }  // as the rank was told
  const Status& ended_for() const {
    return ended_for_;
  }  // by the last abort, which is the reducer's

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool can_reduce(DType) const override { return true; }
  platform::Duration timeout() const override { return std::chrono::seconds(1); }
  Status health() const override { return cause_; }
  void abort(const Status& cause) override {
    ended_for_ = cause;
    if (cause_.ok()) cause_ = cause_of_abort(cause, rank_);
  }
  Status start(const Collective& collective, Work& work) override {
    if (!cause_.ok()) {
      Status refusal = cause_;
      note_collective(refusal.failure(), collective, sequence_);
      return refusal;
    }
    const bool fails = left_ >= 0 && left_-- == 0;
    if (fails) note_failure(collective);
    if (fails && by_ != By::kWork) return *named_;
    play(collective);
    work.begin(sequence_++);
    work.complete(fails ? Status(*named_) : Status());
    return {};
  }

 private:
  void note_failure(const Collective& collective) {
    has_failed_ = true;
    failed_ = collective;
    named_ = failure_;
    named_->reported_by = rank_;
    if (names_) names_(*named_, collective, sequence_);
    if (by_ == By::kRefusal) return;
    note_collective(*named_, collective, sequence_);
    cause_ = *named_;
  }
  void play(const Collective& collective) const {
    const std::size_t bytes = collective.count * size_of(collective.dtype);
    for (int r = 0; collective.op == Op::kAllGather && r < size_; ++r)
      std::memcpy(collective.gathered + static_cast<std::size_t>(r) * bytes, collective.data,
                  bytes);
  }

  const int rank_;
  const int size_;
  std::int64_t sequence_ = 0;
  int left_ = kNone;
  By by_ = By::kWork;
  Failure failure_;
  std::function<void(Failure&, const Collective&, std::int64_t)> names_;
  bool has_failed_ = false;
  std::optional<Collective> failed_;
  std::optional<Failure> named_;
  Status cause_;
  Status ended_for_;
};

// A node that passes its gradient on to all of its edges, and may do something else first.
class FanNode final : public Node {
 public:
  FanNode(Engine& engine, std::vector<Edge> edges, std::function<Status()> act = {})
      : Node(engine.next_sequence(), 1, 0), act_(std::move(act)) {
    edges_ = std::move(edges);
  }
  Status apply(std::span<const Tensor> in, std::span<Tensor> out, const BackwardContext&) override {
    if (act_) LOCKSTEP_RETURN_IF_ERROR(act_());
    for (Tensor& each : out) each = in[0];
    return {};
  }

 private:
  const std::function<Status()> act_;
};

inline Failure drawn_failure(Choices& chance, const Plan& plan) {
  constexpr Code kCodes[] = {Code::kPeerLost, Code::kTimeout,   Code::kTransport,  Code::kAborted,
                             Code::kMismatch, Code::kCorrupted, Code::kOutOfMemory};
  Failure failure;
  failure.code = kCodes[chance.below(7)];
  failure.detail = "what the group says";
  const int peer = static_cast<int>(chance.below(static_cast<std::uint32_t>(plan.size)));
  const bool has_suspect = chance.percent(50);
  if (has_suspect) failure.suspect = peer;
  if (chance.percent(40)) failure.rank = has_suspect || chance.percent(50) ? peer : plan.rank;
  failure.definite = failure.code == Code::kOutOfMemory || failure.code == Code::kMismatch;
  if (failure.code == Code::kOutOfMemory) failure.suspect = kNone;
  if (failure.code != Code::kAborted) return failure;
  failure.rank = peer;  // as abort_for_peers() says
  failure.suspect = peer;
  failure.detail = "rank " + std::to_string(peer) + " aborted the group: what it met";
  return failure;
}

inline Plan drawn_plan(Choices& chance) {
  Plan plan;
  plan.size = static_cast<int>(chance.between(1, 4));
  plan.rank = static_cast<int>(chance.below(static_cast<std::uint32_t>(plan.size)));
  plan.is_dynamic = chance.percent(50);
  plan.has_buffer = chance.percent(30);
  plan.has_two_groups = chance.percent(20);
  plan.bucket_bytes = chance.percent(40) ? 16 : 1;
  plan.at = static_cast<int>(chance.below(6));
  plan.by = static_cast<By>(chance.below(3));
  plan.place = static_cast<Place>(chance.below(kPlaces));
  plan.user = static_cast<User>(chance.below(4));
  plan.failure = drawn_failure(chance, plan);
  // A group that has no memory for a collective refuses it, and goes on.
  if (plan.by == By::kStart && plan.failure.code == Code::kOutOfMemory) plan.by = By::kRefusal;
  if (plan.by == By::kRefusal) {  // such an error names nothing, and is this rank's own
    plan.place = Place::kHere;
    plan.failure = Failure();
    plan.failure.code = chance.percent(50) ? Code::kOutOfMemory : Code::kInvalidArgument;
    plan.failure.definite = plan.failure.code == Code::kOutOfMemory;
    plan.failure.detail = "the group refuses it";
  }
  return plan;
}

}  // namespace group_failure
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
