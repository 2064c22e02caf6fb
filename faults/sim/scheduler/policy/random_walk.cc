// The random walk picks any runnable fiber, each with the same probability.
#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {
namespace {

class RandomWalk final : public SchedulingPolicy {
 public:
  FiberId pick(const Choice& choice) override {
    return choice.runnable.any(random_below(choice.runnable.count()));
  }
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_random_walk() { return std::make_unique<RandomWalk>(); }

}  // namespace lockstep::simulation
