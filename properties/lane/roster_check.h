// RosterCheck lets the ranks of a case agree through a store on who recovers, as real ranks do
// (F9), and compares what they agree on with what the coordinator of the harness has decided.
//
// Threads: those of one rank, one at a time. Each rank has a RosterCheck of its own; all of them
// call check() for each recovery in which they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class RosterCheck {
 public:
  RosterCheck(Store& store, std::uint32_t world, std::uint32_t rank);

  // Waits until all `members` are there. Nobody may wait for any other rank.
  void check(std::uint32_t generation, const std::vector<std::uint32_t>& members);
  // A sentence about the first roster that was wrong; empty if there was none.
  const std::string& wrong() const { return wrong_; }

 private:
  Store& store_;
  const std::uint32_t rank_;
  std::int64_t generation_ = kNone;  // of the last roster
  std::vector<std::string> members_;
  std::string wrong_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
