// RankEnvironment: the interface between the training loop (training.h) and a lane, for one rank of
// a case. Each lane implements it; the training loop is the same in all. It is compiled once per
// platform, like the reducer.
//
// Threads: any engine worker of the rank may call visit_node() and visit_hook(); only the rank's
// own thread calls the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "faults/plan.h"
#include "properties/case/environment.h"
#include "properties/observe/meeting.h"
#include "reducer/base/status.h"
#include "reducer/options.h"
#include "reducer/platform/platform.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using properties::Joining;
using properties::Resume;
using properties::Roster;

// One per reducer of the program. Members that all reducers share are equal in all.
using Memberships = std::vector<Membership>;

// Returns the ranks that a rank trains with. prefix_of() returns the prefix of their keys in a
// store.
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
  virtual std::uint32_t rank() const = 0;  // the original rank
  // Returns what the case says of the environment.
  virtual const properties::Environment& of_case() const {
    static const properties::Environment simplest;
    return simplest;
  }

  // Returns the GPU of the rank's tensors, if both the case and the lane have one; the GPU outlives
  // the tensors. Null means that the tensors are in host memory.
  virtual Device* gpu() { return nullptr; }

  // Without a value the rank is there from the beginning.
  virtual std::optional<Joining> joining() const { return std::nullopt; }

  // The rank is about to connect for the construction (step 0) or reset before `step`.
  virtual void begin_connect(std::uint32_t step) { (void)step; }
  virtual Result<Memberships> connect(const Roster& roster) = 0;
  virtual platform::Duration failure_grace() const = 0;

  virtual void begin_step(std::uint32_t step) = 0;
  // The subject is about to be reset, and goes on with `step`; or to be constructed, in step 0. The
  // next begin_step() ends this.
  virtual void begin_reset(std::uint32_t step) { (void)step; }
  // Whether the lane wants to know what the rank's reducer is doing. set_state() then says it, on
  // any thread of the rank, and one call at a time.
  virtual bool wants_states() const { return false; }
  virtual void set_state(faults::ReducerState state) { (void)state; }
  // Called when a node of the program, or the user's communication hook, begins to run. It may be
  // slow, or throw, as the fault plan says.
  virtual void visit_node() = 0;
  // Called by the user's communication hook in each call of start() and finish(), and when it
  // promises a future. Returns the error with which that call or future must fail, as the fault
  // plan says, or ok.
  virtual Status visit_hook(faults::HookCall call) {
    (void)call;
    return {};
  }
  // Where code of the user runs on the rank, or a collective of the rank begins or has begun:
  // returns the fault by which the user gives up here, as the fault plan says.
  virtual std::optional<faults::Fault> visit_user_place() { return std::nullopt; }
  // visit_node() calls this, too, where the lane has such faults: any thread of the rank may be
  // there. The training loop sets it, and lets the user give up.
  void reach_user_place() const {
    if (at_user_place_) at_user_place_();
  }
  void set_user_place(std::function<void()> at_user_place) {
    at_user_place_ = std::move(at_user_place);
  }
  // Called for each request for memory of tensors on the host. Returns whether it is refused, as
  // the fault plan says.
  virtual bool refuses_memory() { return false; }
  // Returns whether the store of the group keeps all that its ranks write, and gives it to each of
  // them: no fault of the store or of memory is planned.
  virtual bool keeps_records() const { return false; }
  // Returns whether no fault is planned. Ranks fail only because of their program then.
  virtual bool is_undisturbed() const { return false; }
  // Whether the fault plan has ended this rank's process. If so, the training loop returns.
  virtual bool exited() const = 0;

  // Waits for all live ranks. `next_step`: the first step that this rank has not begun.
  virtual Resume meet(bool finished, std::uint32_t next_step) = 0;

  // Whether a rank that is done ends its groups while others still train, if no error is expected.
  virtual bool leaves_at_once() const { return false; }

  // A rank that leaves at once calls this before it ends its groups. In some programs the groups
  // continue without their last rank (F4), which may still be in its last step.
  virtual Status go_on_with_fewer() { return {}; }

  // Whether the lane wants the times of passes (T3). Only a lane with a virtual clock can judge
  // them.
  virtual bool wants_times() const { return false; }
  virtual bool detailed() const { return false; }  // see Observation
  // `note` records the rank's current state. It is for a lane that detects that nothing runs any
  // more.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): a lane keeps it
  virtual void watch(std::function<void()> note) { (void)note; }

 private:
  std::function<void()> at_user_place_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
