// LockOrder: records which mutexes were acquired while which were held in one run, by the names of
// the mutexes.
//
// Mutexes with the same name are one node: the same code acquires "reducer" of rank 0 and of rank
// 3. A cycle in the order is a violation, even if no run ever deadlocked in it. Acquiring a second
// mutex with a name that is already held is a violation, too. Threads: one OS thread. Names are
// compared as text and live as long as the process. At most kMaxNames names can differ; all later
// names share the last number and are not judged. Cost: acquire() sets one bit for each held mutex.
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

// Returns the number of a name; equal texts have the same number. The text is copied.
NameId intern_name(const char* name);
const char* name_of(NameId id);

class LockOrder {
 public:
  void reset();

  // `fiber` holds `held` and requests `wanted`.
  void acquire(NameId held, NameId wanted, std::uint32_t fiber) {
    if (after_[held].contains(wanted)) return;
    add(held, wanted, fiber);
  }

  // Returns one line for each cycle: "a -> b (fiber 3) -> a (fiber 5)". Each cycle is listed once.
  std::vector<std::string> violations() const;

 private:
  struct Edge {
    NameId held;
    NameId wanted;
    std::uint32_t fiber;  // the first fiber that acquired them in this order
  };
  void add(NameId held, NameId wanted, std::uint32_t fiber);
  // Returns the edges of a shortest path, or nothing if there is no path.
  std::vector<std::uint32_t> path(NameId from, NameId to) const;

  std::array<IndexSet<kMaxNames / 64>, kMaxNames> after_;
  std::vector<Edge> edges_;  // in the order in which they occurred
};

}  // namespace lockstep::simulation
