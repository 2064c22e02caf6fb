// Uneven inputs (S2): ranks that still train announce what they are about to start. A rank that is
// out of inputs starts the same collectives, with zeros, until no rank trains any more.
#include <algorithm>
#include <new>
#include <numeric>

#include "reducer/base/check.h"
#include "reducer/pass.h"
#include "reducer/reducer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// The join state is a sum over the ranks. For each event it counts the ranks that are at it, and
// for each option the ranks that have it on. Then it has one entry for each rank, which is 1 if the
// rank trains.
constexpr std::size_t kEvents = 3;
constexpr std::size_t kThrows = kEvents;
constexpr std::size_t kByActive = kEvents + 1;
constexpr std::size_t kFirstRank = kEvents + 2;

std::vector<int> ranks_where(std::span<const std::int32_t> flags, bool wanted) {
  std::vector<int> out;
  for (std::size_t r = 0; r < flags.size(); ++r)
    if ((flags[r] != 0) == wanted) out.push_back(static_cast<int>(r));
  return out;
}

}  // namespace

Status Reducer::begin_join(const JoinOptions& options) try {
  if (joining_)
    return Status(Code::kInvalidArgument, "begin_join was called twice without an end_join");
  const auto size = static_cast<std::size_t>(membership_.group->size());
  join_state_.reserve(kFirstRank + size);
  active_.assign(size, 0);
  active_[0] = 1;  // If no rank ever trains, every rank takes the state of rank 0.
  joining_ = options;
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

// All ranks of the group announce their event; kNone is a rank out of inputs. The call returns the
// common event.
Result<Reducer::JoinEvent> Reducer::exchange_join_state(JoinEvent event) try {
  const auto size = static_cast<std::size_t>(membership_.group->size());
  join_state_.assign(kFirstRank + size, 0);
  if (event != JoinEvent::kNone) {
    join_state_[static_cast<std::size_t>(event)] = 1;
    join_state_[kFirstRank + static_cast<std::size_t>(membership_.group->rank())] = 1;
  }
  join_state_[kThrows] = joining_->throw_on_early_termination ? 1 : 0;
  join_state_[kByActive] = joining_->divide_by_active ? 1 : 0;
  Collective collective;
  collective.dtype = DType::kInt32;
  collective.count = join_state_.size();
  collective.data = reinterpret_cast<std::byte*>(join_state_.data());
  collective.pass = next_pass_;
  std::int64_t sequence = 0;
  Status status = launch(collective, usage_work_, TraceEntry::What::kJoin, sequence);
  if (status.ok()) status = await(usage_work_, sequence, kNone);
  if (!status.ok()) return failed(fail(std::move(status.failure())));
  return apply_join_state(std::span(join_state_).subspan(kFirstRank));
} catch (const std::bad_alloc&) {
  // The others have received the event, and wait.
  return failed(fail(std::move(out_of_memory().failure())));
}

// Interprets the sum. It is the same on every rank, so either all continue or all raise.
Result<Reducer::JoinEvent> Reducer::apply_join_state(std::span<const std::int32_t> flags) {
  const auto size = static_cast<std::int32_t>(flags.size());
  const std::int32_t active = std::accumulate(flags.begin(), flags.end(), std::int32_t{0});
  const auto uniform = [&](std::size_t i) { return join_state_[i] == 0 || join_state_[i] == size; };
  const auto at = std::find(join_state_.begin(), join_state_.begin() + kEvents, active);
  if (!uniform(kThrows) || !uniform(kByActive) || at == join_state_.begin() + kEvents) {
    Failure failure = describe(
        Code::kMismatch,
        uniform(kThrows) && uniform(kByActive)
            ? "ranks that train are at different points: of " + std::to_string(active) + ", " +
                  std::to_string(join_state_[0]) + " broadcast buffers, " +
                  std::to_string(join_state_[1]) + " rebuild buckets, " +
                  std::to_string(join_state_[2]) + " begin a backward"
            : "ranks called begin_join with different options: of " + std::to_string(size) + ", " +
                  std::to_string(join_state_[kThrows]) + " have throw_on_early_termination on, " +
                  std::to_string(join_state_[kByActive]) + " divide_by_active");
    failure.rank = kNone;  // Nobody can tell which rank is wrong.
    failure.definite = true;
    failure.collective = name_of(Op::kAllReduceSum);
    failure.sequence = usage_work_.sequence();
    annotate(failure, kNone);
    return failed(fail(std::move(failure)));
  }
  if (active == 0) return JoinEvent::kNone;
  std::copy(flags.begin(), flags.end(), active_.begin());
  scale_.divide_by(joining_->divide_by_active ? active : size);
  if (active < size && joining_->throw_on_early_termination) {
    Failure failure =
        describe(Code::kUnevenInputs, "out of inputs: " + rank_list(ranks_where(flags, false)) +
                                          ", not yet: " + rank_list(ranks_where(flags, true)) +
                                          "; throw_on_early_termination is on");
    failure.rank = static_cast<int>(std::find(flags.begin(), flags.end(), 0) - flags.begin());
    failure.pass = next_pass_;
    failure.definite = true;
    leave_join();
    close_pass(false);
    return failed(Status(std::move(failure)));
  }
  return static_cast<JoinEvent>(at - join_state_.begin());
}

bool Reducer::all_train() const {
  return !joining_ || std::find(active_.begin(), active_.end(), 0) == active_.end();
}

// The lowest rank that trained in the last event; rank 0 before the first event.
int Reducer::lowest_that_trains() const {
  const auto found =
      std::find_if(active_.begin(), active_.end(), [](std::int32_t each) { return each != 0; });
  LOCKSTEP_CHECK(found != active_.end());
  return static_cast<int>(found - active_.begin());
}

void Reducer::leave_join() {
  joining_.reset();
  window_open_ = false;
  scale_.divide_by(membership_.group->size());
}

Status Reducer::end_join() try {
  LOCKSTEP_RETURN_IF_ERROR(begin_forward());
  if (!joining_) return Status(Code::kInvalidArgument, "end_join was called without a begin_join");
  if (pass_) close_pass(false);  // Its outputs were never used.
  while (true) {
    Result<JoinEvent> event = exchange_join_state(JoinEvent::kNone);
    if (!event) return event.error();
    if (*event == JoinEvent::kNone) break;
    LOCKSTEP_RETURN_IF_ERROR(shadow(*event));
  }
  // Every rank takes the state of a rank that trained last.
  Status status = state_->broadcast_all(*this, membership_.group->rank(), lowest_that_trains());
  leave_join();
  return status.ok() ? status : fail(state_failure(std::move(status)));
} catch (const std::bad_alloc&) {
  shadowing_ = false;
  // The other ranks are in the middle of a pass.
  return fail(std::move(out_of_memory().failure()));
}

Status Reducer::shadow(JoinEvent event) {
  switch (event) {
    case JoinEvent::kBuffers:
      return send_buffers();
    case JoinEvent::kRebuild:
      return lay_out_in_ready_order();
    case JoinEvent::kPass:
      break;
    case JoinEvent::kNone:
      return {};
  }
  open_pass();
  bool agrees = false;
  Status status;
  {
    platform::MutexLock lock(mutex_);
    start_pass(*pass_);
    status = detach_misplaced_views();
    agrees = core_.on_no_backward().kind == core::Action::Kind::kLaunchUsageMap;
  }
  shadowing_ = true;
  if (status.ok()) status = shadow_pass(agrees);
  shadowing_ = false;
  if (!status.ok()) return fail(std::move(status.failure()));
  end_pass();
  return {};
}

// Reduces every bucket and the usage map, with zeros and without any use.
Status Reducer::shadow_pass(bool agrees) {
  if (agrees) LOCKSTEP_RETURN_IF_ERROR(agree_on_use());
  {
    platform::MutexLock lock(mutex_);
    if (agrees) core_.on_usage_agreed();
    LOCKSTEP_RETURN_IF_ERROR(copy_unused_grads());
    LOCKSTEP_RETURN_IF_ERROR(launch_ready_buckets());
  }
  return finalize();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
