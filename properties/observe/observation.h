// Observation: what one run of a case did. Lanes fill it, and oracles judge it. It is plain data,
// and the same for every lane and subject. clear() retains the memory, so that a fuzzing loop does
// not allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "faults/plan.h"
#include "reducer/base/dtype.h"
#include "reducer/base/status.h"
#include "reducer/diagnosis/flight_record.h"
#include "reference/model.h"

namespace lockstep::properties {

struct ObservedGradient {
  bool defined = false;
  // Whether the gradient has the storage that it had just before the step's first forward. If the
  // step zeroed gradients later, the storage that it had then counts.
  bool same_storage = false;
  // The index of the first element in RankObservation::bits; elements are in row-major order.
  std::uint64_t offset = 0;
  // Where the gradient is stored: the first parameter whose gradient has the same storage, and the
  // byte offset in it.
  std::uint32_t shares_with = 0;
  std::uint64_t byte_in_storage = 0;
};

// A collective from the subject's own trace (T1). Collectives of construction and reset are not
// listed.
struct ObservedCollective {
  enum class Op : std::uint8_t {
    kAllReduceBucket,
    kAllReduceUsage,
    kBroadcastOrder,
    kBroadcastBuffers,
    kAnnounce,
    kGatherSparse,
    kOther
  };
  Op op = Op::kOther;
  std::uint32_t reducer = 0;  // the number of the program's reducer
  std::int32_t bucket = kNone;
  std::uint64_t count = 0;
  DType dtype = DType::kFloat32;
  std::int64_t sequence = 0;      // in its process group
  std::uint64_t launched_us = 0;  // on the lane's clock
  std::uint64_t completed_us = 0;
};

// A hook of a parameter in a step. `launched` says how many buckets of the parameter's reducer had
// been launched in this step when the subject's own hook returned. There are none for subjects
// whose collectives do not say which bucket they reduce.
struct ObservedHook {
  std::uint32_t parameter = 0;  // the replica's own index, if the parameter has replicas
  std::uint32_t launched = 0;
};

// What the subject says about the times of a pass of one of its reducers (T3), counted from when
// the pass was armed.
struct ObservedPassTimes {
  struct Bucket {
    std::vector<std::uint32_t> parameters;  // their indices in the program
    std::int64_t ready_ns = 0;
    std::int64_t launched_ns = 0;
    std::int64_t completed_ns = 0;
  };
  std::uint32_t reducer = 0;
  std::int64_t pass = kNone;
  std::vector<std::int64_t> gradients_ns;  // by index in the program
  std::vector<Bucket> buckets;
  std::int64_t backward_ended_ns = 0;
  std::int64_t finished_ns = 0;
};

// When the harness saw the events of the step's pass, on the lane's clock.
struct SeenPassTimes {
  struct Hook {
    std::int64_t begin_ns = kNone;  // of the last hook of the parameter; kNone if it had none
    std::int64_t end_ns = kNone;
  };
  std::int64_t armed_from_ns = 0;  // the last forward armed the pass between these two
  std::int64_t armed_to_ns = 0;
  std::int64_t backward_begun_ns = 0;  // the last backward of the pass
  std::int64_t backward_ended_ns = 0;
  std::vector<Hook> hooks;  // by index in the program
};

struct ObservedStep {
  std::uint32_t step = 0;
  std::uint32_t generation = 0;  // of the group (Roster)
  std::uint64_t begin_us = 0;    // on the lane's clock
  std::uint64_t end_us = 0;
  Status status;  // the first call of the step that failed, or ok
  // The call that failed: backward calls from 0, then check_complete(); -1 for a forward.
  std::int32_t failed_call = kNone;
  // The user of the rank destroyed the reducers in this step, and `status` is the user's.
  bool is_destroyed = false;
  bool poisoned = false;  // after a failure: whether the subject refuses further work until reset
  // After a failure: whether this rank had started a collective of this pass.
  bool launched = false;
  std::vector<ObservedGradient> gradients;  // per parameter of the program; empty after a failure
  std::vector<std::uint64_t> state;         // S3: as ExpectedRankStep::state; empty after a failure
  std::vector<ObservedCollective> collectives;
  // The owners of parameters in the order of their hooks in this step (B2), recorded by a hook of
  // the harness. A parameter whose hook fired several times has the position of the last one. A
  // parameter with replicas (P15) has the position of the last replica if all replicas had hooks;
  // otherwise it is not listed.
  std::vector<std::uint32_t> hook_order;
  std::vector<ObservedHook> hooks;  // all hooks of the step, in the order in which they ended
  // Times of the pass that the step has completed, one entry for each reducer, and what the harness
  // saw. Both are empty unless the lane wants them (RankEnvironment::wants_times).
  std::vector<ObservedPassTimes> pass_times;
  SeenPassTimes seen_times;
  // The order that the buckets follow, if they were rebuilt in this step: one reducer after
  // another.
  std::vector<std::uint32_t> rebuilt_order;
};

// The rank's flight record in one group (T1), from a failed step or from the end of its program.
struct ObservedFlightRecord {
  std::uint32_t generation = 0;
  std::uint32_t group = 0;  // reference::group_of() the rank
  FlightRecord record;
  // The trace as text, of the same moment; empty if the subject has none, or in most programs.
  std::string trace = {};
};

// A call outside of the steps that failed.
struct FailedCall {
  std::uint32_t step = 0;        // the step that would have come next
  std::uint32_t generation = 0;  // of the group (Roster)
  std::string error = {};        // what it raised, for messages alone
  // The error itself, in the simulator alone: a rank that is a process sends only its text.
  std::optional<Failure> failure = {};
};

// How often the planted bug under test (faults/seeded) acted; 0 without one.
struct PlantedBug {
  std::uint64_t reached = 0;    // how often its code ran
  std::uint64_t triggered = 0;  // how often the outcome differed
  void operator+=(const PlantedBug& other) {
    reached += other.reached;
    triggered += other.triggered;
  }
};

// The error that a rank got when it was constructed or reset with the program's disagreement, and
// what came after (reference/construction_disagreement.h).
struct ObservedRefusal {
  Status status;
  // Of a collective of the harness that all ranks start next on the same group.
  Status next_collective;
  std::int64_t next_sequence = 0;  // its sequence number
  bool keeps_state = false;        // whether values and buffers are what they were before
};

struct RankObservation {
  Status construction;
  std::vector<ObservedRefusal> refusals;  // at most one
  std::vector<ObservedStep> steps;        // in the order in which they ran
  std::vector<std::uint64_t> bits;
  Status recovery;  // the last reset()
  Status joining;   // S2: the last failed end_join(), even if a recovery succeeded later
  // The state after the end_join() that succeeded (S2). Its step is the number of steps.
  std::vector<ObservedStep> ending;
  // One record of each generation if Observation::detailed. Otherwise the records of half of the
  // programs, and of a part of the generations in which no call failed.
  std::vector<ObservedFlightRecord> records;
  // sim lane: a sentence about the first question of the lane that was answered wrongly: who
  // recovers (F9), what a group must refuse, also when it has ended, what a diagnosis says (T1),
  // and under which keys the rank writes (F2), or how soon a step ends in which the rank failed by
  // itself (F1); empty if there was none.
  std::string wrong_answer;
  // A sentence about the first bucket that was sent with padding that is not zero (B3); empty if
  // there was none.
  std::string wrong_padding;
  std::string layout;  // the last layout as text (B3), with Subject::saves_layout
  // Attempts to construct or reset the reducer that failed and were repeated.
  std::vector<FailedCall> failed_joins;
  std::vector<FailedCall> failed_end_joins;  // calls of end_join() (S2)
  bool finished = false;                     // whether it reached the end of its program
  bool exited = false;                       // by a fault
  bool was_replaced = false;                 // it exited, and this is what came in its place
  // The others went on without it in this step, while its process lived.
  std::optional<std::uint32_t> left_out_in;
  bool silenced = false;  // by a fault after which it never answers (a stall)
  // What the system refused to the lane (not to the subject) in this rank; then the run proves
  // nothing.
  std::string lacking;
  // nccl lane: why the observation proves nothing: NCCL did not run as it was pinned, or did not
  // run at all.
  std::string unproven;
  std::uint64_t leaked_bytes = 0;  // nccl lane: on the GPU, as Observation::leaked_bytes
  double waited_s = 0;             // of a rank that is a process, as Observation::waited_s
  // The groups over NCCL that were created by shrinking the one before, and those of them that NCCL
  // created.
  std::uint32_t shrunk = 0;
  std::uint32_t shrunk_by_nccl = 0;
  PlantedBug planted;  // of a rank that is a process
  // sim lane: the groups that continued without their last rank at the end.
  std::uint32_t scaled_down = 0;
};

struct Observation {
  enum class End : std::uint8_t {
    kFinished,
    kDeadlock,
    kLivelock,
    kCrashed,
    kHung,
    kNotRun,  // the machine lacks what the lane itself needs; see needs.h
  };
  // Set by the caller: record all flight records, and the collectives of failed steps, too.
  bool detailed = false;
  End end = End::kFinished;
  // For a deadlock or livelock: one line per fiber, then who waits for whom. For other ends but
  // kFinished: what happened.
  std::string wait_graph;
  std::vector<RankObservation> ranks;           // by original rank
  std::vector<reference::Recovery> recoveries;  // those that really took place
  // Returns the ready orders of all steps, as each rank observed them.
  std::vector<reference::ReadyOrder> ready_orders() const;
  // Returns the flight records of the ranks of one group in one generation, to be joined
  // (diagnosis.h).
  std::vector<FlightRecord> flight_records_of(std::uint32_t generation, std::uint32_t group) const;
  faults::Fired fired;
  PlantedBug planted;            // on all ranks, except those that a crash or a fault ended
  std::uint64_t trace_hash = 0;  // sim lane: of every scheduling choice, message and completion
  std::uint64_t choices = 0;     // sim lane: scheduling points with a choice
  // sim lane: the deviations from the default schedule (choice, fiber).
  std::vector<std::pair<std::uint32_t, std::uint32_t>> deviations;
  std::uint32_t preemptions = 0;  // sim lane
  std::uint64_t leaked_fibers = 0;
  // Unordered uses of a GPU's memory (faults/sim/device/finding.h), and calls that violate NCCL's
  // rules (faults/sim/nccl/sim_nccl.h), as text.
  std::vector<std::string> races;
  // Whether the subject's errors can contain what a rank observed itself, besides the cause (F2).
  // Those of a subject from a shared library (lockstep_error) cannot.
  bool attaches = true;
  // Whether the subject can be reset after an error, so that its state after one means something.
  bool recovers = true;
  // Whether a group that ends gives its peers no reason, as the simulator's own group does.
  bool closes_silently = false;
  // nccl lane: the planned faults of the network that never fired, and why; one sentence each.
  std::vector<std::string> unfired;
  // sim lane: calls of ncclCommShrink that failed because of a planned fault.
  std::uint64_t refused_shrinks = 0;
  std::uint64_t leaked_communicators = 0;  // neither aborted nor destroyed
  std::uint64_t leaked_bytes = 0;          // tensor memory alive after everything was destroyed
  std::uint64_t elapsed_us = 0;            // virtual in the sim lane
  // Lanes in real time: for how long one thread of a rank could have run, but waited for a
  // processor, at most (process/processor_time.h). It may have missed a timeout for that.
  double waited_s = 0;

  void clear();
};

}  // namespace lockstep::properties
