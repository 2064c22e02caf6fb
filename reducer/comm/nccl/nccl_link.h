// NcclLink is one communicator of NCCL, and the rules by which its functions may be called.
//
// The rules: a communicator never blocks (a call that cannot proceed returns ncclInProgress, and
// the link polls until it is done); one thread at a time is inside NCCL with it, also to poll, as
// an answer may end a launch; after a failure it is aborted, once, and never destroyed; it is
// destroyed only when nothing failed and nothing is in flight.
//
// Threads: call() by one thread at a time, look() by another one; abort(), revoke() and leave() by
// one. The thread of init() has the communicator's GPU current.
// Failure: kPeerLost, kTimeout, kInvalidArgument or kTransport, with the function, NCCL's name of
// the result and its last error. A call that abort(), revoke() or leave() interrupted returns
// kAborted: their caller knows why.
// Ownership: a link that is destroyed while it has a communicator leaves the communicator to the
// end of the process.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/nccl/nccl_api.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclLink {
 public:
  // `poll` is the longest pause between two polls. `gpu` is CUDA's number of the GPU that the
  // communicator must be on.
  NcclLink(const NcclApi& api, platform::Duration poll, int gpu)
      : api_(api), poll_(poll), gpu_(gpu) {}
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Makes the communicator. init() calls `give_up` now and then; an error of it ends the attempt.
  // After an error no communicator is left. The error goes to `report` first, and init() returns
  // what that makes of it: peers notice when the communicator ends, and must be able to learn why.
  using GiveUp = std::function<Status()>;
  using Report = std::function<Status(Status)>;
  Status init(const NcclUniqueId& id, int rank, int size, const GiveUp& give_up,
              const Report& report);
  // Makes the communicator out of an older one, without the ranks in `excluded`, which do not call
  // this. All ranks that call it pass the same state of the older one. kHealthy means that nothing
  // is in flight on it; it then stays as it is for what peers still receive from it. kFailed means
  // that NCCL aborts what is in flight on it. In either case it can be used for nothing else. If
  // NCCL accepted the call and did not complete it well, or in time, the older communicator is
  // aborted. `excluded` has one or more ranks, each once. The owner of the older communicator does
  // nothing with it meanwhile.
  enum class Parent : std::uint8_t { kHealthy, kFailed };
  Status init_from(NcclLink& parent, Parent state, std::vector<int> excluded, int rank, int size,
                   const GiveUp& give_up, const Report& report);

  // Calls body(communicator), which calls NCCL and returns its result, and then waits until NCCL
  // has submitted the work. `what` is for the error.
  template <class Body>
  Status call(const char* what, Body body) {
    if (!enter()) return interrupted();
    const NcclResult result = body(comm_);
    come_out();
    return await(what, result);
  }

  // Returns an error that NCCL noticed asynchronously. Ok while another thread is inside NCCL,
  // because that thread will get the error.
  Status look();

  // Ends what is in flight on the device, and the communicator. It waits up to `grace` for a thread
  // that is inside NCCL, and then aborts even if that thread has not returned, as nothing else
  // would make it return.
  void abort(platform::Duration grace);
  // Like abort(), but keeps the communicator for init_from() if the library can do that, has done
  // it by the deadline, and had nothing in progress.
  void revoke(platform::Duration grace, platform::Deadline deadline);
  // Finalizes and destroys the communicator; aborts it if that fails, or is not done by the
  // deadline.
  void leave(platform::Deadline deadline);

  const NcclApi& api() const { return api_; }
  // Translates a result of NCCL.
  Status checked(const char* what, NcclResult result) const {
    return result == NcclResult::kSuccess ? Status() : status_of(what, result);
  }
  bool is_alive() const;  // Whether there is a communicator.
  // Returns whether ncclCommShrink can make another communicator of this one: it is there, and has
  // no error. Nobody may call NCCL with it meanwhile.
  bool can_be_shrunk() const;

 private:
  static Status interrupted();
  bool enter();      // Returns false if the link has ended.
  bool try_enter();  // Returns false if the link has ended, or another thread is inside.
  void come_out();
  bool take_over(platform::Duration grace);  // Returns false if there is no communicator.
  bool is_at_rest() const;                   // Call it after take_over().
  NcclResult ask(NcclComm comm) const;
  NcclResult settle(NcclComm comm, NcclResult result, const GiveUp& give_up, Status& given_up);
  Status await(const char* what, NcclResult result);
  NcclResult wait_out(NcclResult result, platform::Deadline deadline);
  Status finish_init(const char* what, NcclResult result, int rank, int size, const GiveUp& give_up,
                     const Report& report);
  Status fail_init(Status status, NcclLink* parent, const Report& report);
  Status check_made(const char* what, int rank, int size) const;
  void nap(platform::Duration& span);
  platform::Duration longer(platform::Duration span) const;
  Status status_of(const char* what, NcclResult result) const;

  const NcclApi api_;
  const platform::Duration poll_;
  const int gpu_;
  NcclComm comm_ = nullptr;  // Only the thread that is inside uses it.

  mutable platform::Mutex mutex_{"nccl.link"};
  platform::CondVar changed_{"nccl.link.changed"};
  bool is_inside_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // True while a thread is in NCCL.
  bool has_ended_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool is_alive_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
