#include "faults/sim/nccl/sim_nccl.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <tuple>
#include <utility>

#include "faults/sim/nccl/state.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {
namespace {

// The first generation of meshes. Other groups have the generations below it.
constexpr std::int64_t kFirstGeneration = 4096;
constexpr const char* kIdPrefix = "simulated nccl ";

}  // namespace

SimNccl::SimNccl(SimNetwork& network, SimNcclOptions options)
    : network_(network),
      scheduler_(network.scheduler()),
      options_(std::move(options)),
      profile_(faults::nccl_profile(options_.version)),
      next_generation_(kFirstGeneration) {
  LOCKSTEP_CHECK(running_ == nullptr);
  LOCKSTEP_CHECK(options_.chunk_bytes > 0);
  running_ = this;
}

SimNccl::~SimNccl() { running_ = nullptr; }

std::size_t SimNccl::open_communicators() const {
  return static_cast<std::size_t>(
      std::count_if(communicators_.begin(), communicators_.end(), [this](const Communicator& comm) {
        const bool was_made = comm.clique != nullptr || comm.has_failed_init;
        return comm.ending.life == Communicator::Life::kOpen && was_made && !has_exited(comm);
      }));
}

// --- The frame of a call.

SimNccl::Call::Call(SimNccl& nccl, const char* function, NcclComm comm) {
  simulation::Scheduler& scheduler = nccl.scheduler_;
  LOCKSTEP_CHECK(simulation::Scheduler::running() == &scheduler);
  scheduler.point();
  if (comm == nullptr) return;
  Communicator& here = of(comm);
  const char* const wrong =
      here.ending.life == Communicator::Life::kAborted     ? ", which was aborted before"
      : here.ending.life == Communicator::Life::kDestroyed ? ", which was destroyed before"
      : here.process != scheduler.current_group()          ? ", which is another process's"
                                                           : nullptr;
  if (wrong != nullptr) {
    nccl.note_misuse(function, here, wrong);
    is_refused_ = true;
    return;
  }
  if (here.has_failed_init && std::string_view(function) != "ncclCommAbort")
    nccl.note_misuse(function, here, ", which was not made");
  if (here.inside != simulation::kNoFiber) {
    nccl.note_misuse(function, here, " while another thread is in a call for it");
    return;
  }
  here.inside = scheduler.current_id();
  comm_ = &here;
}

SimNccl::Call::~Call() {
  if (comm_ != nullptr) comm_->inside = simulation::kNoFiber;
}

// Each misuse is recorded once: a caller that polls would otherwise repeat it without end.
void SimNccl::note_misuse(const char* function, const Communicator& comm, const std::string& how) {
  std::string text = std::string(function) + " of " + comm.name + how;
  if (std::find(misuses_.begin(), misuses_.end(), text) == misuses_.end())
    misuses_.push_back(std::move(text));
}

SimNccl::Process& SimNccl::process() { return processes_[scheduler_.current_group()]; }

bool SimNccl::has_exited() {
  const std::uint32_t rank = scheduler_.current_group();
  return rank < network_.injector().world() && network_.injector().exited(rank);
}

NcclResult SimNccl::refuse(NcclResult result, std::string why) {
  process().last_error = std::move(why);
  return result;
}

// The functions that count as calls for collectives, besides those that move data.
bool SimNccl::is_about_collectives(std::string_view function) {
  return function == "ncclGroupStart" || function == "ncclGroupEnd" ||
         function == "ncclRedOpCreatePreMulSum" || function == "ncclRedOpDestroy";
}

// Counts the call and applies the planned fault: either a result to return at once, or `fault` for
// what the call begins.
NcclResult SimNccl::start_call(const char* function, bool moves_data, const SimNcclFault** fault) {
  leave_if_exited();
  if (has_exited()) return refuse(NcclResult::kSystemError, "the process exited");
  const std::uint32_t here = scheduler_.current_group();
  Process& counted = process();
  const std::uint64_t number = ++counted.calls[function];
  const std::uint64_t moving = moves_data ? ++counted.calls[""] : 0;
  const bool is_of_collectives = moves_data || is_about_collectives(function);
  if (is_of_collectives && here < network_.injector().world() && network_.injector().on_call(here))
    return refuse(NcclResult::kInternalError,
                  std::string(function) + ": " + faults::kCallErrorText);
  for (std::uint32_t i = 0; i < faults::kConnectCalls && !is_of_collectives; ++i) {
    const auto call = static_cast<faults::ConnectCall>(i);
    if (std::string_view(function) != faults::name_of(call)) continue;
    // The text does not name the call, so the group has to.
    if (here < network_.injector().world() && network_.injector().on_connect_call(here, call))
      return refuse(NcclResult::kInternalError, faults::kCallErrorText);
  }
  for (const SimNcclFault& one : options_.faults) {
    if (one.process != kNone && static_cast<std::uint32_t>(one.process) != here) continue;
    const bool fires = one.function.empty() ? moves_data && one.number == moving
                                            : one.function == function && one.number == number;
    if (!fires) continue;
    if (one.kind == SimNcclFault::Kind::kResult) {
      if (one.function == "ncclCommShrink") ++refused_shrinks_;
      return refuse(one.result, std::string(function) + ": " + faults::kCallErrorText);
    }
    if (fault != nullptr) *fault = &one;
  }
  return NcclResult::kSuccess;
}

NcclResult SimNccl::state_of(const Communicator& comm) {
  return comm.state != NcclResult::kSuccess ? comm.state : comm.link_error;
}

NcclResult SimNccl::ready(Communicator& comm) {
  const NcclResult state = state_of(comm);
  if (state == NcclResult::kInProgress)
    return refuse(NcclResult::kInvalidArgument,
                  comm.name + " is used before the previous operation has succeeded");
  if (state == NcclResult::kSuccess) finish_job(comm);
  return state;
}

// --- Jobs: the part of a call on a non-blocking communicator that runs in a fiber of its own.

NcclResult SimNccl::run_job(Communicator& comm, const std::string& name, const Job& job) {
  if (comm.is_blocking) return job();
  finish_job(comm);
  comm.state = NcclResult::kInProgress;
  comm.job = scheduler_.spawn(comm.name + " " + name, comm.process, [this, &comm, job] {
    scheduler_.point();
    comm.state = job();
    scheduler_.wake_all(comm.changed);
  });
  return NcclResult::kInProgress;
}

void SimNccl::finish_job(Communicator& comm) {
  const simulation::FiberId job = std::exchange(comm.job, simulation::kNoFiber);
  if (job != simulation::kNoFiber) scheduler_.join(job);
}

// Runs a job whose result nobody queries.
void SimNccl::run_behind(Communicator& comm, const std::string& name, const Job& job) {
  if (comm.is_blocking || !profile_.ends_in_background) {
    static_cast<void>(job());
    return;
  }
  auto& behind = process().background;
  std::erase_if(behind, [&](const auto& one) {
    if (*one.second) scheduler_.join(one.first);
    return *one.second;
  });
  const auto is_over = std::make_shared<bool>(false);
  behind.emplace_back(scheduler_.spawn(comm.name + " " + name, comm.process,
                                       [job, is_over] {
                                         static_cast<void>(job());
                                         *is_over = true;
                                       }),
                      is_over);
}

bool SimNccl::has_exited(const Communicator& comm) const {
  const faults::Injector& injector = network_.injector();
  return comm.process < injector.world() && injector.exited(comm.process);
}

bool SimNccl::is_ending(const Communicator& comm) const {
  return comm.ending.is_leaving || has_exited(comm);
}

bool SimNccl::wait_for(Communicator& comm, simulation::Place& place, const char* what,
                       const std::function<bool()>& holds) {
  while (!holds()) {
    if (is_ending(comm)) return false;
    place.what = what;
    scheduler_.wait_at(place, simulation::kNever);
  }
  return !is_ending(comm);
}

bool SimNccl::sleep(Communicator& comm, const char* what, Duration span) {
  const Duration until = scheduler_.now() + span;
  while (scheduler_.now() < until && !is_ending(comm)) {
    comm.changed.what = what;
    scheduler_.wait_at(comm.changed, until);
  }
  return !is_ending(comm);
}

NcclResult SimNccl::wait_for_work(Communicator& comm, const char* what) {
  const bool is_done = wait_for(comm, comm.changed, what, [&] { return comm.work.in_flight == 0; });
  return is_done ? NcclResult::kSuccess : NcclResult::kInternalError;
}

// --- Initialization of communicators.

SimNccl::Communicator& SimNccl::make(int rank, int size, bool is_blocking) {
  Communicator& comm = communicators_.emplace_back();
  comm.process = scheduler_.current_group();
  comm.rank = rank;
  comm.size = size;
  comm.is_blocking = is_blocking;
  comm.number = communicators_.size() - 1;
  comm.name = "communicator " + std::to_string(communicators_.size() - 1) + " of process " +
              std::to_string(comm.process);
  return comm;
}

NcclResult SimNccl::parse(const NcclConfig* config, bool otherwise, bool& is_blocking) {
  is_blocking = otherwise;
  if (config == nullptr) return NcclResult::kSuccess;
  if (config->magic != kNcclConfigMagic)
    return refuse(NcclResult::kInvalidArgument, "a configuration that was not initialized");
  if (config->blocking != INT_MIN && config->blocking != 0 && config->blocking != 1)
    return refuse(NcclResult::kInvalidArgument, "a configuration whose blocking is not 0 or 1");
  is_blocking = config->blocking != 0;
  return NcclResult::kSuccess;
}

void SimNccl::join(CliqueState& clique, Communicator& comm) {
  const auto rank = static_cast<std::size_t>(comm.rank);
  LOCKSTEP_CHECK(clique.members[rank] == nullptr);
  clique.members[rank] = &comm;
  comm.clique = &clique;
  if (--clique.missing > 0) return;
  std::vector<std::uint32_t> processes;
  for (const Communicator* member : clique.members) processes.push_back(member->process);
  for (Mesh** mesh : {&clique.ring, &clique.direct, &clique.receipts}) {
    *mesh = &network_.mesh(next_generation_++, processes);
    for (const Communicator* member : clique.members) (*mesh)->attach(member->rank);
  }
  for (Communicator* member : clique.members)
    if (member->ending.is_leaving) close_links(*member);
  scheduler_.wake_all(clique.gathering);
}

// Completes the initialization after all ranks have joined.
NcclResult SimNccl::carry_out(Communicator& comm, const SimNcclFault* fault) {
  const bool hangs = fault != nullptr && fault->kind == SimNcclFault::Kind::kHang;
  if (hangs) wait_for(comm, comm.changed, "what hangs by the plan", [] { return false; });
  if (!sleep(comm, "the end of an initialization", options_.init_time))
    return NcclResult::kInternalError;
  if (fault == nullptr) return NcclResult::kSuccess;
  return refuse(fault->result, "the fault of the plan");
}

NcclResult SimNccl::unique_id(NcclUniqueId* id) {
  const Call call(*this, "ncclGetUniqueId", nullptr);
  if (const NcclResult result = start_call("ncclGetUniqueId", false, nullptr);
      result != NcclResult::kSuccess)
    return result;
  if (id == nullptr) return refuse(NcclResult::kInvalidArgument, "no place for a unique id");
  *id = {};
  const std::string text = kIdPrefix + std::to_string(next_id_++);
  std::memcpy(id->internal, text.data(), text.size());
  CliqueState& clique = cliques_[text];
  clique.key = text;
  return NcclResult::kSuccess;
}

NcclResult SimNccl::init(NcclComm* to, int ranks, const NcclUniqueId& id, int rank,
                         NcclConfig* config) {
  const Call call(*this, "ncclCommInitRankConfig", nullptr);
  const SimNcclFault* fault = nullptr;
  if (to == nullptr) return refuse(NcclResult::kInvalidArgument, "no place for a communicator");
  *to = nullptr;
  NcclResult result = start_call("ncclCommInitRankConfig", false, &fault);
  if (result != NcclResult::kSuccess) return result;
  bool is_blocking = true;
  result = parse(config, true, is_blocking);
  if (result != NcclResult::kSuccess) return result;
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return refuse(NcclResult::kInvalidArgument, "a rank that is not one of the communicator");
  const auto found = cliques_.find(std::string(id.internal, ::strnlen(id.internal, sizeof id)));
  if (found == cliques_.end())
    return refuse(NcclResult::kInvalidArgument, "a unique id that ncclGetUniqueId did not give");
  CliqueState& clique = found->second;
  if (clique.members.empty()) {
    clique.members.resize(static_cast<std::size_t>(ranks));
    clique.missing = ranks;
  }
  if (clique.members.size() != static_cast<std::size_t>(ranks))
    return refuse(NcclResult::kInvalidUsage, "another number of ranks than others gave");
  if (clique.members[static_cast<std::size_t>(rank)] != nullptr)
    return refuse(NcclResult::kInvalidUsage, "a rank that came already, or a unique id used twice");
  Communicator& comm = make(rank, ranks, is_blocking);
  *to = comm.handle();
  join(clique, comm);
  result = run_job(comm, "initialization", [this, &comm, &clique, fault] {
    const bool is_complete = wait_for(comm, clique.gathering, "all ranks of a communicator",
                                      [&] { return clique.missing == 0; });
    return is_complete ? carry_out(comm, fault) : NcclResult::kInternalError;
  });
  if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) *to = nullptr;
  return result;
}

// --- Communicators created from others.

void SimNccl::complete(SplitRendezvous& meeting, const std::string& key) {
  std::sort(meeting.arrivals.begin(), meeting.arrivals.end(), [](const auto& a, const auto& b) {
    return std::tie(a.color, a.order, a.parent_rank) < std::tie(b.color, b.order, b.parent_rank);
  });
  for (const SplitRendezvous::Arrival& one : meeting.arrivals) {
    if (one.child == nullptr) continue;
    const std::string name = key + " color " + std::to_string(one.color);
    CliqueState& clique = cliques_[name];
    if (clique.members.empty()) {
      const auto size = std::count_if(
          meeting.arrivals.begin(), meeting.arrivals.end(),
          [&](const SplitRendezvous::Arrival& other) { return other.color == one.color; });
      clique.key = name;
      clique.members.resize(static_cast<std::size_t>(size));
      clique.missing = static_cast<int>(size);
    }
    one.child->size = static_cast<int>(clique.members.size());
    one.child->rank = one.child->size - clique.missing;
    join(clique, *one.child);
  }
  meeting.is_complete = true;
  scheduler_.wake_all(meeting.gathering);
}

// The job of split and shrink. `child` is null for a rank that is in no child. A child that could
// not be created is returned, too, and does not report that itself.
NcclResult SimNccl::make_child(Communicator& comm, const std::string& key, std::size_t expected,
                               int color, int order, Communicator* child, NcclComm* to,
                               const SimNcclFault* fault) {
  SplitRendezvous& meeting = meetings_[key];
  meeting.arrivals.push_back({color, order, comm.rank, child});
  if (meeting.arrivals.size() == expected) complete(meeting, key);
  const bool has_met = wait_for(comm, meeting.gathering, "all ranks that make a communicator",
                                [&] { return meeting.is_complete; });
  const NcclResult result = has_met ? carry_out(comm, fault) : NcclResult::kInternalError;
  if (child == nullptr) return result;
  child->has_failed_init = result != NcclResult::kSuccess;
  *to = child->handle();
  return result;
}

// Returns the result of split and shrink: never kInProgress, though the child does not exist yet.
NcclResult SimNccl::accepted(NcclResult result) {
  return result == NcclResult::kInProgress ? NcclResult::kSuccess : result;
}

NcclResult SimNccl::split(NcclComm handle, int color, int key, NcclComm* to, NcclConfig* config) {
  const Call call(*this, "ncclCommSplit", handle);
  if (call.is_refused()) return NcclResult::kInvalidArgument;
  const SimNcclFault* fault = nullptr;
  NcclResult result = start_call("ncclCommSplit", false, &fault);
  if (result != NcclResult::kSuccess) return result;
  // Every negative color but kNcclNoColor is a color, too.
  if (handle == nullptr || to == nullptr)
    return refuse(NcclResult::kInvalidArgument, "ncclCommSplit: an argument that is not right");
  Communicator& comm = of(handle);
  bool is_blocking = true;
  if (result = parse(config, comm.is_blocking, is_blocking); result != NcclResult::kSuccess)
    return result;
  if (result = ready(comm); result != NcclResult::kSuccess) return result;
  *to = nullptr;
  Communicator* child = color == kNcclNoColor ? nullptr : &make(0, 1, is_blocking);
  const std::string name = comm.clique->key + " split " + std::to_string(comm.children.splits++);
  return accepted(run_job(comm, "split", [=, this, &comm] {
    return make_child(comm, name, comm.clique->members.size(), color, key, child, to, fault);
  }));
}

NcclResult SimNccl::shrink(NcclComm handle, const int* excluded, int count, NcclComm* to,
                           NcclConfig* config, int flags) {
  const Call call(*this, "ncclCommShrink", handle);
  if (call.is_refused()) return NcclResult::kInvalidArgument;
  const SimNcclFault* fault = nullptr;
  NcclResult result = start_call("ncclCommShrink", false, &fault);
  if (result != NcclResult::kSuccess) return result;
  if (handle == nullptr || to == nullptr || excluded == nullptr || count < 1)
    return refuse(NcclResult::kInvalidArgument, "ncclCommShrink: an argument that is not right");
  Communicator& comm = of(handle);
  std::vector<int> gone(excluded, excluded + count);
  std::sort(gone.begin(), gone.end());
  if (std::binary_search(gone.begin(), gone.end(), comm.rank))
    return refuse(NcclResult::kInvalidArgument, "ncclCommShrink by a rank that is left out");
  bool is_blocking = true;
  if (result = parse(config, comm.is_blocking, is_blocking); result != NcclResult::kSuccess)
    return result;
  if ((flags & kNcclShrinkAbort) != 0) {
    comm.ending.was_shrunk_with_abort = true;
    cancel_in_flight(comm);
    if (options_.aborts_lose) lose_what_is_sent(comm);
    result = wait_for_work(comm, "work that a shrinking communicator has aborted");
    if (result != NcclResult::kSuccess) return result;
  }
  if (result = ready(comm); result != NcclResult::kSuccess) return result;
  *to = nullptr;
  std::string name =
      comm.clique->key + " shrink " + std::to_string(comm.children.shrinks++) + " without";
  for (const int rank : gone) name += " " + std::to_string(rank);
  Communicator* child = &make(0, 1, is_blocking);
  // This counts as getParentRanks() does: a rank that is named twice reduces the count by two, and
  // one that there is not, by one.
  int rank = 0;
  for (int old = 0; old < comm.rank; ++old)
    if (!std::binary_search(gone.begin(), gone.end(), old)) ++rank;
  const int size = comm.size - count;
  return accepted(run_job(comm, "shrink", [=, this, &comm] {
    if (rank < size)
      return make_child(comm, name, static_cast<std::size_t>(size), 0, comm.rank, child, to, fault);
    child->has_failed_init = true;
    *to = child->handle();
    return refuse(NcclResult::kInvalidArgument,
                  "ncclCommShrink: a rank that is named twice, or that there is not");
  }));
}

NcclResult SimNccl::async_error(NcclComm handle, NcclResult* error) {
  const Call call(*this, "ncclCommGetAsyncError", handle);
  if (call.is_refused()) return NcclResult::kInvalidArgument;
  const NcclResult result = start_call("ncclCommGetAsyncError", false, nullptr);
  if (handle == nullptr || error == nullptr)
    return refuse(NcclResult::kInvalidArgument, "ncclCommGetAsyncError without a communicator");
  if (result != NcclResult::kSuccess) return result;
  Communicator& comm = of(handle);
  *error = state_of(comm);
  if (*error == NcclResult::kSuccess) finish_job(comm);
  return NcclResult::kSuccess;
}

NcclResult SimNccl::property(const char* function, NcclComm handle, int* value) {
  const Call call(*this, function, handle);
  if (call.is_refused()) return NcclResult::kInvalidArgument;
  const NcclResult result = start_call(function, false, nullptr);
  if (result != NcclResult::kSuccess) return result;
  if (handle == nullptr || value == nullptr)
    return refuse(NcclResult::kInvalidArgument, std::string(function) + " without a communicator");
  Communicator& comm = of(handle);
  if (const NcclResult state = ready(comm); state != NcclResult::kSuccess) return state;
  const std::string_view what = function;
  *value = what == "ncclCommCount" ? comm.size : what == "ncclCommUserRank" ? comm.rank : 0;
  return NcclResult::kSuccess;
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
