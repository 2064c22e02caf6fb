// VectorClock: how far each line of execution is known to have advanced. A device has one line for
// the host and one for each stream; every access on a line has a number there, counted from 1. The
// access with number n on line l happened before everything whose clock has at(l) >= n.
//
// Threads: a VectorClock is a value; whoever shares one must guard it. An unknown line is at 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

class VectorClock {
 public:
  std::uint64_t at(std::size_t line) const { return line < parts_.size() ? parts_[line] : 0; }
  void set(std::size_t line, std::uint64_t number) {
    if (line >= parts_.size()) parts_.resize(line + 1);
    parts_[line] = number;
  }
  // Takes the maximum of both clocks on every line.
  void join(const VectorClock& other) {
    if (parts_.size() < other.parts_.size()) parts_.resize(other.parts_.size());
    for (std::size_t line = 0; line < other.parts_.size(); ++line)
      parts_[line] = std::max(parts_[line], other.parts_[line]);
  }

 private:
  std::vector<std::uint64_t> parts_;
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
