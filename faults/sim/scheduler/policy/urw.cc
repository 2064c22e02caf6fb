// Uniform random walk (Zhao et al., "Selectively Uniform Concurrency Testing", ASPLOS 2025): a
// fiber is picked with a probability in proportion to the events that it has left. If the numbers
// of events are right, every interleaving of them is as likely as any other. A random walk prefers
// the interleavings in which short fibers come early instead. The counted run (EventCounts) says
// how many events there are; a fiber that passes more counts as if it had one left.
#include <array>

#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {
namespace {

class UniformRandomWalk final : public SchedulingPolicy {
 public:
  FiberId pick(const Choice& choice) override {
    std::uint32_t total = 0;
    choice.runnable.set().for_each([&](FiberId id) { total += left(*choice.fibers[id]); });
    std::uint32_t drawn = random_below(total);
    FiberId picked = kNoFiber;
    choice.runnable.set().for_each([&](FiberId id) {
      if (picked != kNoFiber) return;
      if (drawn < left_[id])
        picked = id;
      else
        drawn -= left_[id];
    });
    if (left_[picked] > 1) --left_[picked];
    return picked;
  }
  void on_spawn(FiberId fiber) override { left_[fiber] = kUnknown; }

 protected:
  void restart() override { left_.fill(kUnknown); }

 private:
  static constexpr std::uint32_t kUnknown = 0;

  std::uint32_t left(const Fiber& fiber) {
    std::uint32_t& left = left_[fiber.id];
    if (left == kUnknown) {
      const EventCounts::Entry* const entry = counts().find(fiber);
      left = entry == nullptr ? 1 : entry->mean_events();
    }
    return left;
  }

  std::array<std::uint32_t, kMaxFibers> left_{};  // events, by fiber
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_urw() { return std::make_unique<UniformRandomWalk>(); }

}  // namespace lockstep::simulation
