#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {

void SchedulingPolicy::begin(std::uint64_t seed) {
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

std::unique_ptr<SchedulingPolicy> make_policy(Policy policy) {
  switch (policy) {
    case Policy::kDefault:
      return nullptr;
    case Policy::kRandomWalk:
      return make_random_walk();
    case Policy::kStayBiased:
      return make_stay_biased();
    case Policy::kRoundRobin:
      return make_round_robin();
    case Policy::kPos:
      return make_pos();
    case Policy::kPct:
      return make_pct();
  }
  return nullptr;
}

}  // namespace lockstep::simulation
