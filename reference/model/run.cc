#include <algorithm>
#include <cassert>
#include <utility>

#include "reference/model.h"
#include "reference/model/group.h"
#include "reference/model/multi_reducer.h"

namespace lockstep::reference {
namespace {

// One reducer in one group of ranks, and what is expected of it.
struct ReducerOfGroup {
  Setting setting;
  GroupState group;
  ExpectationRecord record;
};
using Reducers = std::vector<ReducerOfGroup>;

void make_groups(Reducers& shares, const Ranks& survivors) {
  for (ReducerOfGroup& share : shares) share.group = make_group(share.setting, survivors);
}

// After an own error in one of the shares, all recover.
void run_step(Reducers& shares, std::uint32_t step, const Ranks& survivors,
              const std::vector<ReadyOrder>& ready_orders) {
  bool any_error = false;
  for (ReducerOfGroup& share : shares) {
    assert(share.record.expectation.steps.size() == step);
    const Program& program = share.setting.program;
    if (step > 0 && step == program.rejoin_step)
      share.group = end_join(share.setting, std::move(share.group));
    if (step > 0 && step == program.recreate_before_step)
      share.group = renew_reducer(share.setting, std::move(share.group));
    share.group = run_step(share.setting, std::move(share.group), step, ready_orders, share.record);
    any_error = any_error || share.record.expectation.steps.back().any_error;
  }
  if (any_error) make_groups(shares, survivors);
}

void run_all(const Program& program, Reducers& shares, const std::vector<Recovery>& recoveries,
             const std::vector<ReadyOrder>& ready_orders) {
  Ranks survivors;
  for (std::uint32_t rank = 0; rank < program.world; ++rank) survivors.push_back(rank);
  make_groups(shares, survivors);
  for (ReducerOfGroup& share : shares) share.record.expectation.buckets = share.group.buckets;
  assert(std::ranges::is_sorted(recoveries, {}, &Recovery::before_step));
  auto recovery = recoveries.begin();
  const auto recover_before = [&](std::size_t step) {
    for (; recovery != recoveries.end() && recovery->before_step <= step; ++recovery) {
      survivors = recovery->survivors;
      make_groups(shares, survivors);
    }
  };
  for (std::uint32_t step = 0; step < program.steps.size(); ++step) {
    recover_before(step);
    run_step(shares, step, survivors, ready_orders);
  }
  recover_before(~std::size_t{0});
  if (program.options.join == Join::kNone) return;
  for (ReducerOfGroup& share : shares) {
    share.group = end_join(share.setting, std::move(share.group));
    record_ending(share.setting, share.group, share.record);
  }
}

}  // namespace

Expectation run(const Program& program, const Contract& contract,
                const std::vector<Recovery>& recoveries,
                const std::vector<ReadyOrder>& ready_orders) {
  assert(program.world >= 1);
  assert(program.world <= kMaxWorld);
  const std::uint32_t reducers = reducer_count(program);
  const std::uint32_t groups = group_count(program);
  Reducers shares;
  for (std::uint32_t group = 0; group < groups; ++group)
    for (std::uint32_t reducer = 0; reducer < reducers; ++reducer)
      shares.push_back({make_setting(share_of(program, reducer), contract, group), {}, {}});
  run_all(program, shares, recoveries, ready_orders);
  if (shares.size() == 1) return std::move(shares.front().record.expectation);
  Expectation expectation;
  for (ReducerOfGroup& share : shares)
    expectation.shares.push_back(std::move(share.record.expectation));
  merge_expectations(program, expectation);
  return expectation;
}

}  // namespace lockstep::reference
