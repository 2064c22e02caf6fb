// Probabilistic concurrency testing (Burckhardt et al., "A Randomized Scheduler with Probabilistic
// Guarantees of Finding Bugs", ASPLOS 2010). Fibers have random priorities, and the runnable fiber
// with the highest priority runs. At d - 1 random choices, the fiber that would run gets a priority
// below all others. The seed draws d from 2, 3 and 5. It also draws the horizon: the number of
// choices among which these d - 1 lie, because the length of a run is not known beforehand.
//
// Two additions make the policy fair, so that no fiber waits forever for one that never runs: a
// fiber that yields gets a priority below all others, too; and from the horizon on the policy is a
// random walk.
#include <algorithm>
#include <array>

#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {
namespace {

class PriorityChanges final : public SchedulingPolicy {
 public:
  FiberId pick(const Choice& choice) override {
    if (choice.number >= horizon_)
      return choice.runnable.any(random_below(choice.runnable.count()));
    FiberId best = highest(choice);
    if (!is_change(choice.number)) return best;
    fall(best);
    return highest(choice);
  }
  void on_yield(FiberId fiber) override { fall(fiber); }
  void on_spawn(const Fiber& fiber, const Fiber*) override { priorities_[fiber.id] = kNotDrawn; }

 protected:
  void restart() override {
    static constexpr std::array<std::uint32_t, 3> kDepths{2, 3, 5};
    priorities_.fill(kNotDrawn);
    lowest_ = kHighestFallen;
    count_ = kDepths[random_below(3)] - 1;
    horizon_ = std::uint64_t{kShortest} << random_below(kLengths);
    for (std::uint32_t i = 0; i < count_; ++i)
      changes_[i] = random_below(static_cast<std::uint32_t>(horizon_));
  }

 private:
  static constexpr std::uint32_t kShortest = 32;  // the lowest horizon, in choices
  static constexpr std::uint32_t kLengths = 7;    // how many horizons: 32, 64, ... 2,048
  static constexpr std::uint64_t kNotDrawn = 0;
  // Priorities of fibers that have fallen are below this value; drawn priorities are not.
  static constexpr std::uint64_t kHighestFallen = std::uint64_t{1} << 62;

  std::uint64_t priority(FiberId id) {
    if (priorities_[id] == kNotDrawn) priorities_[id] = (random() >> 1) | kHighestFallen;
    return priorities_[id];
  }
  FiberId highest(const Choice& choice) {
    FiberId best = kNoFiber;
    choice.runnable.set().for_each([&](FiberId id) {
      if (best == kNoFiber || priority(id) > priority(best)) best = id;
    });
    return best;
  }
  void fall(FiberId fiber) { priorities_[fiber] = --lowest_; }
  bool is_change(std::uint64_t number) const {
    const auto* const end = changes_.begin() + count_;
    return std::find(changes_.begin(), end, number) != end;
  }

  std::array<std::uint64_t, kMaxFibers> priorities_{};  // by fiber
  std::array<std::uint64_t, 4> changes_{};  // the choices at which a priority falls, by number
  std::uint32_t count_ = 0;                 // how many of changes_ this run uses
  std::uint64_t horizon_ = 0;
  std::uint64_t lowest_ = 0;  // the lowest priority so far
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_pct() { return std::make_unique<PriorityChanges>(); }

}  // namespace lockstep::simulation
