#include "reducer/comm/nccl/nccl_link.h"

#include <algorithm>
#include <string>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using platform::Deadline;
using platform::Duration;
using platform::MutexLock;

constexpr Duration kFirstNap = std::chrono::microseconds(5);

const char* name_of(NcclResult result) {
  switch (result) {
    case NcclResult::kSuccess: return "ncclSuccess";
    case NcclResult::kUnhandledCudaError: return "ncclUnhandledCudaError";
    case NcclResult::kSystemError: return "ncclSystemError";
    case NcclResult::kInternalError: return "ncclInternalError";
    case NcclResult::kInvalidArgument: return "ncclInvalidArgument";
    case NcclResult::kInvalidUsage: return "ncclInvalidUsage";
    case NcclResult::kRemoteError: return "ncclRemoteError";
    case NcclResult::kInProgress: return "ncclInProgress";
    case NcclResult::kTimeout: return "ncclTimeout";
  }
  return "a result that is not known here";
}

Code code_of(NcclResult result) {
  if (result == NcclResult::kRemoteError) return Code::kPeerLost;
  return result == NcclResult::kTimeout ? Code::kTimeout : Code::kTransport;
}

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

NcclConfig non_blocking(int version) {
  NcclConfig config = make_nccl_config(version);
  config.blocking = 0;
  return config;
}

// A collective outside of a group may say that it has succeeded although it goes on: measured with
// 2.23.4, not with 2.22.3 and 2.26.2 (faults/played_gpu/FINDINGS.md).
bool may_go_on_after_success(int version) { return version >= 22300 && version < 22602; }

}  // namespace

Status NcclLink::interrupted() {
  return Status(Code::kAborted, "the communicator was ended meanwhile");
}

Status NcclLink::status_of(const char* what, NcclResult result) const {
  LOCKSTEP_CHECK(result != NcclResult::kSuccess);
  Failure failure;
  failure.code = code_of(result);
  const std::string last = text_of(api_.get_last_error(nullptr));
  failure.detail = std::string(what) + ": " + text_of(api_.get_error_string(result)) + " (" +
                   name_of(result) + ")";
  if (!last.empty()) failure.detail += "; NCCL's last error: " + last;
  if (last.find("Duplicate GPU") != std::string::npos) {
    failure.code = Code::kInvalidArgument;
    failure.detail +=
        "; two ranks are on one GPU: give each rank a GPU of its own or, to try things out, each "
        "process another NCCL_HOSTID in its environment";
  }
  if (last.find("driver version is insufficient") != std::string::npos) {
    failure.code = Code::kInvalidArgument;
    failure.detail +=
        "; there is no NVIDIA driver, or it is older than the CUDA that this NCCL was built with "
        "(NCCL_DEBUG=VERSION tells which): install a newer driver, or an NCCL for an older CUDA";
  }
  // Any other error is this rank's own.
  failure.definite = failure.code != Code::kPeerLost && failure.code != Code::kTimeout;
  return failure;
}

bool NcclLink::enter() {
  MutexLock lock(mutex_);
  changed_.wait(mutex_, Deadline::never(),
                [this]() LOCKSTEP_REQUIRES(mutex_) { return has_ended_ || !is_inside_; });
  if (has_ended_) return false;
  LOCKSTEP_CHECK(is_alive_);
  is_inside_ = true;
  return true;
}

bool NcclLink::try_enter() {
  MutexLock lock(mutex_);
  if (has_ended_ || is_inside_ || !is_alive_) return false;
  is_inside_ = true;
  return true;
}

void NcclLink::come_out() {
  MutexLock lock(mutex_);
  LOCKSTEP_CHECK(is_inside_);
  is_inside_ = false;
  changed_.notify_all();
}

Duration NcclLink::longer(Duration span) const { return std::min(2 * span, poll_); }

// Pauses until the link is ended at the latest; each pause is twice as long as the one before.
void NcclLink::nap(Duration& span) {
  MutexLock lock(mutex_);
  changed_.wait(mutex_, Deadline::in(span),
                [this]() LOCKSTEP_REQUIRES(mutex_) { return has_ended_; });
  span = longer(span);
}

NcclResult NcclLink::ask(NcclComm comm) const {
  LOCKSTEP_CHECK(comm != nullptr);
  NcclResult state = NcclResult::kSuccess;
  const NcclResult result = api_.comm_get_async_error(comm, &state);
  return result == NcclResult::kSuccess ? state : result;
}

Status NcclLink::await(const char* what, NcclResult result) {
  if (result == NcclResult::kSuccess && may_go_on_after_success(api_.version))
    result = NcclResult::kInProgress;
  Duration span = std::min(kFirstNap, poll_);
  while (result == NcclResult::kInProgress) {
    nap(span);
    if (!enter()) return interrupted();
    result = ask(comm_);
    come_out();
  }
  LOCKSTEP_CHECK(result != NcclResult::kInProgress);
  return checked(what, result);
}

Status NcclLink::look() {
  if (!try_enter()) return {};
  const NcclResult result = ask(comm_);
  come_out();
  const bool is_fine = result == NcclResult::kSuccess || result == NcclResult::kInProgress;
  return is_fine ? Status() : status_of("an operation in flight", result);
}

// Polls a communicator that nobody else uses yet until it is ready, or `give_up` returns an error.
NcclResult NcclLink::settle(NcclComm comm, NcclResult result, const GiveUp& give_up,
                            Status& given_up) {
  Duration span = std::min(kFirstNap, poll_);
  while (result == NcclResult::kInProgress) {
    given_up = give_up();
    if (!given_up.ok()) return result;
    nap(span);
    result = ask(comm);
  }
  LOCKSTEP_CHECK(given_up.ok());
  return result;
}

// Checks that the communicator has the rank, the size and the GPU that were asked for.
Status NcclLink::check_made(const char* what, int rank, int size) const {
  LOCKSTEP_CHECK(comm_ != nullptr);
  int its_size = 0;
  int its_rank = 0;
  int its_gpu = 0;
  LOCKSTEP_RETURN_IF_ERROR(checked("ncclCommCount", api_.comm_count(comm_, &its_size)));
  LOCKSTEP_RETURN_IF_ERROR(checked("ncclCommUserRank", api_.comm_user_rank(comm_, &its_rank)));
  LOCKSTEP_RETURN_IF_ERROR(checked("ncclCommCuDevice", api_.comm_cu_device(comm_, &its_gpu)));
  if (its_size != size || its_rank != rank)
    return Status(Code::kTransport, std::string(what) + " made rank " + std::to_string(its_rank) +
                                        " of " + std::to_string(its_size) + " of rank " +
                                        std::to_string(rank) + " of " + std::to_string(size));
  if (its_gpu == gpu_) return {};
  Failure failure;
  failure.code = Code::kInvalidArgument;
  failure.definite = true;
  failure.detail = std::string(what) + " made a communicator on CUDA device " +
                   std::to_string(its_gpu) + ", and the group's is CUDA device " +
                   std::to_string(gpu_) +
                   ": make that one current (cudaSetDevice) on the thread that connects, and on "
                   "the group's threads with NcclOptions::enter_thread";
  return failure;
}

Status NcclLink::finish_init(const char* what, NcclResult result, int rank, int size,
                             const GiveUp& give_up, const Report& report) {
  Status status;
  if (result == NcclResult::kInProgress && comm_ != nullptr)
    result = settle(comm_, result, give_up, status);
  if (status.ok() && result != NcclResult::kSuccess) status = status_of(what, result);
  if (status.ok() && comm_ == nullptr)
    status = Status(Code::kTransport, std::string(what) + " gave no communicator");
  if (status.ok()) status = check_made(what, rank, size);
  {
    MutexLock lock(mutex_);
    LOCKSTEP_CHECK(!is_alive_);  // A communicator is made once.
    is_alive_ = status.ok();
  }
  if (status.ok()) return status;
  return fail_init(std::move(status), nullptr, report);
}

// Reports the error, and only then ends the communicator that was not made, also if the report
// runs out of memory. The parent's abort waits for what NCCL does for the child, and uses the
// child's flags for that, so the child is aborted last.
Status NcclLink::fail_init(Status status, NcclLink* parent, const Report& report) {
  LOCKSTEP_CHECK(!status.ok());
  struct Ending {
    NcclLink& link;
    NcclLink* const parent;
    ~Ending() {
      if (parent != nullptr) parent->abort(Duration(0));
      if (link.comm_ != nullptr)
        static_cast<void>(link.api_.comm_abort(std::exchange(link.comm_, nullptr)));
    }
  } const ending{*this, parent};
  return report(std::move(status));
}

Status NcclLink::init(const NcclUniqueId& id, int rank, int size, const GiveUp& give_up,
                      const Report& report) {
  LOCKSTEP_CHECK(comm_ == nullptr);
  NcclConfig config = non_blocking(api_.version);
  const NcclResult result = api_.comm_init_rank_config(&comm_, size, id, rank, &config);
  return finish_init("ncclCommInitRankConfig", result, rank, size, give_up, report);
}

// NCCL works on the child in the background, whether the call returns ncclSuccess or
// ncclInProgress; until the parent reports that it is done, NCCL may write the child's handle. Only
// the parent reports a failure: a child that was not made exists all the same, and reports
// ncclSuccess. With the abort flag, NCCL's proxy drops what it has not sent yet, also for
// collectives that have completed here. So a healthy parent is shrunk without the flag.
Status NcclLink::init_from(NcclLink& parent, Parent state, std::vector<int> excluded, int rank,
                           int size, const GiveUp& give_up, const Report& report) {
  LOCKSTEP_CHECK(comm_ == nullptr);
  LOCKSTEP_CHECK(api_.comm_shrink != nullptr);
  LOCKSTEP_CHECK(parent.comm_ != nullptr);
  LOCKSTEP_CHECK(!excluded.empty());
  NcclConfig config = non_blocking(api_.version);
  const char* const what = "ncclCommShrink";
  const int flags = state == Parent::kHealthy ? kNcclShrinkDefault : kNcclShrinkAbort;
  NcclResult result = api_.comm_shrink(parent.comm_, excluded.data(),
                                       static_cast<int>(excluded.size()), &comm_, &config, flags);
  const bool was_accepted = result == NcclResult::kSuccess || result == NcclResult::kInProgress;
  if (!was_accepted) return finish_init(what, result, rank, size, give_up, report);
  Status status;
  result = settle(parent.comm_, ask(parent.comm_), give_up, status);
  if (status.ok() && result == NcclResult::kSuccess)
    return finish_init(what, result, rank, size, give_up, report);
  if (status.ok()) status = status_of(what, result);
  return fail_init(std::move(status), &parent, report);
}

bool NcclLink::is_alive() const {
  MutexLock lock(mutex_);
  return is_alive_;
}

bool NcclLink::can_be_shrunk() const {
  return api_.comm_shrink != nullptr && is_alive() && ask(comm_) == NcclResult::kSuccess;
}

bool NcclLink::take_over(Duration grace) {
  MutexLock lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
  changed_.wait(mutex_, Deadline::in(grace),
                [this]() LOCKSTEP_REQUIRES(mutex_) { return !is_inside_; });
  LOCKSTEP_CHECK(!is_alive_ || comm_ != nullptr);
  return is_alive_;
}

// True if no thread is inside, and every call has succeeded. Otherwise NCCL 2.28.9 keeps a pointer
// to a call that a revocation ends, and uses it when it is polled later.
bool NcclLink::is_at_rest() const {
  {
    MutexLock lock(mutex_);
    LOCKSTEP_CHECK(has_ended_);
    if (is_inside_) return false;
  }
  return ask(comm_) == NcclResult::kSuccess;
}

// Used after the end, when only one thread is left that calls NCCL.
NcclResult NcclLink::wait_out(NcclResult result, Deadline deadline) {
  Duration span = std::min(kFirstNap, poll_);
  while (result == NcclResult::kInProgress && !deadline.passed()) {
    {
      MutexLock lock(mutex_);
      LOCKSTEP_CHECK(has_ended_);
      changed_.wait(mutex_, Deadline::in(span), [] { return false; });
    }
    span = longer(span);
    result = ask(comm_);
  }
  return result;
}

void NcclLink::abort(Duration grace) {
  if (!take_over(grace)) return;
  {
    MutexLock lock(mutex_);
    LOCKSTEP_CHECK(is_alive_);  // Nobody else ends it.
    is_alive_ = false;
  }
  // Its result changes nothing, because there is no second way to end it.
  static_cast<void>(api_.comm_abort(comm_));
}

void NcclLink::revoke(Duration grace, Deadline deadline) {
  if (api_.comm_revoke == nullptr) return abort(grace);
  if (!take_over(grace)) return;
  if (!is_at_rest()) return abort(Duration(0));
  NcclResult result = api_.comm_revoke(comm_, kNcclRevokeDefault);
  const bool was_accepted = result == NcclResult::kSuccess || result == NcclResult::kInProgress;
  // The result may be the error that made the group fail; only kInProgress says that the call is
  // not done.
  result = wait_out(result, deadline);
  if (!was_accepted || result == NcclResult::kInProgress) abort(Duration(0));
}

void NcclLink::leave(Deadline deadline) {
  if (!take_over(deadline.remaining())) return;
  NcclResult result = NcclResult::kSuccess;
  if (api_.comm_finalize != nullptr) result = api_.comm_finalize(comm_);
  result = wait_out(result, deadline);
  if (result != NcclResult::kSuccess) return abort(Duration(0));
  {
    MutexLock lock(mutex_);
    LOCKSTEP_CHECK(is_alive_);  // Nobody else ends it.
    is_alive_ = false;
  }
  static_cast<void>(api_.comm_destroy(comm_));
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
