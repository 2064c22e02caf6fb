// AccessHistory: which actors read and wrote which bytes of one block of memory, as far as a later
// access could still conflict with them. An access that happened before a later write of the same
// bytes is forgotten. So is a read that happened before a later read: an access that is unordered
// with the first read is also unordered with the second, or comes after both.
//
// Threads: the device's mutex guards it. Cost: each access is compared with the remembered ones of
// its block. These are few in programs that order what they do.
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

// An actor accesses memory: it is one submitted operation, or one access of the host.
struct Actor {
  std::size_t line = 0;  // its line in the vector clocks
  std::uint64_t sequence = 0;
  std::string thread;  // the thread, for an access of the host
  std::string operation;
};

struct Access {
  std::shared_ptr<const Actor> actor;
  std::size_t begin = 0;  // bytes from the block's start
  std::size_t end = 0;
  bool is_write = false;
  std::uint64_t allocation = 0;  // the allocation that had the block
};

class AccessHistory {
 public:
  // Adds an access that happens after all that is in `clock`. Calls conflict(earlier) for each
  // remembered access that it races with. Accesses of one actor do not conflict.
  void add(const Access& access, const VectorClock& clock,
           const std::function<void(const Access& earlier)>& conflict);
  std::size_t kept() const { return kept_.size(); }

 private:
  std::vector<Access> kept_;  // in the order in which they were added
  std::vector<Access> next_;  // scratch memory of add()
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
