// SimNccl: the NCCL of all processes of one simulated job, as a table of its functions (NcclApi),
// so that code that uses NCCL runs in the simulator. A process is a group of the scheduler's
// fibers, with the same number as its rank in the world. Streams are those of SimDevice.
//
// It does what NCCL 2.28.9 does, or another version (nccl_profile.h). What NCCL leaves open, the
// schedule decides (README.md has the list):
//   A communicator is ready when all its ranks have joined, and not before. On a non-blocking one,
//   every call that has work to do returns kInProgress and continues in a fiber of its own, so that
//   what a group launches reaches its stream some time *after* the call. Any other call in between
//   returns kInvalidArgument. The error of a call persists. Split and shrink continue in the same
//   way, but return kSuccess: the child is null until the job on the parent is over. A child that
//   could not be created is returned as well, and only the parent reports that it failed.
//   Nothing of a group runs before its outermost end, but for collectives of a communicator of one
//   rank: these reach their stream within the call. What one group launches on a communicator is
//   one operation on a stream. The operation reads and writes its buffers on that stream (SimDevice
//   detects races). Operations of one communicator on several streams run in the order of their
//   calls.
//   The ranks agree on nothing beforehand, and nothing has a deadline. A link that breaks causes an
//   asynchronous error of the communicator on the ranks that use that link; the operation does not
//   end before abort or revoke. Those end what this rank has in flight. No other rank notices until
//   it uses a link to this rank, which an abort has closed and a revocation has not.
//   Destroying a communicator waits for its work. If the communicator has failed, destroy returns
//   the error and leaves the calling thread inside a group, as NCCL does: what the thread calls
//   afterwards never runs.
//
//   With Options::aborts_lose, messages that an aborted communicator has sent and nobody has
//   received are lost, unless it was finalized before. The same holds for a communicator that is
//   shrunk with the flag to abort, because NCCL's proxy drops what it has not sent. Without the
//   option these messages arrive. NCCL promises neither.
//
// Faults: the injector of the network acts on messages; once per launch on operations; on calls
// that carry collectives out (calls for groups, for factors, and calls that move data); and, with
// Options::disturbs_frames, on what a group sends to all other ranks alike (faults/injector.h).
// Options::faults act on calls by name.
//
// misuses() records these misuses, once each: two threads in calls for one communicator at once;
// use of a communicator after abort or destroy (a second abort or destroy is such a use), or by
// another process; destroying a communicator that has failed, or whose last call is still in
// progress; revoking one whose last call is in progress, or whose success nobody has queried; any
// use but abort of a child that could not be created. A call for a communicator that no longer
// exists does nothing and returns kInvalidArgument, where NCCL would use freed memory.
//
// Threads: one SimNccl at a time; fibers of the network's scheduler call it. Ownership: the network
// outlives it. SimNccl owns its communicators until it is destroyed, which is after the run.
// Limits: kSum and sums with a factor; Scalable, Grow, Suspend, MemAlloc and Register are null in
// the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "faults/sim/device/sim_device.h"
#include "faults/sim/nccl/nccl_profile.h"
#include "faults/sim/nccl/ring.h"
#include "faults/sim/network.h"
#include "reducer/comm/nccl/nccl_api.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

struct SimNcclFault {
  enum class Kind : std::uint8_t {
    kResult,      // the call (except an abort) does nothing and returns `result`
    kAsyncError,  // what the call began fails with `result`, and does not end before abort
    kHang,        // what the call began does not end before abort
  };
  Kind kind = Kind::kResult;
  int process = kNone;       // kNone: in every process; each counts its own calls
  std::string function;      // such as "ncclAllReduce"; empty: any function that moves data
  std::uint64_t number = 1;  // the number of the call of that function in that process, from 1
  NcclResult result = NcclResult::kInternalError;
};

struct SimNcclOptions {
  int version = 22809;  // determines the functions of the table, and the profile
  std::size_t chunk_bytes = std::size_t{2} << 20;
  Duration init_time{0};          // counted from when the last rank has joined
  Duration launch_time{0};        // the delay of non-blocking launches before they reach the stream
  bool peers_are_noticed = true;  // if false, a broken link hangs and reports nothing
  // The sender of a larger message waits until the receiver has taken it.
  std::size_t buffered_bytes = 0;
  // If true, grouped sends of one length, one to each other rank, are frames (verified.h), and the
  // payload faults of the plan act on them. This is for runs in which all sums are verified.
  bool disturbs_frames = false;
  bool aborts_lose = false;
  std::vector<SimNcclFault> faults;
};

class MeshLane;

class SimNccl {
 public:
  explicit SimNccl(SimNetwork& network, SimNcclOptions options = {});
  ~SimNccl();
  SimNccl(const SimNccl&) = delete;
  SimNccl& operator=(const SimNccl&) = delete;

  // Forgets the SimNccl of a run that was abandoned, with all that it owns, so that another one can
  // run.
  static void abandon() { running_ = nullptr; }

  NcclApi api() const;
  // Returns the calls that broke NCCL's rules, each as "FUNCTION of WHICH, HOW".
  const std::vector<std::string>& misuses() const { return misuses_; }
  // Counts the communicators that live processes have created and neither aborted nor destroyed.
  std::size_t open_communicators() const;
  // Whether an abort of that process hung (faults::NcclProfile::aborts_may_hang). What it was to
  // end is left to the process.
  bool has_hung_abort(std::uint32_t process) const;
  // Counts the calls of ncclCommShrink that returned the result of a planned fault
  // (SimNcclFault::Kind::kResult).
  std::uint64_t refused_shrinks() const { return refused_shrinks_; }

 private:
  struct CliqueState;
  struct SplitRendezvous;
  struct Communicator;
  struct Operation;
  struct Launch;
  struct Group;
  struct Process;
  struct AsyncCall;
  struct Functions;  // the table points to these
  class Call;

  using Job = std::function<NcclResult()>;

  // --- sim_nccl.cc: communicators.
  static Communicator& of(NcclComm comm) { return *reinterpret_cast<Communicator*>(comm); }
  void note_misuse(const char* function, const Communicator& comm, const std::string& how);
  Process& process();
  bool has_exited();
  NcclResult refuse(NcclResult result, std::string why);
  static bool is_about_collectives(std::string_view function);
  NcclResult start_call(const char* function, bool moves_data, const SimNcclFault** fault);
  NcclResult ready(Communicator& comm);
  static NcclResult state_of(const Communicator& comm);
  NcclResult run_job(Communicator& comm, const std::string& name, const Job& job);
  void finish_job(Communicator& comm);
  void run_behind(Communicator& comm, const std::string& name, const Job& job);
  bool has_exited(const Communicator& comm) const;
  bool is_ending(const Communicator& comm) const;
  bool wait_for(Communicator& comm, simulation::Place& place, const char* what,
                const std::function<bool()>& holds);
  bool sleep(Communicator& comm, const char* what, Duration span);
  NcclResult wait_for_work(Communicator& comm, const char* what);
  Communicator& make(int rank, int size, bool is_blocking);
  NcclResult parse(const NcclConfig* config, bool otherwise, bool& is_blocking);
  void join(CliqueState& clique, Communicator& comm);
  NcclResult carry_out(Communicator& comm, const SimNcclFault* fault);
  NcclResult make_child(Communicator& comm, const std::string& key, std::size_t expected, int color,
                        int order, Communicator* child, NcclComm* to, const SimNcclFault* fault);
  static NcclResult accepted(NcclResult result);
  void complete(SplitRendezvous& meeting, const std::string& key);
  void cancel_in_flight(Communicator& comm);
  bool hangs_in_abort(const Communicator& comm) const;
  void hang_in_abort();
  void wake(Communicator& comm);
  void lose_what_is_sent(Communicator& comm);
  void close_links(Communicator& comm);
  void leave_if_exited();

  NcclResult unique_id(NcclUniqueId* id);
  NcclResult init(NcclComm* to, int ranks, const NcclUniqueId& id, int rank, NcclConfig* config);
  NcclResult destroy(NcclComm comm);
  NcclResult abort(NcclComm comm);
  NcclResult finalize(NcclComm comm);
  NcclResult split(NcclComm comm, int color, int key, NcclComm* child, NcclConfig* config);
  NcclResult shrink(NcclComm comm, const int* excluded, int count, NcclComm* child,
                    NcclConfig* config, int flags);
  NcclResult revoke(NcclComm comm, int flags);
  NcclResult async_error(NcclComm comm, NcclResult* error);
  NcclResult property(const char* function, NcclComm comm, int* value);

  // --- sim_nccl_operations.cc: the operations that move data.
  NcclResult create_factor(NcclRedOp* op, const void* scalar, NcclDataType type,
                           NcclScalarResidence residence, NcclComm comm);
  NcclResult destroy_factor(NcclRedOp op, NcclComm comm);
  NcclResult enqueue(const char* function, NcclComm comm, Operation operation,
                     CudaStreamHandle stream);
  NcclResult check(const Communicator& comm, Operation& operation, CudaStreamHandle stream);
  NcclResult check_group(const std::vector<Launch>& launches);
  void add(Group& group, Communicator& comm, const Operation& operation, const Stream& stream,
           const SimNcclFault* fault);
  NcclResult start_group();
  NcclResult end_group();
  NcclResult leave_group(Group& group);
  NcclResult prepare(Launch& one);
  NcclResult launch_alone(Communicator& comm, const Operation& operation, const Stream& stream,
                          const SimNcclFault* fault);
  NcclResult begin(std::vector<Launch> launches);
  NcclResult submit(const std::shared_ptr<Launch>& launch);
  void execute(Launch& launch);
  bool wait_as_planned(Launch& launch);
  bool exchange(Launch& launch);
  std::vector<std::byte> disturbed_frames(const Launch& launch);
  bool run_collective(Lane& lane, const Communicator& comm, Operation& operation);
  void note_trouble(Communicator& comm, const MeshLane& lane);
  void fail(Communicator& comm, NcclResult result, const std::string& why);

  inline static SimNccl* running_ = nullptr;

  SimNetwork& network_;
  simulation::Scheduler& scheduler_;
  const SimNcclOptions options_;
  const faults::NcclProfile profile_;
  std::deque<Communicator> communicators_;
  // The key is the unique id, or it names the operation that created the clique from another one.
  std::map<std::string, CliqueState> cliques_;
  std::map<std::string, SplitRendezvous> meetings_;
  std::map<std::uint32_t, Process> processes_;
  std::map<simulation::FiberId, Group> groups_;
  std::vector<std::string> misuses_;
  std::uint64_t refused_shrinks_ = 0;
  std::uint64_t next_id_ = 1;
  std::int64_t next_generation_;
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
