// SimNccl: the NCCL of all processes of one simulated job, as a table of its functions (NcclApi),
// so that the code that runs on NCCL runs in the simulator. A process is a group of the scheduler's
// fibers, numbered as the ranks of the world are; streams are those of SimDevice.
//
// It does what NCCL 2.28.9 does, and keeps the rest open to the schedule (README.md has the list):
//   Communicators come up when all their ranks have come, and not before. On a non-blocking one
//   every call with work to do returns kInProgress and goes on in a fiber of its own, so that what
//   a group launches reaches its stream some time *after* the call; any other call in between is
//   kInvalidArgument, and an error of a call stays. Split and shrink go on so, too, but return
//   kSuccess: the child is null until the job on the parent is over, and one that could not be made
//   is handed out as well, of which only the parent says that it was not.
//   Nothing of a group runs before its outermost end. What one group launches on a communicator is
//   one operation on a stream, which reads and writes its buffers there (races are SimDevice's to
//   find). Operations of one communicator on several streams run in the order of their calls.
//   Nothing is agreed on before, nothing has a deadline. A link that breaks shows as an
//   asynchronous error of the communicator, on the ranks that use that link; the operation does not
//   end before abort or revoke. Those end what this rank has under way; nobody else notices before
//   they use a link to it, which an abort has closed and a revocation has not.
//   Destroying a communicator waits for its work, or, where it has failed, gives the error and
//   leaves the calling thread inside of a group, as NCCL does: what it calls after that never runs.
//
//   With Options::aborts_lose, what an aborted communicator has sent, and nobody has taken yet, is
//   lost, unless it was finalized before; and so is that of one that is shrunk with the flag to
//   abort, as NCCL's proxy drops what it has not sent. Else it arrives. NCCL promises neither.
//
// Faults: the injector of the network acts on messages, once a launch on operations, on calls that
// carry collectives out (of groups, of factors, and that move data), and, where
// Options::disturbs_frames, on what a group sends to all other ranks alike (faults/injector.h);
// Options::faults act on calls by name.
//
// Noted in misuses(), once each: two threads inside of calls for one communicator at once; use of a
// communicator after abort or destroy, a second end among that, or by another process; destroying
// one that has failed, or whose last call goes on; revoking one whose last call goes on, or was not
// asked about until it had succeeded; use, but for the abort, of a child that could not be made.
// Of what is gone a call does nothing and gives kInvalidArgument, where NCCL would use memory that
// is not there any more.
//
// Threads: one SimNccl at a time; calls from fibers of the network's scheduler. Ownership: the
// network outlives it; it keeps communicators until it goes, which is after the run. Bounds: kSum
// and sums with a factor; Scalable, Grow, Suspend, MemAlloc and Register are null in the table.
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
#include "faults/sim/nccl/ring.h"
#include "faults/sim/network.h"
#include "reducer/comm/nccl/nccl_api.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

struct SimNcclFault {
  enum class Kind : std::uint8_t {
    kResult,      // the call does nothing (but for an abort) and returns `result`
    kAsyncError,  // what the call began fails with `result`, and does not end before abort
    kHang,        // what the call began does not end before abort
  };
  Kind kind = Kind::kResult;
  int process = kNone;       // kNone: in each, counted there
  std::string function;      // "ncclAllReduce"; empty: any that moves data
  std::uint64_t number = 1;  // of the calls of that function in that process, from 1
  NcclResult result = NcclResult::kInternalError;
};

struct SimNcclOptions {
  int version = 22809;  // decides which functions the table has
  std::size_t chunk_bytes = std::size_t{2} << 20;
  Duration init_time{0};          // from when the last rank has come
  Duration launch_time{0};        // of non-blocking launches, before they reach the stream
  bool peers_are_noticed = true;  // false: a broken link hangs and says nothing
  // A sender of more than this waits until the receiver has taken it.
  std::size_t buffered_bytes = 0;
  // Grouped sends of one length, one to each other rank, are frames (verified.h) that the payload
  // faults of the plan act on: for runs in which all that is summed is checked.
  bool disturbs_frames = false;
  bool aborts_lose = false;
  std::vector<SimNcclFault> faults;
};

class SimNccl {
 public:
  explicit SimNccl(SimNetwork& network, SimNcclOptions options = {});
  ~SimNccl();
  SimNccl(const SimNccl&) = delete;
  SimNccl& operator=(const SimNccl&) = delete;

  // Of a run that was given up, with all that it holds: another one may take its place.
  static void abandon() { running_ = nullptr; }

  NcclApi api() const;
  const std::vector<std::string>& misuses() const { return misuses_; }  // "FUNCTION of WHICH, HOW"
  // Communicators that were made and neither aborted nor destroyed, by processes that live.
  std::size_t open_communicators() const;

 private:
  struct CliqueState;
  struct SplitRendezvous;
  struct Communicator;
  struct Operation;
  struct Launch;
  struct Group;
  struct Process;
  struct AsyncCall;
  struct Functions;  // what the table points to
  class Call;

  using Job = std::function<NcclResult()>;

  // sim_nccl.cc: communicators.
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

  // sim_nccl_operations.cc: what moves data.
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
  NcclResult begin(std::vector<Launch> launches);
  NcclResult submit(const std::shared_ptr<Launch>& launch);
  void execute(Launch& launch);
  bool wait_as_planned(Launch& launch);
  bool exchange(Launch& launch);
  std::vector<std::byte> disturbed_frames(const Launch& launch);
  bool run_collective(Lane& lane, const Communicator& comm, Operation& operation);
  void note_trouble(Communicator& comm, const Lane& lane);
  void fail(Communicator& comm, NcclResult result, const std::string& why);

  inline static SimNccl* running_ = nullptr;

  SimNetwork& network_;
  simulation::Scheduler& scheduler_;
  const SimNcclOptions options_;
  std::deque<Communicator> communicators_;
  std::map<std::string, CliqueState> cliques_;  // by unique id, or by what made it of another one
  std::map<std::string, SplitRendezvous> meetings_;
  std::map<std::uint32_t, Process> processes_;
  std::map<simulation::FiberId, Group> groups_;
  std::vector<std::string> misuses_;
  std::uint64_t next_id_ = 1;
  std::int64_t next_generation_;
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
