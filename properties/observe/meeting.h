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
  // Original ranks. A rank's number in the group is its position. They ascend, except that ranks
  // that joined later come last.
  std::vector<std::uint32_t> members;
};

// The decision of a meeting of all live ranks.
struct Resume {
  bool recover = false;    // a new generation begins; false: every rank has reached the end
  std::uint32_t step = 0;  // the next step; may be the number of steps
  Roster roster;
};

// What a rank has to know that takes the place of another one, and joins a group that exists: the
// recoveries so far, the last of which begins its first group, and the decision for that.
struct Joining {
  std::vector<reference::Recovery> recoveries;
  Resume resume;
};

class Meeting {
 public:
  explicit Meeting(std::uint32_t world);

  // `next_step`: the first step that the rank has not begun.
  void arrive(std::uint32_t rank, bool finished, std::uint32_t next_step);
  void leave(std::uint32_t rank);  // the rank never returns
  // Another process takes the place of a rank that has left, at the first recovery from now on that
  // follows `recoveries` others.
  void replace(std::uint32_t rank, std::uint32_t recoveries);

  // Decides once every live rank has arrived: if one of them did not finish, all of them recover,
  // and continue with the highest next step among them, together with those that join then. Then
  // the next meeting begins. Ranks that join come after those that stay (F4).
  std::optional<Resume> decide();

  const std::vector<reference::Recovery>& recoveries() const { return recoveries_; }

 private:
  enum class State : std::uint8_t { kTraining, kWaiting, kGone };
  struct Replacement {
    std::uint32_t rank;
    std::uint32_t recoveries;  // that come before
  };
  void take_those_who_join();

  std::vector<State> states_;
  std::vector<std::uint32_t> order_;  // of the ranks in the group
  std::vector<Replacement> joining_;
  bool wants_recovery_ = false;
  std::uint32_t next_step_ = 0;
  std::uint32_t generation_ = 0;
  std::vector<reference::Recovery> recoveries_;
};

}  // namespace lockstep::properties
