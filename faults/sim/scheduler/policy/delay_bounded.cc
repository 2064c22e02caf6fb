// Delay-bounded scheduling (Emmi, Qadeer and Rakamaric, "Delay-Bounded Scheduling", POPL 2011): the
// scheduler takes turns without pre-emption, and delays the fiber that would run at d random
// choices, so that the next one in the cycle runs instead. The seed draws d from 1 to 4, and the
// horizon: the number of choices among which the delays lie, because the length of a run is not
// known beforehand.
#include <algorithm>
#include <array>

#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {
namespace {

class DelayBounded final : public SchedulingPolicy {
 public:
  FiberId pick(const Choice& choice) override {
    const FiberId last = choice.current == kNoFiber ? kMaxFibers - 1 : choice.current;
    const bool stays = choice.may_stay && last != yielded_;
    yielded_ = kNoFiber;
    const FiberId first = stays ? last : choice.runnable.after(last);
    return is_delayed(choice.number) ? choice.runnable.after(first) : first;
  }
  FiberId pick_waiter(const FiberSet&, FiberId first) override { return first; }
  // It ends its turn: whom it waits for may come after it.
  void on_yield(FiberId fiber) override { yielded_ = fiber; }

 protected:
  void restart() override {
    yielded_ = kNoFiber;
    count_ = 1 + random_below(kMostDelays);
    const std::uint32_t horizon = kShortest << random_below(kLengths);
    for (std::uint32_t i = 0; i < count_; ++i) delays_[i] = random_below(horizon);
  }

 private:
  static constexpr std::uint32_t kMostDelays = 4;
  static constexpr std::uint32_t kShortest = 32;  // the lowest horizon, in choices
  static constexpr std::uint32_t kLengths = 7;    // how many horizons: 32, 64, ... 2,048

  bool is_delayed(std::uint64_t number) const {
    const auto* const end = delays_.begin() + count_;
    return std::find(delays_.begin(), end, number) != end;
  }

  std::array<std::uint64_t, kMostDelays> delays_{};  // choices, by number
  FiberId yielded_ = kNoFiber;                       // by its last step
  std::uint32_t count_ = 0;                          // how many of delays_ this run uses
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_delay_bounded() { return std::make_unique<DelayBounded>(); }

}  // namespace lockstep::simulation
