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
// Failure: errors of the group are returned as they are. They do not say yet where this rank is in
// its training; training_position.h adds that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "reducer/early_report.h"
#include "reducer/options.h"
#include "reducer/trace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class CollectiveLauncher {
 public:
  CollectiveLauncher(Membership membership, const ReducerOptions& options);

  // A reset: the new members have no trace yet.
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

  // Starts a collective of pass `pass`, with a layout of this hash. Sets `sequence`, for await().
  Status launch(Collective& collective, Work& work, TraceEntry::What what,
                std::uint64_t layout_hash, std::int64_t& sequence);
  // Waits for it without a limit of its own: the process group ends every collective.
  Status await(Work& work, std::int64_t sequence);
  // The same in two steps, for those who take a lock only for the second one.
  Status wait_for(Work& work) const;
  void close_trace(std::int64_t sequence, const Status& status);

  Status launch_control(Collective& collective, TraceEntry::What what, std::uint64_t layout_hash) {
    return launch(collective, control_, what, layout_hash, control_sequence_);
  }
  Status await_control() { return await(control_, control_sequence_); }
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
