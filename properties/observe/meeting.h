// Meeting: decides what happens next when all live ranks of a case have arrived. It is plain logic;
// the caller implements the waiting (Coordinator for threads and fibers, ProcessRanks for
// processes).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/model.h"

namespace lockstep::properties {

// The ranks that train, and the generation. A recovery begins a new generation.
struct Roster {
  std::uint32_t generation = 0;
  // Original ranks, ascending. A rank's number in the group is its position.
  std::vector<std::uint32_t> members;
};

// The decision of a meeting of all live ranks.
struct Resume {
  bool recover = false;    // a new generation begins; false: every rank has reached the end
  std::uint32_t step = 0;  // the next step; may be the number of steps
  Roster roster;
};

class Meeting {
 public:
  explicit Meeting(std::uint32_t world);

  // `next_step`: the first step that the rank has not begun.
  void arrive(std::uint32_t rank, bool finished, std::uint32_t next_step);
  void leave(std::uint32_t rank);  // the rank never returns

  // Decides once every live rank has arrived: if one of them did not finish, all of them recover,
  // and continue with the highest next step among them. Then the next meeting begins.
  std::optional<Resume> decide();

  const std::vector<reference::Recovery>& recoveries() const { return recoveries_; }

 private:
  enum class State : std::uint8_t { kTraining, kWaiting, kGone };
  std::vector<State> states_;
  bool wants_recovery_ = false;
  std::uint32_t next_step_ = 0;
  std::uint32_t generation_ = 0;
  std::vector<reference::Recovery> recoveries_;
};

}  // namespace lockstep::properties
