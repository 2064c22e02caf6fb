// Uniform random walk (Zhao, Wolff, Mathur and Roychoudhury, "Selectively Uniform Concurrency
// Testing", ASPLOS 2025): a fiber is picked with a probability in proportion to the events that it
// and the fibers that it has yet to spawn have left. If the numbers of events are right, and no
// fiber waits, every interleaving of them is as likely as any other; a random walk prefers those in
// which short fibers end early. The counted run (EventCounts) says how many events there are. A
// fiber that passes more of them counts as if it had one left.
#include <algorithm>
#include <array>

#include "faults/sim/scheduler/step_observer.h"

namespace lockstep::simulation {
namespace {

class UniformRandomWalk final : public StepObserver {
 public:
  FiberId pick(const Choice& choice) override {
    std::uint32_t total = 0;
    choice.runnable.set().for_each([&](FiberId id) { total += left_[id]; });
    std::uint32_t drawn = random_below(total);
    FiberId picked = kNoFiber;
    choice.runnable.set().for_each([&](FiberId id) {
      if (picked != kNoFiber) return;
      if (drawn < left_[id])
        picked = id;
      else
        drawn -= left_[id];
    });
    return picked;
  }

  void on_spawn(const Fiber& fiber, const Fiber* parent) override {
    const EventCounts::Entry* const entry = counts().find(fiber);
    left_[fiber.id] = entry == nullptr ? 1 : std::max(entry->mean_events(), 1U);
    if (parent != nullptr) take(parent->id, left_[fiber.id]);
  }
  void on_step(const Fiber& fiber) override { take(fiber.id, 1); }

 private:
  void take(FiberId id, std::uint32_t events) {
    left_[id] = left_[id] > events ? left_[id] - events : 1;
  }

  std::array<std::uint32_t, kMaxFibers> left_{};  // events, by fiber; at least 1
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_urw() { return std::make_unique<UniformRandomWalk>(); }

}  // namespace lockstep::simulation
