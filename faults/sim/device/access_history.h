// AccessHistory: who read and wrote which bytes of one block of memory, as far as a later access
// could still conflict with it. An access that happened before a later write of the same bytes is
// forgotten, and so is a read before a later read: whoever is in no order with the first is in no
// order with the second either, or comes after both.
//
// Threads: none; the device's mutex guards it. Cost: each access is compared with those that are
// kept of its block: a few, in programs that order what they do.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "faults/sim/device/vector_clock.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

// What accesses memory: one submitted operation, or one access of the host.
struct Actor {
  std::size_t line = 0;  // of the vector clocks
  std::uint64_t sequence = 0;
  std::string thread;  // of the host
  std::string operation;
};

struct Access {
  std::shared_ptr<const Actor> actor;
  std::size_t begin = 0;  // bytes from the block's start
  std::size_t end = 0;
  bool is_write = false;
  std::uint64_t allocation = 0;  // that had the block
};

class AccessHistory {
 public:
  // Adds an access that happens after all that is in `clock`; calls conflict(earlier) for each kept
  // one that it races with. Accesses of one actor are in no conflict.
  void add(const Access& access, const VectorClock& clock,
           const std::function<void(const Access& earlier)>& conflict);
  std::size_t kept() const { return kept_.size(); }

 private:
  std::vector<Access> kept_;  // in the order they came
  std::vector<Access> next_;  // of the access that is being added, for its memory
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
