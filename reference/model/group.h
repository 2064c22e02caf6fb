// Group: the ranks that share a process group and a reducer, from step to step. All that matters of
// them between two steps is a value, GroupState, which a step takes and gives back. Pure functions,
// but for what they append to the expectation; nothing fails.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reference/expectation.h"
#include "reference/model.h"
#include "reference/model/module_state.h"
#include "reference/model/power_sgd.h"
#include "reference/model/readiness.h"
#include "reference/model/uneven_inputs.h"

namespace lockstep::reference {

struct RankState {
  Gradients gradients;
  ModuleState module;
  std::optional<HookCounts> hooks_expected;  // static mode, after its first synced pass (P11)
  bool replicas_have_buffers = false;        // P15
  std::optional<std::uint32_t> held_from;  // the step whose outputs the rank holds (Backward::held)
};

struct GroupState {
  Ranks survivors;
  std::vector<RankState> ranks;  // by original rank
  std::vector<ExpectedBucket> buckets;
  std::uint32_t layout = 0;                   // theirs, as in ExpectedStep
  std::optional<std::vector<bool>> used_set;  // static mode, after the first synced pass (P11)
  bool has_recorded_pass = false;             // B2
  bool is_window_open = false;                // S3
  std::uint32_t join_root = 0;                // the first rank that trained in the last event (S2)
  PowerState power;
};

// The expectation so far. It has the bits of a tensor once: `written` says by parameter of which
// tensors it has them, and where they begin.
struct ExpectationRecord {
  using Place = std::pair<std::shared_ptr<const Tensor>, std::uint64_t>;
  Expectation expectation;
  std::map<std::uint32_t, std::vector<Place>> written;
};

// A group of these ranks with a new reducer, whose gradients are all undefined (F4).
GroupState make_group(const Setting& setting, const Ranks& survivors);

// The same ranks make another reducer of the same parameters: gradients stay what they are.
GroupState renew_reducer(const Setting& setting, GroupState group);

// All ranks are out of inputs: they take the state of a rank that trained last (S2).
GroupState end_join(const Setting& setting, GroupState group);

// Appends the step to the expectation, and the buckets if they are laid out anew.
GroupState run_step(const Setting& setting, GroupState group, std::uint32_t step,
                    const std::vector<ReadyOrder>& ready_orders, ExpectationRecord& record);

// Appends what all ranks have after a join has ended.
void record_ending(const Setting& setting, GroupState group, ExpectationRecord& record);

}  // namespace lockstep::reference
