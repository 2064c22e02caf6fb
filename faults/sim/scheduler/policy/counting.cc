// Picks as the default policy does, and counts the events of each fiber for the policies that weigh
// fibers by them (urw, surw).
#include <array>

#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {
namespace {

class Counting final : public SchedulingPolicy {
 public:
  FiberId pick(const Choice& choice) override {
    const Fiber& fiber = *choice.fibers[choice.by_default];
    std::size_t& entry = entries_[fiber.id];
    if (entry == kUnknown) entry = counts().add_fiber(fiber);
    counts().add_event(entry, fiber.next_lock);
    return choice.by_default;
  }
  FiberId pick_waiter(const FiberSet&, FiberId first) override { return first; }
  void on_spawn(FiberId fiber) override { entries_[fiber] = kUnknown; }

 protected:
  void restart() override {
    counts().clear();
    entries_.fill(kUnknown);
  }

 private:
  static constexpr std::size_t kUnknown = ~std::size_t{0};
  std::array<std::size_t, kMaxFibers> entries_{};  // by fiber
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_counting() { return std::make_unique<Counting>(); }

}  // namespace lockstep::simulation
