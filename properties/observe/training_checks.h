// TrainingChecks: what a rank tries besides its program, where the case asks for it: attempts that
// must be refused, questions to the subject's own checks, and calls after the end of something. A
// wrong answer goes to the observation; the first one stays.
//
// Threads: the one that trains, while no backward runs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "properties/observe/module_state.h"
#include "properties/observe/step_record.h"
#include "properties/observe/taken_gradients.h"
#include "properties/observe/training_rank.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class TrainingChecks {
 public:
  using Devices = std::vector<std::unique_ptr<HostDevice>>;

  // `devices` are the rank's own, and outlive it.
  TrainingChecks(TrainingRank& rank, const Devices& devices)
      : rank_(rank), taken_(rank.program), devices_(devices) {}

  // The rank has all tensors that it has before it has gradients.
  void begin() { own_bytes_ = tensor_bytes(); }

  // Before the construction or the reset that the program's disagreement names, all ranks try one
  // that must be refused, and meet in a collective of their own on the same group.
  void try_disagreement(const Roster& roster, const Memberships& memberships, LaneState& state);
  // A reset has failed: the reducer refuses work.
  void look_at_failed_reset();

  void begin_step() { taken_.begin(); }
  // A backward has ended well and left its pass open.
  void note_open_pass(const StepRecord& record);
  // A step has ended well. `has_pass`: it had a synced pass that leaves nothing but gradients.
  void end_step(const StepRecord& record, bool has_pass);
  // The outputs of a synced forward outlive its reducer, and their backward is refused (F5), unless
  // an earlier one has used up the graph. `one` is the gradient of each root.
  void try_without_reducer(const reference::Step& step, const reference::RankPass& pass,
                           const std::vector<Edge>& outputs, const Tensor& one);

  // Call this between two passes, in the middle of one, and after a failure.
  void ask_for_diagnosis();
  // Call these after a failure, when the rank has ended its groups. A group that has ended starts
  // no collective, and its first cause stays (process_group.h).
  void ask_for_more();
  void try_ended_group(ProcessGroup& group);

  // Call these when the rank is done. All ranks of a program come to the first one, or none does.
  void try_join_that_differs();
  void look_at_layouts();

 private:
  // Gathers a few bytes of each rank.
  Status gather_bytes(ProcessGroup& group, std::int64_t& sequence);
  std::uint64_t tensor_bytes() const;
  // The subject's own checks, unless there are none, or an answer was wrong before.
  SelfChecks* checks() const;

  TrainingRank& rank_;
  TakenGradients taken_;
  const Devices& devices_;
  std::uint64_t own_bytes_ = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
