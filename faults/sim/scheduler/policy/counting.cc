// Picks as the default policy does, and counts the events of each fiber for the policies that weigh
// fibers by them (urw, surw).
#include <array>
#include <vector>

#include "faults/sim/scheduler/step_observer.h"

namespace lockstep::simulation {
namespace {

class Counting final : public StepObserver {
 public:
  FiberId pick(const Choice& choice) override { return choice.by_default; }
  FiberId pick_waiter(const FiberSet&, FiberId first) override { return first; }

  void on_spawn(const Fiber& fiber, const Fiber* parent) override {
    const std::size_t above = parent == nullptr ? kNobody : by_id_[parent->id];
    by_id_[fiber.id] = family_.size();
    family_.push_back({counts().add_fiber(fiber), above});
  }
  void on_step(const Fiber& fiber) override {
    const NameId lock = fiber.next_lock;
    const std::size_t self = by_id_[fiber.id];
    for (std::size_t i = self; i != kNobody; i = family_[i].parent) {
      EventCounts::Entry& entry = counts().entry(family_[i].entry);
      ++entry.events;
      if (lock == kUnjudgedName) continue;
      ++entry.locks[lock];
      if (i == self && !entry.own_locks.contains(lock)) entry.own_locks.insert(lock);
    }
  }

 protected:
  void restart() override {
    counts().clear();
    family_.clear();
  }

 private:
  static constexpr std::size_t kNobody = ~std::size_t{0};
  struct Member {
    std::size_t entry = 0;   // among the counts
    std::size_t parent = 0;  // among the members; kNobody if the fiber was spawned before the run
  };

  std::vector<Member> family_;                   // all fibers of the run
  std::array<std::size_t, kMaxFibers> by_id_{};  // among them, by the id of a fiber that lives
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_counting() { return std::make_unique<Counting>(); }

}  // namespace lockstep::simulation
