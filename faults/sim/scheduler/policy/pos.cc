// Partial order sampling (Yuan, Yang and Gu, "Partial Order Aware Concurrency Sampling", CAV 2018):
// the next step of every fiber has a random priority, and the step with the highest priority runs.
// Then the fiber draws a new priority, and so does each fiber whose next step uses the same object
// as the step that ran. So the probability of an order depends only on steps that use a common
// object, and not on how many other steps lie between them.
#include <array>

#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {
namespace {

class PartialOrderSampling final : public SchedulingPolicy {
 public:
  FiberId pick(const Choice& choice) override {
    FiberId best = kNoFiber;
    choice.runnable.set().for_each([&](FiberId id) {
      if (best == kNoFiber || priority(id) > priority(best)) best = id;
    });
    const void* const object = choice.fibers[best]->next_object;
    if (object != nullptr)
      choice.runnable.set().for_each([&](FiberId id) {
        if (choice.fibers[id]->next_object == object) priorities_[id] = kNotDrawn;
      });
    priorities_[best] = kNotDrawn;
    return best;
  }
  void on_spawn(const Fiber& fiber, const Fiber*) override { priorities_[fiber.id] = kNotDrawn; }

 protected:
  void restart() override { priorities_.fill(kNotDrawn); }

 private:
  static constexpr std::uint64_t kNotDrawn = 0;

  std::uint64_t priority(FiberId id) {
    if (priorities_[id] == kNotDrawn) priorities_[id] = random() | 1;
    return priorities_[id];
  }

  std::array<std::uint64_t, kMaxFibers> priorities_{};  // of each fiber's next step
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_pos() { return std::make_unique<PartialOrderSampling>(); }

}  // namespace lockstep::simulation
