// How communicators of the simulated NCCL end: by destruction, by abort, by revocation, and with
// the process that has them. See sim_nccl.h.
#include <algorithm>
#include <utility>

#include "faults/sim/nccl/sim_nccl.h"
#include "faults/sim/nccl/state.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {
namespace {

// How long a call hangs that never returns: longer than anybody waits, and then the run can end.
constexpr Duration kForEver = std::chrono::hours(24);

template <class Communicator, class Call>
void each_mesh(const Communicator& comm, const Call& call) {
  if (comm.clique == nullptr || comm.clique->ring == nullptr) return;
  for (Mesh* mesh : {comm.clique->ring, comm.clique->direct, comm.clique->receipts}) call(*mesh);
}

}  // namespace

void SimNccl::wake(Communicator& comm) {
  scheduler_.wake_all(comm.changed);
  if (comm.clique != nullptr) scheduler_.wake_all(comm.clique->gathering);
  for (auto& [key, meeting] : meetings_) scheduler_.wake_all(meeting.gathering);
}

// Ends everything that the communicator has in flight.
void SimNccl::cancel_in_flight(Communicator& comm) {
  comm.ending.is_cut = true;
  each_mesh(comm, [&](Mesh& mesh) { mesh.interrupt(comm.rank); });
}

// Discards what this rank's operations have sent and nobody has received. Finalizing would have
// waited for it.
void SimNccl::lose_what_is_sent(Communicator& comm) {
  each_mesh(comm, [&](Mesh& mesh) { mesh.lose_sent(comm.rank); });
}

void SimNccl::close_links(Communicator& comm) {
  each_mesh(comm, [&](Mesh& mesh) { mesh.close(comm.rank); });
}

// An exit happens at any time; this detects it.
void SimNccl::leave_if_exited() {
  for (Communicator& comm : communicators_) {
    if (comm.ending.is_leaving || !is_ending(comm)) continue;
    comm.ending.is_leaving = true;
    comm.link_error = NcclResult::kSystemError;
    cancel_in_flight(comm);
    wake(comm);
  }
}

bool SimNccl::hangs_in_abort(const Communicator& comm) const {
  return profile_.aborts_may_hang && comm.link_error != NcclResult::kSuccess &&
         comm.number % 2 == 0 && !has_exited(comm);
}

void SimNccl::hang_in_abort() {
  process().has_hung_abort = true;
  scheduler_.sleep_until(scheduler_.now() + kForEver);
}

bool SimNccl::has_hung_abort(std::uint32_t of_process) const {
  const auto found = processes_.find(of_process);
  return found != processes_.end() && found->second.has_hung_abort;
}

NcclResult SimNccl::abort(NcclComm handle) {
  const Call call(*this, "ncclCommAbort", handle);
  if (call.is_refused()) return NcclResult::kInvalidArgument;
  if (handle == nullptr) return NcclResult::kSuccess;
  Communicator& comm = of(handle);
  // NCCL first ends what runs; a fault of the plan acts after that.
  const NcclResult result = start_call("ncclCommAbort", false, nullptr);
  const bool hangs = hangs_in_abort(comm);
  comm.ending.is_leaving = true;
  cancel_in_flight(comm);
  wake(comm);
  finish_job(comm);
  if (hangs) {
    comm.ending.life = Communicator::Life::kAborted;
    hang_in_abort();
  }
  const bool has_flushed = comm.ending.is_finalized && !comm.ending.is_revoked;
  if (options_.aborts_lose && !has_flushed) lose_what_is_sent(comm);
  close_links(comm);
  comm.ending.life = Communicator::Life::kAborted;
  // Otherwise NCCL does this after the call: its work in flight may still run.
  if (comm.is_blocking || !profile_.ends_in_background)
    while (comm.work.in_flight > 0) {
      comm.changed.what = "work of a communicator that was aborted";
      scheduler_.wait_at(comm.changed, simulation::kNever);
    }
  return has_exited(comm) ? NcclResult::kSuccess : result;
}

NcclResult SimNccl::destroy(NcclComm handle) {
  const Call call(*this, "ncclCommDestroy", handle);
  if (call.is_refused()) return NcclResult::kInvalidArgument;
  if (handle == nullptr) return NcclResult::kSuccess;
  Communicator& comm = of(handle);
  NcclResult result = start_call("ncclCommDestroy", false, nullptr);
  if (result == NcclResult::kSuccess) result = ready(comm);
  if (result != NcclResult::kSuccess) {
    if (is_ending(comm)) return NcclResult::kSuccess;
    if (state_of(comm) == NcclResult::kInProgress)
      note_misuse("ncclCommDestroy", comm, " while what was called last goes on");
    else if (state_of(comm) != NcclResult::kSuccess)
      note_misuse("ncclCommDestroy", comm, ", which has failed");
    if (profile_.failed_destroy_opens_group) ++groups_[scheduler_.current_id()].depth;
    return result;
  }
  if (comm.ending.was_shrunk_with_abort && profile_.destroy_after_shrink_hangs) {
    wait_for(comm, comm.changed,
             "the barrier of a communicator that was shrunk with the flag to abort",
             [] { return false; });
  }
  comm.ending.life = Communicator::Life::kDestroyed;
  run_behind(comm, "destruction", [this, &comm] {
    const NcclResult is_done = wait_for_work(comm, "work of a communicator that is destroyed");
    close_links(comm);
    return is_done;
  });
  return NcclResult::kSuccess;
}

NcclResult SimNccl::finalize(NcclComm handle) {
  const Call call(*this, "ncclCommFinalize", handle);
  if (call.is_refused()) return NcclResult::kInvalidArgument;
  if (handle == nullptr) return NcclResult::kSuccess;
  Communicator& comm = of(handle);
  NcclResult result = start_call("ncclCommFinalize", false, nullptr);
  if (result == NcclResult::kSuccess) result = ready(comm);
  if (result == NcclResult::kSuccess && comm.ending.is_finalized)
    result = refuse(NcclResult::kInvalidArgument, comm.name + " was finalized or revoked before");
  if (result != NcclResult::kSuccess) {
    if (!comm.is_blocking) comm.state = result;
    return result;
  }
  comm.ending.is_finalized = true;
  return run_job(comm, "finalization", [this, &comm] {
    return wait_for_work(comm, "work of a communicator that is finalized");
  });
}

NcclResult SimNccl::revoke(NcclComm handle, int flags) {
  const Call call(*this, "ncclCommRevoke", handle);
  if (call.is_refused()) return NcclResult::kInvalidArgument;
  if (handle == nullptr) return NcclResult::kSuccess;
  Communicator& comm = of(handle);
  const SimNcclFault* fault = nullptr;
  const NcclResult result = start_call("ncclCommRevoke", false, &fault);
  if (result != NcclResult::kSuccess) return result;
  if (flags != kNcclRevokeDefault || comm.ending.is_finalized || comm.ending.is_revoked)
    return refuse(NcclResult::kInvalidArgument, comm.name + " cannot be revoked (again)");
  if (comm.job != simulation::kNoFiber)
    note_misuse("ncclCommRevoke", comm, " before what was called last was seen to succeed");
  comm.ending.is_revoked = comm.ending.is_finalized = true;
  comm.ending.is_leaving = true;
  cancel_in_flight(comm);
  wake(comm);
  finish_job(comm);
  comm.ending.is_leaving = false;
  comm.state = NcclResult::kSuccess;
  return run_job(comm, "revocation", [this, &comm, fault] {
    if (fault != nullptr) {
      const NcclResult failed = carry_out(comm, fault);
      if (failed != NcclResult::kSuccess) return failed;
    }
    return wait_for_work(comm, "work of a communicator that was revoked");
  });
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
