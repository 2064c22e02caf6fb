// RankEnvironment: the world as one rank of a case sees it. Each lane implements it; the training
// loop (training.h) is the same in all. Compiled once per platform, like the reducer.
//
// Threads: visit_node() from any engine worker of the rank, the rest from the rank's own thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "properties/lane/meeting.h"
#include "reducer/base/status.h"
#include "reducer/platform/platform.h"
#include "reducer/reducer.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using properties::Resume;
using properties::Roster;

// One for each reducer of the program; what they share is the same in all.
using Memberships = std::vector<Membership>;

// Whom a rank trains with, and where in a store what they share lies.
inline std::vector<std::uint32_t> members_of(const reference::Program& program,
                                             const Roster& roster, std::uint32_t rank) {
  std::vector<std::uint32_t> members = roster.members;
  std::erase_if(members, [&](std::uint32_t other) {
    return reference::group_of(program, other) != reference::group_of(program, rank);
  });
  return members;
}
inline std::string prefix_of(const Roster& roster, std::uint32_t group, std::uint32_t reducer) {
  return "g" + std::to_string(roster.generation) + "/" + std::to_string(group) + "/" +
         std::to_string(reducer);
}

class RankEnvironment {
 public:
  virtual ~RankEnvironment() = default;
  virtual std::uint32_t rank() const = 0;  // original

  // The GPU that the rank's tensors lie on, if the case has one and the lane, too; it outlives
  // them. Null: they lie on the host.
  virtual Device* gpu() { return nullptr; }

  virtual Result<Memberships> connect(const Roster& roster) = 0;
  virtual platform::Duration failure_grace() const = 0;

  virtual void begin_step(std::uint32_t step) = 0;
  // A node of the program, or the user's communication hook, begins to run: may take its time, or
  // throw, as the fault plan says.
  virtual void visit_node() = 0;
  // The fault plan has ended this rank's process: the training loop leaves.
  virtual bool exited() const = 0;

  // Waits for all live ranks. `next_step`: the first step that this rank has not begun.
  virtual Resume meet(bool finished, std::uint32_t next_step) = 0;

  // Whether a rank that is done ends its groups while others still train, where no error is to
  // come.
  virtual bool leaves_at_once() const { return false; }

  // Called by a rank that leaves at once, before it ends its groups: in some programs they go on
  // without their last rank (F4), which may still be in its last step.
  virtual Status go_on_with_fewer() { return {}; }

  virtual bool detailed() const { return false; }  // see Observation
  // `note` writes down where the rank stands: for a lane that finds that nothing runs any more.
  virtual void watch(std::function<void()> note) { (void)note; }
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
