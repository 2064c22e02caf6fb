// CollectiveLauncher starts the collectives of one reducer, each on the right process group and
// with the number of the reducer, and records them in the trace.
//
// Control collectives are those that carry no bucket: the usage map, the order for the rebuild, the
// join state, values and buffers. At most one of them is in flight at any time.
//
// Threads: hooks launch under the reducer's mutex. Everything else belongs to the thread that
// trains, while no hook runs.
// Ownership: the groups and the store are shared with the caller of Reducer. The data of a
// collective belongs to whoever launches it, until the collective is complete.
// Failure: errors of the group also say where this rank is in its training (training_position.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "reducer/early_report.h"
#include "reducer/options.h"
#include "reducer/trace.h"
#include "reducer/training_position.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The launcher asks this where the rank is in its training, when a collective fails.
class Positioned {
 public:
  virtual TrainingPosition position() const = 0;

 protected:
  ~Positioned() = default;
};

class CollectiveLauncher {
 public:
  // `training` must outlive it.
  CollectiveLauncher(Membership membership, const ReducerOptions& options,
                     const Positioned& training);

  // Called by a reset, when nothing is in flight. Ends the groups that `next` does not have, on
  // this rank, with the cause moved_on().
  void leave_for(const Membership& next);
  static Status moved_on();
  // The new members have no trace yet.
  void move_to(Membership membership);
  void forget_passes();
  // The collectives of a pass are counted from `launched` on.
  void begin_pass(std::int64_t launched) { launched_ = launched; }

  ProcessGroup& group() const { return *membership_.group; }
  const std::shared_ptr<Store>& store() const { return membership_.store; }
  int rank() const { return membership_.group->rank(); }
  int size() const { return membership_.group->size(); }
  // The group that carries everything that a backward sends.
  ProcessGroup& backward_group() const {
    const bool apart = is_after_backward_ && membership_.backward_group != nullptr;
    return apart ? *membership_.backward_group : *membership_.group;
  }
  bool sends_by(const ProcessGroup& group) const {
    return &group == membership_.group.get() || &group == &backward_group();
  }

  // Starts a collective of the pass that it names, or else of the running one. Sets `sequence`, for
  // await().
  Status launch(Collective& collective, Work& work, TraceEntry::What what, std::int64_t& sequence);
  // Waits for a collective of `bucket`, which may be kNone.
  Status await(Work& work, std::int64_t sequence, int bucket);
  // await() without the position of the failure, in two steps: the second one needs the lock under
  // which others launch.
  Status wait_for(Work& work) const;
  void close_trace(std::int64_t sequence, const Status& status);

  Status launch_control(Collective& collective, TraceEntry::What what) {
    return launch(collective, control_, what, control_sequence_);
  }
  Status await_control() { return await(control_, control_sequence_, kNone); }
  Status run_control(Collective& collective, TraceEntry::What what) {
    LOCKSTEP_RETURN_IF_ERROR(launch_control(collective, what));
    return await_control();
  }
  Work& control() { return control_; }

  // Returns the first failure of a collective, if the peers know of it already. Otherwise none is
  // reported from now on (EarlyReport::take).
  std::optional<Failure> take_report() { return report_.take(); }
  // Returns why one of the two groups ended, if this rank is the certain cause.
  std::optional<Failure> own_cause() const { return report_.own_cause(); }

  // Whether a collective has failed since the last reset, or was refused by a group that had ended.
  // The groups are of no use then, whatever the code of that failure is.
  bool has_ended() const { return has_ended_; }

  // Ends the groups on this rank. What is in flight completes with the cause.
  void abort(const Status& cause);

  // Identifies this reducer's collectives. It is the sequence number, in the group, of the
  // collective with which the ranks agreed at construction, so that two reducers on one group
  // cannot mistake each other's sums for their own (F3).
  std::int64_t& reducer_id() { return reducer_id_; }
  std::int64_t reducer_id() const { return reducer_id_; }
  const Trace& trace() const { return trace_; }
  // The number of collectives launched in the pass.
  std::int64_t launched() const { return launched_; }

 private:
  const Positioned& training_;
  Membership membership_;
  EarlyReport report_;  // of this membership
  const bool is_after_backward_;
  const bool verifies_payload_;
  std::int64_t reducer_id_ = kNone;
  Trace trace_;
  std::int64_t launched_ = 0;
  bool has_ended_ = false;
  Work control_;
  std::int64_t control_sequence_ = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
