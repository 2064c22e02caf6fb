// The stay-biased walk stays on the running fiber with probability 7/8, and otherwise picks as the
// random walk does.
#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {
namespace {

class StayBiased final : public SchedulingPolicy {
 public:
  FiberId pick(const Choice& choice) override {
    if (choice.may_stay && (random() >> 61) != 0) return choice.current;
    return choice.runnable.any(random_below(choice.runnable.count()));
  }
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_stay_biased() { return std::make_unique<StayBiased>(); }

}  // namespace lockstep::simulation
