// Selectively uniform random walk (Zhao, Wolff, Mathur and Roychoudhury, "Selectively Uniform
// Concurrency Testing", ASPLOS 2025): only the order of selected events is to be uniform. The paper
// selects the accesses to one variable, drawn anew for each run; here these are the steps in which
// the fibers of one rank lock mutexes of one name that several of them lock. One fiber is intended
// to have the next selected event, drawn in proportion to the selected events that it and the
// fibers that it has yet to spawn have left. Until it comes there, every other fiber stops before
// its own selected event. All else is a random walk.
//
// If all that can run have stopped, or one waits in a loop for others, who is intended is drawn
// anew among those that have stopped, so that no fiber waits forever.
#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "faults/sim/scheduler/step_observer.h"

namespace lockstep::simulation {
namespace {

class SelectivelyUniform final : public StepObserver {
 public:
  FiberId pick(const Choice& choice) override {
    FiberSet stopped;
    FiberSet free;
    choice.runnable.set().for_each(
        [&](FiberId id) { (is_selected(*choice.fibers[id]) ? stopped : free).insert(id); });
    if (intended_ == kNoFiber) intend_any(free, stopped);
    const bool is_intended_there = intended_ != kNoFiber && stopped.contains(intended_);
    const bool is_stuck = (free.empty() || is_waited_for_) && !is_intended_there;
    if (is_stuck && !stopped.empty()) intended_ = weighted(stopped);
    is_waited_for_ = false;
    if (intended_ != kNoFiber && stopped.contains(intended_)) free.insert(intended_);
    return free.nth(random_below(free.count()));
  }

  void on_spawn(const Fiber& fiber, const Fiber* parent) override {
    const EventCounts::Entry* const entry =
        lock_ != kUnjudgedName && fiber.group == group_ ? counts().find(fiber) : nullptr;
    const std::uint32_t own = entry == nullptr ? 0 : entry->mean_locks(lock_);
    left_[fiber.id] = own;
    if (parent == nullptr || own == 0) return;
    // The event for which the parent was intended may be one of the new fiber.
    std::uint32_t& before = left_[parent->id];
    if (intended_ == parent->id && random_below(std::max(before, own)) < own) intended_ = fiber.id;
    before -= std::min(before, own);
  }
  void on_step(const Fiber& fiber) override {
    if (!is_selected(fiber)) return;
    if (left_[fiber.id] > 0) --left_[fiber.id];
    intended_ = kNoFiber;
  }
  void on_yield(FiberId) override { is_waited_for_ = true; }

 protected:
  void restart() override {
    intended_ = kNoFiber;
    is_waited_for_ = false;
    select();
  }

 private:
  // Draws a rank and the name of a mutex that several of its fibers lock. Names are compared as
  // text, because their numbers depend on what ran before in the process.
  void select() {
    std::set<std::pair<std::uint32_t, std::string_view>> shared;  // group and name
    const std::vector<EventCounts::Entry>& entries = counts().entries();
    for (const EventCounts::Entry& one : entries)
      for (const EventCounts::Entry& other : entries) {
        if (one.group != other.group || (&one == &other && one.fibers < 2)) continue;
        one.own_locks.for_each([&](NameId lock) {
          if (other.own_locks.contains(lock)) shared.emplace(one.group, name_of(lock));
        });
      }
    lock_ = kUnjudgedName;
    if (shared.empty()) return;
    const auto drawn =
        std::next(shared.begin(), random_below(static_cast<std::uint32_t>(shared.size())));
    group_ = drawn->first;
    lock_ = intern_name(drawn->second.data());  // a whole text, from name_of()
  }
  bool is_selected(const Fiber& fiber) const {
    return lock_ != kUnjudgedName && fiber.next_lock == lock_ && fiber.group == group_;
  }
  // Intends any of the fibers that can run and have a selected event ahead.
  void intend_any(const FiberSet& free, const FiberSet& stopped) {
    FiberSet able = stopped;
    free.for_each([&](FiberId id) {
      if (left_[id] > 0) able.insert(id);
    });
    if (!able.empty()) intended_ = weighted(able);
  }
  // A fiber that has more events than it had in the counted run counts as if it had one left.
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
