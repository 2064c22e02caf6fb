// CommHookDriver runs the user's communication hook on buckets (S4): it makes the buckets as the
// hook sees them, calls the hook, checks its results, and turns its exceptions into failures.
//
// Threads: start() runs on the worker that completed the bucket, finish() on the thread that
// trains, one at a time, in bucket order. The caller holds no lock meanwhile, as hooks are user
// code.
// Ownership: the hook is shared with the caller of Reducer. The collectives must outlive this.
// Failure: what a hook does wrong is kUserFailure, whatever its code, unless a collective of the
// hook failed or memory ran out. A failure here does not name the rank, the pass and the bucket;
// the reducer adds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "reducer/bucket/layout.h"
#include "reducer/hooks/communication_hook.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class CommHookDriver {
 public:
  // `hook` may be null: then buckets are summed without one.
  CommHookDriver(std::shared_ptr<CommunicationHook> hook, HookCollectives& collectives)
      : hook_(std::move(hook)), collectives_(collectives) {}

  bool has_hook() const { return hook_ != nullptr; }
  // State from earlier passes belongs to another group.
  void start_over() const {
    if (hook_) hook_->reset();
  }

  // Makes bucket `b` of the layout as the hook sees it; null without a hook. `views` and
  // `parameters` are in the order of the bucket's members.
  std::unique_ptr<HookBucket> make_bucket(const Layout& layout, std::size_t b, Ref<Storage> storage,
                                          std::vector<Tensor> views,
                                          std::vector<std::size_t> parameters) const;

  Status start(HookBucket& bucket, int divisor, double factor, Reduction reduction) const;
  // Waits for the hook's collectives, and for its future at most `timeout`; then copies the hook's
  // result to the bucket.
  Status finish(HookBucket& bucket, platform::Duration timeout) const;

 private:
  Status failure_of(Status status, const HookBucket& bucket) const;
  Failure never_ended() const;

  const std::shared_ptr<CommunicationHook> hook_;
  HookCollectives& collectives_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
