// Selectively uniform random walk (Zhao et al., "Selectively Uniform Concurrency Testing", ASPLOS
// 2025): only the order of selected events is to be uniform. Here these are the times at which a
// mutex of one name is locked by the fibers of one rank; the seed draws which, in proportion to the
// logarithm of their number. One fiber is intended to be the next with a selected event, drawn in
// proportion to the selected events that it has left. Until it comes there, every other fiber stops
// before its own selected event, and all else is a random walk.
//
// If only fibers that stopped could run, or one waits in a loop for others, who is intended is
// drawn anew among those that stopped, so that no fiber waits forever.
#include <algorithm>
#include <array>
#include <bit>

#include "faults/sim/scheduler/policy/policy.h"

namespace lockstep::simulation {
namespace {

class SelectivelyUniform final : public SchedulingPolicy {
 public:
  FiberId pick(const Choice& choice) override {
    FiberSet stopped;
    FiberSet others;
    choice.runnable.set().for_each([&](FiberId id) {
      const Fiber& fiber = *choice.fibers[id];
      static_cast<void>(left(fiber));
      (is_selected(fiber) ? stopped : others).insert(id);
    });
    if (intended_ == kNoFiber) intend_any(choice);
    const auto is_its_turn = [&] { return intended_ != kNoFiber && stopped.contains(intended_); };
    const bool is_stuck = others.empty() && !is_its_turn();
    if (!stopped.empty() && (is_stuck || is_waited_for_)) intended_ = weighted(stopped);
    is_waited_for_ = false;
    if (is_its_turn()) others.insert(intended_);
    const FiberId picked = others.nth(random_below(others.count()));
    if (is_selected(*choice.fibers[picked])) {
      if (left_[picked] > 1) --left_[picked];
      intended_ = kNoFiber;
    }
    return picked;
  }
  void on_spawn(FiberId fiber) override { left_[fiber] = kUnknown; }
  void on_yield(FiberId) override { is_waited_for_ = true; }

 protected:
  void restart() override {
    left_.fill(kUnknown);
    intended_ = kNoFiber;
    is_waited_for_ = false;
    select();
  }

 private:
  static constexpr std::uint32_t kUnknown = ~std::uint32_t{0};

  // Draws a mutex name and a rank whose fibers lock it.
  void select() {
    lock_ = kUnjudgedName;
    std::uint32_t total = 0;
    for (const EventCounts::Entry& entry : counts().entries())
      for (NameId lock = 0; lock < kMaxNames; ++lock) {
        if (entry.locks[lock] == 0) continue;
        const auto weight = static_cast<std::uint32_t>(std::bit_width(entry.locks[lock]));
        total += weight;
        // Each one takes the place of the one drawn so far with its share of the total.
        if (random_below(total) >= weight) continue;
        lock_ = lock;
        group_ = entry.group;
      }
  }
  bool is_selected(const Fiber& fiber) const {
    return fiber.next_lock == lock_ && fiber.group == group_ && lock_ != kUnjudgedName;
  }
  std::uint32_t left(const Fiber& fiber) {
    std::uint32_t& left = left_[fiber.id];
    if (left != kUnknown) return left;
    const EventCounts::Entry* const entry =
        fiber.group == group_ && lock_ != kUnjudgedName ? counts().find(fiber) : nullptr;
    return left = entry == nullptr ? 0 : entry->mean_locks(lock_);
  }
  void intend_any(const Choice& choice) {
    FiberSet able;
    choice.runnable.set().for_each([&](FiberId id) {
      if (left_[id] > 0) able.insert(id);
    });
    if (!able.empty()) intended_ = weighted(able);
  }
  // A fiber that passes more events than the counted run had counts as if it had one left.
  FiberId weighted(const FiberSet& fibers) {
    std::uint32_t total = 0;
    fibers.for_each([&](FiberId id) { total += std::max(left_[id], 1U); });
    std::uint32_t drawn = random_below(total);
    FiberId picked = kNoFiber;
    fibers.for_each([&](FiberId id) {
      if (picked != kNoFiber) return;
      const std::uint32_t weight = std::max(left_[id], 1U);
      if (drawn < weight)
        picked = id;
      else
        drawn -= weight;
    });
    return picked;
  }
  std::array<std::uint32_t, kMaxFibers> left_{};  // selected events, by fiber
  NameId lock_ = kUnjudgedName;                   // the mutex whose events are selected
  std::uint32_t group_ = 0;                       // the rank
  FiberId intended_ = kNoFiber;
  bool is_waited_for_ = false;
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_surw() { return std::make_unique<SelectivelyUniform>(); }

}  // namespace lockstep::simulation
