// LockOrder: which mutexes were taken while which were held, by the mutexes' names, in one run.
//
// Mutexes of one name are one node: "reducer" of rank 0 and of rank 3 are taken by the same code.
// An order that runs in a circle is a violation, also when no run ever deadlocked in it; so is
// taking a second mutex of a name that is already held. Threads: one OS thread. Names are compared
// as text, live as long as the process, and at most kMaxNames differ; what comes after those shares
// the last number and is not judged. Cost: acquire() sets one bit for each mutex held.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "faults/sim/scheduler/index_set.h"

namespace lockstep::simulation {

using NameId = std::uint32_t;
constexpr std::uint32_t kMaxNames = 128;
constexpr NameId kUnjudgedName = kMaxNames - 1;

// The number of a name, the same for equal texts. The text is copied.
NameId intern_name(const char* name);
const char* name_of(NameId id);

class LockOrder {
 public:
  void reset();

  // `fiber` holds `held` and asks for `wanted`.
  void acquire(NameId held, NameId wanted, std::uint32_t fiber) {
    if (after_[held].contains(wanted)) return;
    add(held, wanted, fiber);
  }

  // One line for each circle: "a -> b (fiber 3) -> a (fiber 5)", and each circle once.
  std::vector<std::string> violations() const;

 private:
  struct Edge {
    NameId held;
    NameId wanted;
    std::uint32_t fiber;  // the first that took them so
  };
  void add(NameId held, NameId wanted, std::uint32_t fiber);
  std::vector<std::uint32_t> path(NameId from, NameId to) const;  // edges, shortest; empty if none

  std::array<IndexSet<kMaxNames / 64>, kMaxNames> after_;
  std::vector<Edge> edges_;  // in the order they came up
};

}  // namespace lockstep::simulation
