// Round robin picks the runnable fiber with the next id, and of waiting fibers the first.
#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {
namespace {

class RoundRobin final : public SchedulingPolicy {
 public:
  FiberId pick(const Choice& choice) override {
    return choice.runnable.after(choice.current == kNoFiber ? kMaxFibers - 1 : choice.current);
  }
  FiberId pick_waiter(const FiberSet&, FiberId first) override { return first; }
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_round_robin() { return std::make_unique<RoundRobin>(); }

}  // namespace lockstep::simulation
