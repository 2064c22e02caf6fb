// StepCalls: the calls that a rank makes in a step, as reference/job.h says, with a real engine and
// a subject. The rank holds outputs of the step before, which may outlive the subject and a
// recovery.
//
// Threads: the one that trains. All arguments of the constructor outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "properties/case/calls.h"
#include "properties/observe/graph_builder.h"
#include "properties/observe/module_state.h"
#include "properties/observe/outputs.h"
#include "properties/observe/step_record.h"
#include "properties/observe/training_checks.h"
#include "properties/observe/training_rank.h"
#include "properties/observe/user_abort.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class StepCalls {
 public:
  // `host` has the tensors that are no parameters'.
  StepCalls(TrainingRank& rank, Device& host, LaneState& state, StepRecord& record,
            TrainingChecks& checks, UserAbort& user);

  void run(const reference::Step& step, properties::ObservedStep& observed);
  // The user may abort or destroy something between two calls. Returns whether the user has
  // aborted the groups.
  bool visit_between(properties::ObservedStep& observed);
  // After a recovery no backward starts from the outputs that the rank holds.
  void let_go_of_roots() {
    for (std::vector<Edge>& roots : held_roots_) roots.clear();
  }

 private:
  void run_calls(const reference::Step& step, const reference::RankPass& pass, Outputs& outputs,
                 properties::ObservedStep& observed);
  Status make_call(const reference::Step& step, const reference::RankPass& pass,
                   const properties::Call& call, Outputs& outputs);
  Status evaluate(const reference::Forward& forward);
  Status run_forward(const reference::Step& step, const reference::RankPass& pass, std::uint32_t f,
                     Outputs& outputs);
  Status sync_gradients(Outputs& outputs);
  Status recompute(const reference::Step& step, const reference::RankPass& pass,
                   properties::ObservedStep& observed);
  Status run_backward(const reference::RankPass& pass, std::uint32_t call, Outputs& outputs);
  void hold(reference::PassKind kind, const reference::RankPass& pass, Outputs outputs);

  TrainingRank& rank_;
  LaneState& state_;
  StepRecord& record_;
  TrainingChecks& checks_;
  UserAbort& user_;
  GraphBuilder builder_;
  Tensor one_;  // every root starts with this gradient
  Outputs held_;
  std::array<std::vector<Edge>, 2> held_roots_;  // under no_sync, and synced: see Backward::held
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
