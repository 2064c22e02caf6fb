// NcclLink: one communicator of NCCL, and the rules by which its functions may be called.
//
// The rules: a communicator never blocks (a call that cannot go on says so, and is asked about
// until it has); one thread at a time is inside NCCL with it, also to ask, as an answer may end a
// launch; after a failure it is aborted, once, and never destroyed; it is destroyed only when
// nothing failed and nothing is in flight.
//
// Threads: call() by one thread at a time, look() by another one, end() and has_ended() by any;
// abort(), revoke() and leave() by one. The thread of init() has the communicator's GPU current.
// Failure: kPeerLost, kTimeout, kInvalidArgument or kTransport, with the function, NCCL's name of
// the result and its last error. A call that end() interrupted gives kAborted: whoever ended it
// knows why.
// Ownership: a link that is destroyed with its communicator leaves that to the end of the process.
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
  // `poll`: the longest pause between two questions. `GPU`: CUDA's number of the GPU that the
  // communicator has to be on.
  NcclLink(const NcclApi& api, platform::Duration poll, int gpu)
      : api_(api), poll_(poll), gpu_(gpu) {}
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Makes the communicator. `give_up` is asked now and then; its error ends the attempt. After an
  // error nothing is left of it.
  using GiveUp = std::function<Status()>;
  Status init(const NcclUniqueId& id, int rank, int size, const GiveUp& give_up);
  // The same out of an older one, without the ranks in `excluded`, which do not call this. All who
  // call it say the same of the older one: that it is healthy, and then nothing is in flight on it
  // and it stays as it is for what peers still take from it; or that it has failed, and then NCCL
  // aborts what it has in flight. It is good for nothing else in either case. Where NCCL took the
  // call and did not end it well, or in time, the older one is aborted. `excluded`: one or more,
  // each once. The older one's owner does nothing with it meanwhile.
  enum class Parent : std::uint8_t { kHealthy, kFailed };
  Status init_from(NcclLink& parent, Parent state, std::vector<int> excluded, int rank, int size,
                   const GiveUp& give_up);

  // body(communicator) calls NCCL and gives its result; then waits until NCCL has submitted it.
  // `what` is for the error.
  template <class Body>
  Status call(const char* what, Body body) {
    if (!enter()) return interrupted();
    const NcclResult result = body(comm_);
    come_out();
    return await(what, result);
  }

  // What NCCL noticed by itself. Ok while another thread is inside: that will hear of it.
  Status look();

  // No call goes into NCCL any more, and what waits for it in call() returns.
  void end();

  // Ends what is in flight on the device, and the communicator. Waits up to `grace` for a thread
  // that is inside; aborts all the same if it does not come out, as nothing else would get it out.
  void abort(platform::Duration grace);
  // As abort(), but the communicator stays for init_from(), where the library can do that, has done
  // it by the deadline, and had nothing in progress.
  void revoke(platform::Duration grace, platform::Deadline deadline);
  // Leaves in peace; aborts when that fails, or is not done by the deadline.
  void leave(platform::Deadline deadline);

  const NcclApi& api() const { return api_; }
  // What a result of NCCL means.
  Status checked(const char* what, NcclResult result) const {
    return result == NcclResult::kSuccess ? Status() : status_of(what, result);
  }
  bool is_alive() const;  // there is a communicator
  // And, after its end, it is one that another can be made of: no error is left in it.
  bool can_be_shrunk() const;

 private:
  static Status interrupted();
  bool enter();      // false: ended
  bool try_enter();  // false: ended, or another thread is inside
  void come_out();
  bool take_over(platform::Duration grace);  // false: there is no communicator
  bool is_at_rest() const;                   // after take_over()
  NcclResult ask(NcclComm comm) const;
  NcclResult settle(NcclComm comm, NcclResult result, const GiveUp& give_up, Status& given_up);
  Status await(const char* what, NcclResult result);
  NcclResult wait_out(NcclResult result, platform::Deadline deadline);
  Status finish_init(const char* what, NcclResult result, int rank, int size,
                     const GiveUp& give_up);
  Status check_made(const char* what, int rank, int size) const;
  void nap(platform::Duration& span);
  Status status_of(const char* what, NcclResult result) const;

  const NcclApi api_;
  const platform::Duration poll_;
  const int gpu_;
  NcclComm comm_ = nullptr;  // used by who is inside

  mutable platform::Mutex mutex_{"nccl.link"};
  platform::CondVar changed_{"nccl.link.changed"};
  bool is_inside_ = false;  // the rest is guarded by mutex_: a thread is in NCCL
  bool has_ended_ = false;
  bool is_alive_ = false;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
