// Meeting: decides, when all live ranks of a case have come, what happens next. Plain logic; who
// waits and how is the caller's business (Coordinator for threads and fibers, ProcessRanks for
// processes).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/model.h"

namespace lockstep::properties {

// Who trains, in which generation: recoveries begin new ones.
struct Roster {
  std::uint32_t generation = 0;
  std::vector<std::uint32_t>
      members;  // original ranks, ascending; a rank's number in the group is its position
};

// What a meeting of all live ranks decided.
struct Resume {
  bool recover = false;    // a new generation begins; false: everyone came to the end
  std::uint32_t step = 0;  // to go on with; may be the number of steps
  Roster roster;
};

class Meeting {
 public:
  explicit Meeting(std::uint32_t world);

  // `next_step`: the first step that the rank has not begun.
  void arrive(std::uint32_t rank, bool finished, std::uint32_t next_step);
  void leave(std::uint32_t rank);  // for good

  // Once every live rank has arrived: if one of them did not finish, all of them recover, and go on
  // with the highest next step among them. The next meeting begins.
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
