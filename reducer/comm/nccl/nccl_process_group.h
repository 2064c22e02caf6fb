// NcclProcessGroup is a ProcessGroup over NCCL, for gradients that lie on a GPU.
//
// start() queues. An issuing thread submits to NCCL, in order, on a stream of the group: first the
// header of the collective (F6), then, when `ready` has passed there, the collective itself. A
// watchdog completes each Work when the GPU has passed it, and meanwhile polls for failures. Host
// data goes through pinned memory and the GPU, and back, on the same stream; its Work completes
// when the host memory holds the result.
//
// Deadlines. NCCL has none. An operation has `timeout` from its start(), or from the end of the
// operation before it, which it waits for; then the group ends. connect() ends at
// `connect_timeout`.
//
// Agreement. NCCL compares nothing. All ranks gather the headers of what each is about to run, on
// the same stream, and compare them before a Work can succeed: a difference is kMismatch with both
// sides in its text. The payload may have moved by then, and the contents of the caller's memory
// are then unspecified; no rank writes more than its own collective says. Where ranks that differ
// hang, the comparison ends that. A group of one rank has nobody to compare with, and sends none.
//
// Failure. The first cause stays: kPeerLost, kTimeout, kMismatch, kCorrupted, kAborted, or
// kTransport with NCCL's own text. The group aborts the communicator, once, with no other thread
// inside NCCL (or after a grace period, if one does not return). What is in flight completes when
// the GPU no longer uses the caller's memory. If the GPU still uses it after `end_timeout`, it
// completes all the same, and the failure says so in `later`: that memory must not be used again.
// The first cause is in the store, where the first writer wins and the other ranks look while they
// have work in flight, so that all ranks report the same cause. Failure::rank is where it arose, or
// kNone for a lost peer, as NCCL does not say which peer it is (of two ranks, the other is the
// suspect). After that the group is dead: make a new one, or shrink() it.
//
// One failure cannot be noticed here: that NCCL fell back to another network because a plug-in did
// not load. Set NCCL_NET to the plug-in's name; then it is an error of connect(), with NCCL's text.
//
// Threads: as ProcessGroup says. A group has three: the issuing thread, the watchdog, and one that
// ends the communicator. Processes that use several GPUs set `enter_thread`.
// Destruction: the destructor aborts what is in flight. An idle group finalizes its communicator,
// for which NCCL may wait for its peers, up to `end_timeout`. What does not end by then is left to
// the end of the process.
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

// All fields but the times must be equal on all ranks.
struct NcclOptions {
  platform::Duration timeout = std::chrono::seconds(30);  // The timeout of an operation.
  platform::Duration connect_timeout = std::chrono::seconds(60);
  // The interval at which the group polls what is in flight for deadlines and NCCL's errors.
  // Completion does not wait for it.
  platform::Duration poll = std::chrono::microseconds(500);
  // The interval at which it polls the store.
  platform::Duration notice = std::chrono::milliseconds(20);
  // How long an abort waits for a thread to return from NCCL. Three times this plus `end_timeout`
  // may be at most 50 s.
  platform::Duration grace = std::chrono::milliseconds(500);
  // The timeout of an abort, and of leaving.
  platform::Duration end_timeout = std::chrono::seconds(10);
  // The prefix of the group's keys in the store. It is equal on all ranks, and different for each
  // group.
  std::string name = "nccl";
  // If false, nothing is compared. This serves to measure what agreement costs.
  bool agree = true;
  // If set, a failed group keeps a communicator that shrink() can use, where the library has
  // ncclCommRevoke.
  bool keeps_for_shrink = false;
  // Called on each thread before it calls NCCL, to make the GPU current there (cudaSetDevice). The
  // caller of connect() has the GPU current already. A process that uses one GPU does not need it.
  std::function<void()> enter_thread;
};

class NcclProcessGroup final : public ProcessGroup {
 public:
  // A collective operation: all ranks call it within connect_timeout. It returns kInvalidArgument
  // for options or ranks out of range, for a name that another group used in this store, and if a
  // GPU other than the device's is current on this thread. (GPU N of CUDA is the device with the
  // index N + 1.)
  static Result<std::unique_ptr<NcclProcessGroup>> connect(const NcclApi& api, Device& device,
                                                           std::shared_ptr<Store> store, int rank,
                                                           int size, const NcclOptions& options);
  // Makes a group of the remaining ranks of `group`, which ends with it (F4). All its ranks but
  // `excluded`, which may be in any order, call this, and are renumbered in their old order. The
  // new communicator is made out of the old one if every rank still has it and the library can do
  // so (ncclCommShrink); otherwise, and if nobody is excluded, it is a new one. If nothing has
  // failed on the group and nothing is in flight here, the group takes no more collectives, and is
  // left as it is otherwise: the other ranks, including the excluded ones, complete the collectives
  // that this rank has completed. A rank that waits in a later one gets kAborted. What is in flight
  // here ends with kAborted, on all ranks.
  static Result<std::unique_ptr<NcclProcessGroup>> shrink(NcclProcessGroup& group,
                                                          std::vector<int> excluded,
                                                          std::shared_ptr<Store> store,
                                                          const NcclOptions& options);
  ~NcclProcessGroup() override;

  int rank() const override;
  int size() const override;
  bool can_reduce(DType dtype) const override;          // All dtypes but kByte and pairs.
  bool can_reach(const Device& device) const override;  // Its own device, and the host.
  bool can_verify() const override { return true; }
  Status start(const Collective& collective, Work& work) override;
  void abort(const Status& cause) override;
  Status health() const override;
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
