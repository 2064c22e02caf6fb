#include <iterator>

#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {

void SchedulingPolicy::begin(std::uint64_t seed, EventCounts& counts) {
  counts_ = &counts;
  state_ = seed * 0xd134'2543'de82'ef95U + 1;
  restart();
}

FiberId SchedulingPolicy::pick_waiter(const FiberSet& waiters, FiberId) {
  return waiters.nth(random_below(waiters.count()));
}

std::uint64_t SchedulingPolicy::random() {
  std::uint64_t z = (state_ += 0x9e37'79b9'7f4a'7c15U);
  z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9U;
  z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11ebU;
  return z ^ (z >> 31);
}

namespace {

using Make = std::unique_ptr<SchedulingPolicy> (*)();
// By Policy; the scheduler implements the default policy itself.
constexpr Make kMakers[] = {nullptr,   make_random_walk, make_stay_biased,   make_round_robin,
                            make_pos,  make_pct,         make_delay_bounded, make_urw,
                            make_surw, make_counting};
static_assert(std::size(kMakers) == kPolicies);

}  // namespace

std::unique_ptr<SchedulingPolicy> make_policy(Policy policy) {
  const Make make = kMakers[static_cast<std::size_t>(policy)];
  return make == nullptr ? nullptr : make();
}

}  // namespace lockstep::simulation
