// NcclProcessGroup: a ProcessGroup over NCCL, for gradients that lie on a GPU.
//
// start() queues. An issuing thread submits to NCCL, in order, on a stream of the group's own: the
// header of the collective (F6), then, when `ready` has passed there, the collective itself. A
// watchdog completes each Work when the GPU is past it, and looks meanwhile at what can go wrong.
// Data of the host goes through pinned memory and the GPU, and back, on the same stream; its Work
// completes when the host's memory is filled.
//
// Deadlines. NCCL has none. An operation has `timeout` from its start() on, or from the end of the
// one before it, which it waits for; then the group ends. connect() ends at `connect_timeout`.
//
// Agreement. NCCL compares nothing. All ranks gather what each is about to run, on the same stream,
// and compare it before a Work can succeed: a difference is kMismatch with both sides in its text.
// The payload may have moved by then, and then the caller's memory holds nothing of use; no rank
// writes more than its own collective says. Where ranks that differ hang, the comparison ends that.
//
// Failure. The first cause stays: kPeerLost, kTimeout, kMismatch, kCorrupted, kAborted, or
// kTransport with NCCL's own words. The communicator is aborted, once, with no other thread inside
// NCCL (or after a grace, if one does not come out), and what is in flight completes when the GPU
// has let go of the caller's memory. If the GPU does not within `end_timeout`, it completes all
// the same, and the failure says so in `later`: that memory must not be used again. The first cause
// is in the store, where the first writer wins and the others look while they have work in flight,
// so that all ranks tell the same one; Failure::rank is where it arose, or kNone for a lost peer,
// as NCCL does not say which one it is (of two ranks, the other is the suspect). After that the
// group is dead: make a new one, or shrink() it.
//
// What cannot be noticed here: that NCCL fell back to another network because a plug-in did not
// load. Set NCCL_NET to the plug-in's name: then it is an error of connect(), with NCCL's words.
//
// Threads: as ProcessGroup says. A group has three: one that issues, the watchdog, and one that
// ends the communicator. Processes that use several GPUs give `enter_thread`.
// Destruction: aborts what is in flight; an idle group leaves in peace, for which NCCL may wait for
// its peers, up to `end_timeout`. What does not end by then is left to the end of the process.
// Ownership: the device outlives the group. Several groups of one process should end together: NCCL
// may wait for the kernels of one when another is aborted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/nccl/nccl_api.h"
#include "reducer/comm/process_group.h"
#include "reducer/comm/store.h"
#include "reducer/device/device.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Equal on all ranks, but for the times.
struct NcclOptions {
  platform::Duration timeout = std::chrono::seconds(30);  // of an operation
  platform::Duration connect_timeout = std::chrono::seconds(60);
  // How often what is in flight is looked at: deadlines, NCCL's errors. Completion does not wait.
  platform::Duration poll = std::chrono::microseconds(500);
  platform::Duration notice = std::chrono::milliseconds(20);  // and the store
  // Three times the first and the second are 50 s at most together.
  platform::Duration grace = std::chrono::milliseconds(500);  // to come out of NCCL before an abort
  platform::Duration end_timeout = std::chrono::seconds(10);  // of an abort, of leaving
  // Under which the group's keys lie in the store: equal on all ranks, another one for each group.
  std::string name = "nccl";
  // Off, nothing is compared: to measure what agreement costs.
  bool agree = true;
  // A failed group keeps a communicator that shrink() can use, where the library has
  // ncclCommRevoke.
  bool keeps_for_shrink = false;
  // Called on each thread before it calls NCCL: makes the GPU current there (cudaSetDevice). The
  // caller of connect() has it current. Not needed where the process uses one GPU.
  std::function<void()> enter_thread;
};

class NcclProcessGroup final : public ProcessGroup {
 public:
  // Collective: all ranks within connect_timeout. kInvalidArgument for options or ranks out of
  // range, for a name that another group used in this store, and where another GPU than the
  // device's is current on this thread. (GPU N of CUDA is the device with the index N + 1.)
  static Result<std::unique_ptr<NcclProcessGroup>> connect(const NcclApi& api, Device& device,
                                                           std::shared_ptr<Store> store, int rank,
                                                           int size, const NcclOptions& options);
  // A group of those that are left of `group`, which ends with it (F4): all its ranks but
  // `excluded` call this, in the order of which they are numbered anew. Out of the old communicator
  // where every one of them still has it and the library can (ncclCommShrink), else a new one, as
  // where nobody is excluded. `excluded` may be in any order. A group on which nothing has failed
  // and nothing is in flight here takes no collective any more, and is left as it is otherwise:
  // the others, also those that are left out, end the collectives that this rank has ended. Who
  // waits in a later one hears kAborted. What is in flight here ends with kAborted, on all ranks.
  static Result<std::unique_ptr<NcclProcessGroup>> shrink(NcclProcessGroup& group,
                                                          std::vector<int> excluded,
                                                          std::shared_ptr<Store> store,
                                                          const NcclOptions& options);
  ~NcclProcessGroup() override;

  int rank() const override;
  int size() const override;
  bool can_reduce(DType dtype) const override;          // all but kByte and pairs
  bool can_reach(const Device& device) const override;  // its own, and the host
  bool can_verify() const override { return true; }
  Status start(const Collective& collective, Work& work) override;
  void abort(const Status& cause) override;
  platform::Duration timeout() const override;
  std::uint64_t progress() const override;

  // How the communicator was made: "ncclCommInitRankConfig" or "ncclCommShrink".
  const char* origin() const;

 private:
  class Impl;
  explicit NcclProcessGroup(std::unique_ptr<Impl> impl);
  static Result<std::unique_ptr<NcclProcessGroup>> finish(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
