// The reducer's part in a join (S2): ranks that still train announce what they are about to start.
// A rank that is out of inputs starts the same collectives, with zeros, until no rank trains any
// more. UnevenInputs decides; this file carries it out.
#include <new>

#include "reducer/base/check.h"
#include "reducer/pass.h"
#include "reducer/reducer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Status Reducer::begin_join(const JoinOptions& options) {
  if (options_.skip_unused_buckets)
    return Status(Code::kInvalidArgument,
                  "a rank without inputs does not know which buckets the others skip: turn "
                  "skip_unused_buckets off to join");
  Status status = join_.begin(options, collectives_.size());
  return status.code() == Code::kOutOfMemory ? memory_refused() : std::move(status);
}

// All ranks of the group announce their event; kNone is a rank out of inputs. The call returns the
// common event.
Result<UnevenInputs::Event> Reducer::exchange_join_state(UnevenInputs::Event event) try {
  LOCKSTEP_CHECK(!join_.is_shadowing());
  Collective collective = join_.announce(event, collectives_.rank(), collectives_.size());
  collective.pass = passes_.next();
  Status status = run_control(collective, TraceEntry::What::kJoin);
  if (!status.ok()) return failed(fail(std::move(status.failure())));
  Result<UnevenInputs::Event> agreed = join_.agree();
  if (agreed) return agreed;
  Failure& failure = agreed.error().failure();
  failure.reported_by = collectives_.rank();
  if (failure.code == Code::kUnevenInputs) {
    failure.pass = passes_.next();
    leave_join();
    close_pass(false);
    return agreed;
  }
  if (passes_.current()) failure.pass = passes_.current()->number;
  failure.sequence = collectives_.control().sequence();
  return failed(fail(std::move(failure)));
} catch (const std::bad_alloc&) {
  // The others have received the event, and wait.
  return failed(fail(std::move(out_of_memory().failure())));
}

void Reducer::leave_join() {
  join_.end();
  state_.is_window_open = false;
}

Status Reducer::end_join() try {
  LOCKSTEP_RETURN_IF_ERROR(begin_forward());
  if (!join_.is_joining())
    return Status(Code::kInvalidArgument, "end_join was called without a begin_join");
  if (passes_.current()) close_pass(false);  // Its outputs were never used.
  while (true) {
    Result<UnevenInputs::Event> event = exchange_join_state(UnevenInputs::Event::kNone);
    if (!event) return event.error();
    if (*event == UnevenInputs::Event::kNone) break;
    LOCKSTEP_RETURN_IF_ERROR(shadow(*event));
    LOCKSTEP_CHECK(!passes_.current());  // What this rank shadows, it completes.
  }
  // Every rank takes the state of a rank that trained last.
  Status status =
      state_.module->broadcast_all(*this, collectives_.rank(), join_.lowest_that_trains());
  leave_join();
  return status.ok() ? status : fail(std::move(status.failure()));
} catch (const std::bad_alloc&) {
  join_.set_shadowing(false);
  // The other ranks are in the middle of a pass.
  return fail(std::move(out_of_memory().failure()));
}

Status Reducer::shadow_forward(bool is_synced, bool with_buffers) try {
  LOCKSTEP_RETURN_IF_ERROR(begin_forward());
  if (!join_.is_joining())
    return Status(Code::kInvalidArgument, "shadow_forward was called without a begin_join");
  if (passes_.current()) close_pass(false);  // Its outputs were never used.
  if (!is_synced && !with_buffers) return {};
  const UnevenInputs::Event last =
      is_synced ? UnevenInputs::Event::kPass : UnevenInputs::Event::kBuffers;
  UnevenInputs::Event event = UnevenInputs::Event::kNone;
  while (event != last) {
    Result<UnevenInputs::Event> agreed = exchange_join_state(UnevenInputs::Event::kNone);
    if (!agreed) return agreed.error();
    event = *agreed;
    if (event == UnevenInputs::Event::kNone)
      return Status(Code::kInvalidArgument, "no rank trains whose forward could be shadowed");
    LOCKSTEP_RETURN_IF_ERROR(shadow(event));
  }
  return {};
} catch (const std::bad_alloc&) {
  join_.set_shadowing(false);
  // The other ranks are in the middle of a pass.
  return fail(std::move(out_of_memory().failure()));
}

Status Reducer::shadow(UnevenInputs::Event event) {
  switch (event) {
    case UnevenInputs::Event::kBuffers:
      return send_buffers();
    case UnevenInputs::Event::kRebuild:
      return lay_out_in_ready_order();
    case UnevenInputs::Event::kPass:
      break;
    case UnevenInputs::Event::kNone:
      return {};
  }
  LOCKSTEP_CHECK(!join_.is_shadowing());
  LOCKSTEP_CHECK(!failures_.is_poisoned());
  passes_.open(this, collectives_.rank());
  bool must_agree_on_usage = false;
  Status status;
  {
    platform::MutexLock lock(mutex_);
    start_pass();
    status = buckets_.detach_misplaced_views(shared_.core);
    must_agree_on_usage = shared_.core.on_no_backward().kind == core::Action::Kind::kLaunchUsageMap;
  }
  join_.set_shadowing(true);
  if (status.ok()) status = shadow_pass(must_agree_on_usage);
  join_.set_shadowing(false);
  if (!status.ok()) return fail(std::move(status.failure()));
  end_pass();
  return {};
}

// Reduces every bucket and the usage map, with zeros and without any use.
Status Reducer::shadow_pass(bool must_agree_on_usage) {
  LOCKSTEP_CHECK(join_.is_shadowing());
  if (must_agree_on_usage) LOCKSTEP_RETURN_IF_ERROR(agree_on_use());
  {
    platform::MutexLock lock(mutex_);
    if (must_agree_on_usage) shared_.core.on_usage_agreed();
    LOCKSTEP_RETURN_IF_ERROR(copy_unused_grads());
    LOCKSTEP_RETURN_IF_ERROR(launch_ready_buckets());
  }
  return finalize();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
