// SimProcessGroup: the simulated ProcessGroup. It behaves as the one over Gloo does: collectives
// run in the background in the order in which they were started. A failure ends the group on this
// side and closes its links; peers notice this when they next use those links.
//
// One worker fiber per group and rank, in the rank's scheduler group, executes the queue of
// start(). No rendezvous is needed: the first member of a generation opens the mesh.
//
// Faults (faults/plan.h) of operations are counted in start(). Exits and pauses happen there.
// Delays, stalls and errors happen when the worker reaches the operation. Message faults happen in
// the mesh.
//
// Failures. `reported_by` is always this rank; `sequence`, `collective`, `pass` and `bucket` are
// those of the operation that failed.
//   kCorrupted  definite; the frame from `suspect` is not the one that it should have sent (F3)
//   kPeerLost   `suspect` closed its links, or its process has ended; `rank` is not known
//   kTransport  the link to `suspect` was reset; or (definite, `rank` is this one) the transport
//               failed here
//   kTimeout    nothing arrived from `suspect`; or (no suspect, `rank` is this one) the operation
//               could not begin in time
//   kMismatch   definite; `suspect` runs another collective; the error names both
//   kAborted    definite; the process of this rank exited
//
// The timeout counts from the last progress of the running operation: from its start, and from each
// message that it received. Queued operations have no timeout. Duration::max() means never: a hang
// is then a deadlock, which the scheduler detects.
//
// Threads: any fiber. Calls of start() are serialized in the order in which they acquired the lock.
// Ownership: the network, the scheduler and the injector outlive the group. If a run ended early
// (by a deadlock), a group may be destroyed outside of the run; the destructor then does nothing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "faults/sim/collectives.h"
#include "faults/sim/frames.h"
#include "faults/sim/network.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

enum class Algorithm : std::uint8_t { kRing, kBcube };  // of all-reduce

struct GroupOptions {
  Algorithm algorithm = Algorithm::kRing;
  std::size_t max_segment_bytes = std::size_t{1024} * 1024;  // of the ring; this is Gloo's default
  Duration timeout = Duration::max();
};

class SimProcessGroup : public ProcessGroup {
 public:
  // Returns the group of `members` as `world_rank` sees it. `members` holds world ranks; the
  // position in the list is the rank in the group. Every member calls this once for each
  // generation, in a fiber. A generation is any number below 65536 that names one group.
  static std::unique_ptr<SimProcessGroup> join(SimNetwork& network, std::int64_t generation,
                                               std::span<const std::uint32_t> members,
                                               std::uint32_t world_rank,
                                               const GroupOptions& options);
  ~SimProcessGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return mesh_.size(); }
  bool can_reduce(DType dtype) const override;
  bool can_verify() const override { return true; }
  Status start(const Collective& collective, Work& work) override;
  void abort(const Status& cause) override;
  Status health() const override;
  platform::Duration timeout() const override { return options_.timeout; }
  std::uint64_t progress() const override {
    simulation::Scheduler::touch(progress_id_, simulation::Access::kRead);
    return progress_;
  }

 private:
  struct Entry {
    Collective collective;
    Work* work = nullptr;
    std::int64_t sequence = 0;
    faults::OperationFault fault;
  };

  // A ring buffer.
  struct Queue {
    std::vector<Entry> entries;
    std::size_t first = 0;  // index of the first entry in use
    std::size_t count = 0;
  };

  SimProcessGroup(SimNetwork& network, Mesh& mesh, int rank, const GroupOptions& options);
  // Tell the scheduler what the current step uses.
  void touch_state(simulation::Access access) const { simulation::Scheduler::touch(id_, access); }
  void touch_entry(std::int64_t number) const {
    simulation::Scheduler::touch(id_, simulation::Access::kWrite,
                                 static_cast<std::uint64_t>(number) + 1);
  }
  Status check(const Collective& collective) const;
  void work_off();  // the worker's body
  Status execute(const Entry& entry);
  Status wait_as_planned(const Entry& entry);
  bool move_payload(Exchange& exchange, const Collective& collective);
  Status run_checked(Exchange& exchange, const Entry& entry);
  void notice_exit();
  Status describe(const Entry& entry, const Halt& halt);
  Failure failure_of(const Entry& entry, Code code, std::string detail) const;

  SimNetwork& network_;
  Mesh& mesh_;
  const int rank_;
  const std::uint32_t world_rank_;
  const GroupOptions options_;
  simulation::FiberId worker_ = simulation::kNoFiber;
  simulation::Place idle_;  // the worker waits here for work
  platform::Mutex starting_{"group.start"};
  Queue queue_;
  std::int64_t next_sequence_ = 0;
  std::int64_t taken_ = 0;  // entries that the worker has begun
  // Part 0 is whether the group has ended, or is about to, and part n + 1 the entry number n.
  simulation::ObjectId id_;
  simulation::ObjectId progress_id_;
  std::uint64_t progress_ = 0;  // messages received plus operations ended
  FrameMemory frames_;          // the memory of verified collectives
  faults::SentBefore sent_before_;
  bool is_closing_ = false;
  Status cause_;  // why the group ended
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
