#include "reducer/uneven_inputs.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/diagnosis/diagnosis.h"

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

Status UnevenInputs::begin(const JoinOptions& options, int ranks) try {
  if (joining_)
    return Status(Code::kInvalidArgument, "begin_join was called twice without an end_join");
  LOCKSTEP_CHECK_GE(ranks, 1);
  const auto size = static_cast<std::size_t>(ranks);
  state_.reserve(kFirstRank + size);
  active_.assign(size, 0);
  active_[0] = 1;  // If no rank ever trains, every rank takes the state of rank 0.
  joining_ = options;
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Collective UnevenInputs::announce(Event event, int rank, int ranks) {
  LOCKSTEP_CHECK(joining_.has_value());
  LOCKSTEP_CHECK(0 <= rank && rank < ranks);
  LOCKSTEP_CHECK_EQ(active_.size(), static_cast<std::size_t>(ranks));
  state_.assign(kFirstRank + static_cast<std::size_t>(ranks), 0);
  if (event != Event::kNone) {
    state_[static_cast<std::size_t>(event)] = 1;
    state_[kFirstRank + static_cast<std::size_t>(rank)] = 1;
  }
  state_[kThrows] = joining_->throw_on_early_termination ? 1 : 0;
  state_[kByActive] = joining_->divide_by_active ? 1 : 0;
  Collective collective;
  collective.dtype = DType::kInt32;
  collective.count = state_.size();
  collective.data = reinterpret_cast<std::byte*>(state_.data());
  return collective;
}

// The sum is the same on every rank, so either all continue or all raise.
Result<UnevenInputs::Event> UnevenInputs::agree() {
  LOCKSTEP_CHECK(joining_.has_value());
  LOCKSTEP_CHECK_EQ(state_.size(), kFirstRank + active_.size());
  const std::span<const std::int32_t> flags = std::span(state_).subspan(kFirstRank);
  const auto size = static_cast<std::int32_t>(flags.size());
  const std::int32_t active = std::accumulate(flags.begin(), flags.end(), std::int32_t{0});
  const auto at = std::find(state_.begin(), state_.begin() + kEvents, active);
  if (!is_uniform(kThrows, size) || !is_uniform(kByActive, size) || at == state_.begin() + kEvents)
    return failed(Status(mismatch(size, active)));
  if (active == 0) return Event::kNone;
  std::copy(flags.begin(), flags.end(), active_.begin());
  scale_.divide_by(joining_->divide_by_active ? active : size);
  if (active < size && joining_->throw_on_early_termination)
    return failed(Status(early_termination(flags)));
  return static_cast<Event>(at - state_.begin());
}

// Nobody can tell which rank is wrong, so the failure names none.
Failure UnevenInputs::mismatch(std::int32_t ranks, std::int32_t active) const {
  LOCKSTEP_CHECK_EQ(state_.size(), kFirstRank + static_cast<std::size_t>(ranks));
  Failure failure;
  failure.code = Code::kMismatch;
  failure.definite = true;
  failure.collective = name_of(Op::kAllReduceSum);
  failure.detail =
      is_uniform(kThrows, ranks) && is_uniform(kByActive, ranks)
          ? "ranks that train are at different points: of " + std::to_string(active) + ", " +
                std::to_string(state_[0]) + " broadcast buffers, " + std::to_string(state_[1]) +
                " rebuild buckets, " + std::to_string(state_[2]) + " begin a backward"
          : "ranks called begin_join with different options: of " + std::to_string(ranks) + ", " +
                std::to_string(state_[kThrows]) + " have throw_on_early_termination on, " +
                std::to_string(state_[kByActive]) + " divide_by_active";
  return failure;
}

Failure UnevenInputs::early_termination(std::span<const std::int32_t> flags) const {
  Failure failure;
  failure.code = Code::kUnevenInputs;
  failure.definite = true;
  failure.rank = static_cast<int>(std::find(flags.begin(), flags.end(), 0) - flags.begin());
  failure.detail = "out of inputs: " + rank_list(ranks_where(flags, false)) +
                   ", not yet: " + rank_list(ranks_where(flags, true)) +
                   "; throw_on_early_termination is on";
  return failure;
}

bool UnevenInputs::all_train() const {
  return !joining_ || std::find(active_.begin(), active_.end(), 0) == active_.end();
}

int UnevenInputs::lowest_that_trains() const {
  const auto found =
      std::find_if(active_.begin(), active_.end(), [](std::int32_t each) { return each != 0; });
  LOCKSTEP_CHECK(found != active_.end());
  return static_cast<int>(found - active_.begin());
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
