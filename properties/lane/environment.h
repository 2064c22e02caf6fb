// RankEnvironment: the world as one rank of a case sees it. Each lane implements it; the training
// loop (training.h) is the same in all. Compiled once per platform, like the reducer.
//
// Threads: visit_node() from any engine worker of the rank, the rest from the rank's own thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "properties/lane/meeting.h"
#include "reducer/base/status.h"
#include "reducer/platform/platform.h"
#include "reducer/reducer.h"

namespace lockstep::inline LOCKSTEP_NS {

using properties::Resume;
using properties::Roster;

class RankEnvironment {
 public:
  virtual ~RankEnvironment() = default;
  virtual std::uint32_t rank() const = 0;  // original

  // The card that the rank's tensors lie on, if the case has one and the lane, too; it outlives
  // them. Null: they lie on the host.
  virtual Device* card() { return nullptr; }

  virtual Result<Membership> connect(const Roster& roster) = 0;
  virtual platform::Duration failure_grace() const = 0;

  virtual void begin_step(std::uint32_t step) = 0;
  // A node of the program, or the user's communication hook, begins to run: may take its time, or
  // throw, as the fault plan says.
  virtual void visit_node() = 0;
  // The fault plan has ended this rank's process: the training loop leaves.
  virtual bool exited() const = 0;

  // Waits for all live ranks. `next_step`: the first step that this rank has not begun.
  virtual Resume meet(bool finished, std::uint32_t next_step) = 0;

  virtual bool detailed() const { return false; }  // see Observation
  // `note` writes down where the rank stands: for a lane that finds that nothing runs any more.
  virtual void watch(std::function<void()> note) { (void)note; }
};

}  // namespace lockstep::inline LOCKSTEP_NS
