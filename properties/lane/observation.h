// Observation: what one run of a case did. Lanes fill it, oracles judge it. Plain data, and the
// same for every lane and subject; clear() keeps the memory, so that a fuzzing loop does not
// allocate.
#pragma once

#include <cstdint>
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
  bool same_storage =
      false;  // the storage is the one it was just before the step's first forward, after zero_grad
  std::uint64_t offset =
      0;  // of the first element in RankObservation::bits; row-major order of elements
  // Where it lies: the first parameter whose gradient has the same storage, and the byte in it.
  std::uint32_t shares_with = 0;
  std::uint64_t byte_in_storage = 0;
};

struct ObservedCollective {  // from the subject's own trace (T1); those of construction and reset
                             // are not listed
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
  std::uint32_t reducer = 0;  // of those that the program has
  std::int32_t bucket = kNone;
  std::uint64_t count = 0;
  DType dtype = DType::kFloat32;
  std::int64_t sequence = 0;      // in its process group
  std::uint64_t launched_us = 0;  // on the lane's clock
  std::uint64_t completed_us = 0;
};

struct ObservedStep {
  std::uint32_t step = 0;
  std::uint64_t begin_us = 0;  // on the lane's clock
  std::uint64_t end_us = 0;
  Status status;  // the first call of the step that failed, or ok
  std::int32_t failed_call =
      kNone;  // which call it was: backward calls from 0, then check_complete(); -1 a forward
  bool poisoned = false;  // after a failure: the subject refuses further work until reset
  bool launched =
      false;  // after a failure: a collective of this pass had been started on this rank
  std::vector<ObservedGradient> gradients;  // per parameter of the program; empty after a failure
  std::vector<std::uint64_t> state;         // S3: as ExpectedRankStep::state; empty after a failure
  std::vector<ObservedCollective> collectives;
  // B2. Owners of parameters in the order of their hooks in this step, as a hook of the harness saw
  // them; one that fired several times stands where it did last. One with copies (P15) stands where
  // the last of them did, if all had hooks; else it is not there.
  std::vector<std::uint32_t> hook_order;
  std::vector<std::uint32_t> rebuilt_order;  // which the buckets follow, if they were rebuilt in
                                             // it: of one reducer after the other
};

// What the rank told of itself in one group (T1): when a step failed, or at the end of its program.
struct ObservedFlightRecord {
  std::uint32_t generation = 0;
  std::uint32_t group = 0;  // reference::group_of() the rank
  FlightRecord record;
};

// How often the planted bug under test (faults/seeded) came to act; 0 without one.
struct PlantedBug {
  std::uint64_t reached = 0;    // its place in the code
  std::uint64_t triggered = 0;  // the outcome differed
  void operator+=(const PlantedBug& other) {
    reached += other.reached;
    triggered += other.triggered;
  }
};

struct RankObservation {
  Status construction;
  std::vector<ObservedStep> steps;  // in the order they were run
  std::vector<std::uint64_t> bits;
  Status recovery;  // the last reset()
  Status joining;   // S2: the last end_join() that failed, also if all was well after a recovery
  // S2: what there is after the end_join() that went well; its step is the number of steps.
  std::vector<ObservedStep> ending;
  // One of each generation if Observation::detailed; else of half of the programs, and of a part of
  // those generations in which no call failed.
  std::vector<ObservedFlightRecord> records;
  std::string layout;         // as text, the last one (B3), with Subject::saves_layout
  std::uint32_t retries = 0;  // attempts to construct or reset that failed and were made again
  bool finished = false;      // came to the end of its program
  bool exited = false;        // by a fault
  bool silenced = false;      // by a fault that keeps it from ever answering (stall)
  // What the system refused to the lane, not to the subject, in this rank: it proves nothing.
  std::string lacking;
  // nccl lane: why what it observed proves nothing: NCCL did not run as it was pinned, or not at
  // all.
  std::string unproven;
  std::uint64_t leaked_bytes = 0;  // nccl lane: on the GPU, as Observation::leaked_bytes
  // Groups over NCCL that were made by shrinking the one before, and those of them that NCCL made.
  std::uint32_t shrunk = 0;
  std::uint32_t shrunk_by_nccl = 0;
  PlantedBug planted;  // of a rank that is a process
  std::uint32_t scaled_down =
      0;  // sim lane: groups that went on without their last rank at the end
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
  // Asked of the lane: all accounts, and the collectives of steps that fail, too.
  bool detailed = false;
  End end = End::kFinished;
  // Of a deadlock or livelock: one line a fiber, then who waits for whom. Of other ends but
  // kFinished: what happened.
  std::string wait_graph;
  std::vector<RankObservation> ranks;                       // by original rank
  std::vector<reference::Recovery> recoveries;              // those that really took place
  std::vector<reference::ReadyOrder> ready_orders() const;  // of all steps, as each rank tells
  // What the ranks of one group told in one generation, to be joined (diagnosis.h).
  std::vector<FlightRecord> flight_records_of(std::uint32_t generation, std::uint32_t group) const;
  faults::Fired fired;
  PlantedBug planted;            // on all ranks, those apart that a crash or a fault ended
  std::uint64_t trace_hash = 0;  // sim lane: of every scheduling choice, message and completion
  std::uint64_t choices = 0;     // sim lane: scheduling points with a choice
  std::vector<std::pair<std::uint32_t, std::uint32_t>>
      deviations;                 // sim lane: from the default schedule (choice, fiber)
  std::uint32_t preemptions = 0;  // sim lane
  std::uint64_t leaked_fibers = 0;
  // Uses of a GPU's memory that nothing put in order (faults/sim/device/finding.h), and calls of
  // NCCL against its rules (faults/sim/nccl/sim_nccl.h), as text.
  std::vector<std::string> races;
  // The subject's errors have room for what a rank saw itself, besides the cause (F2). Those of a
  // subject from outside (lockstep_error) do not.
  bool attaches = true;
  // A group that ends tells its peers no reason: of the simulator's own one.
  bool closes_silently = false;
  // nccl lane: planned faults of the network that never fired, and why; one sentence each.
  std::vector<std::string> unfired;
  std::uint64_t leaked_communicators = 0;  // neither aborted nor destroyed
  std::uint64_t leaked_bytes = 0;          // tensor memory alive after everything was destroyed
  std::uint64_t elapsed_us = 0;            // virtual in the sim lane

  void clear();
};

}  // namespace lockstep::properties
