// Execution: the steps of one run with what each uses, and the order of the dependent ones
// (happens-before), as vector clocks. It is filled by an Explorer while the run goes on.
//
// Fibers have numbers in the order in which they were spawned, and names that do not depend on that
// order.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "faults/sim/scheduler/fiber.h"
#include "faults/sim/scheduler/object_id.h"

namespace lockstep::simulation {

constexpr std::uint32_t kMaxExplored = 64;  // fibers
constexpr std::uint64_t bit_of(std::uint32_t fiber) { return std::uint64_t{1} << (fiber & 63); }

struct Use {
  std::uint64_t object = 0;
  Access access = Access::kRead;
};
// Whether two steps with these uses, each with one use of an object and ascending, are dependent.
bool conflict(const std::vector<Use>& a, const Use* begin, const Use* end);
void add_uses(std::vector<Use>& all, const std::vector<Use>& more);

class Execution {
 public:
  struct Step {
    std::uint32_t fiber = 0;
    std::uint32_t number = 0;  // of the step among those of its fiber, from 1
    std::uint32_t era = 0;     // how often the time has advanced before it
    std::uint32_t choice = 0;  // the choice point at which it was chosen; kNoChoice without one
    std::uint32_t first_use = 0, last_use = 0;
    std::uint32_t first_wake = 0, last_wake = 0;
  };
  static constexpr std::uint32_t kNoChoice = 0xffff'ffff;
  struct Race {
    std::uint32_t first = 0;  // steps
    std::uint32_t second = 0;
  };

  void clear();
  void on_spawn(FiberId id);
  void on_step(FiberId id, std::uint32_t choice);
  void on_access(std::uint64_t object, Access access) { uses_.push_back({object, access}); }
  void on_wake(FiberId id);
  void on_meet(FiberId id);
  void on_time() { ++era_; }
  // The current step wakes this one of several that wait for a condition variable.
  void on_waiter(std::uint32_t fiber) { waiters_.push_back({steps() - 1, fiber}); }
  // Ends the current step: its uses become ascending, one for each object.
  void close();

  std::uint32_t steps() const { return static_cast<std::uint32_t>(steps_.size()); }
  const Step& step(std::uint32_t index) const { return steps_[index]; }
  struct Waiter {
    std::uint32_t step = 0;
    std::uint32_t fiber = 0;
  };
  const std::vector<Waiter>& waiters() const { return waiters_; }
  std::vector<Use> uses_of(std::uint32_t index) const;
  const Use* uses_begin(std::uint32_t index) const {
    return uses_.data() + steps_[index].first_use;
  }
  const Use* uses_end(std::uint32_t index) const { return uses_.data() + steps_[index].last_use; }
  std::uint32_t fiber_of(FiberId id) const { return fibers_.by_id[id]; }
  FiberId id_of(std::uint32_t fiber) const { return fibers_.ids[fiber]; }
  std::uint32_t fibers() const { return static_cast<std::uint32_t>(fibers_.ids.size()); }
  bool has_too_many() const { return has_too_many_; }
  std::uint64_t name_of(std::uint32_t fiber) const { return fibers_.names[fiber]; }

  // Computes the clocks of the first `count` steps. Returns the races: pairs of dependent steps
  // with no other step between them in the order, whose second step is `from` or later.
  const std::vector<Race>& order(std::uint32_t from, std::uint32_t count);
  // Whether step a comes before step b in every equivalent order. After order().
  bool before(std::uint32_t a, std::uint32_t b) const {
    const Step& step = steps_[a];
    return a == b || steps_[a].era < steps_[b].era ||
           clocks_[b * width_ + step.fiber] >= step.number;
  }
  // A number for the steps and their order; equal for equivalent executions.
  std::uint64_t signature() const;

 private:
  // The steps that used an object last, and those before them that depend on these.
  struct Users {
    std::uint64_t object = 0;
    Access access = Access::kRead;
    std::vector<std::uint32_t> last, earlier;
  };
  struct Fibers {
    std::vector<FiberId> ids;  // by fiber
    std::vector<std::uint64_t> names;
    std::vector<std::uint32_t> children;
    std::array<std::uint32_t, kMaxFibers> by_id{};
    std::uint32_t roots = 0;
  };
  Users& users_of(std::uint64_t object);
  void grow_users();
  void order_step(std::uint32_t index, std::uint32_t from);
  void join(std::uint32_t into, std::uint32_t other);

  std::vector<Step> steps_;
  std::vector<Use> uses_;
  std::vector<std::uint32_t> wakes_;  // fibers, step by step
  std::vector<Waiter> waiters_;
  Fibers fibers_;
  std::uint32_t era_ = 0;
  bool has_too_many_ = false;

  std::size_t width_ = 0;
  std::vector<std::uint32_t> clocks_;   // by step, then by fiber
  std::vector<std::uint32_t> last_of_;  // by fiber: its last step so far
  std::vector<std::uint32_t> waker_of_;
  std::vector<std::uint32_t> numbers_;
  std::vector<Users> users_;  // a hash table; its size is a power of two
  std::size_t used_ = 0;
  std::vector<std::uint32_t> candidates_;
  std::vector<Race> races_;
};

}  // namespace lockstep::simulation
