#include "reference/model/group.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "reference/arithmetic.h"
#include "reference/buckets.h"
#include "reference/model/reduce.h"
#include "reference/model/replicas.h"

namespace lockstep::reference {
namespace {

using Collectives = std::vector<ExpectedCollective>;
using Op = ExpectedCollective::Op;

// What the ranks that train start together in one step, in this order.
struct Events {
  bool buffers = false;  // the first forward of a sync window broadcasts them (S3)
  bool rebuild = false;  // B2
  bool pass = false;
};

// What a rank trains in one step.
struct RankStep {
  Calls calls;
  RankReadiness readiness;
};
using RankSteps = std::vector<RankStep>;  // by original rank

GroupState broadcast_state(const Setting& setting, GroupState group, std::uint32_t root) {
  const ModuleState state = group.ranks[root].module;
  for (const std::uint32_t rank : group.survivors)
    group.ranks[rank].module = receive(setting, std::move(group.ranks[rank].module), state);
  return group;
}

// What a new group and a new reducer have in common.
GroupState start_over(const Setting& setting, GroupState group) {
  assert(group.ranks.size() == setting.program.world);
  group.buckets = assign_buckets(setting.program, setting.contract);
  group.layout = 0;
  group.used_set.reset();
  group.has_recorded_pass = group.is_window_open = false;
  group.power.assign(setting.program.parameters.size(), {});
  for (RankState& rank : group.ranks) {
    rank.hooks_expected.reset();
    rank.replicas_have_buffers = false;
  }
  if (group.survivors.empty()) return group;
  const std::uint32_t root = group.survivors.front();
  return broadcast_state(setting, std::move(group), root);
}

std::vector<ExpectedRankStep> blank_ranks(const Setting& setting, const GroupState& group) {
  std::vector<ExpectedRankStep> ranks(setting.program.world);
  for (ExpectedRankStep& each : ranks) {
    each.present = false;
    each.gradients.resize(setting.program.parameters.size());
  }
  for (const std::uint32_t rank : group.survivors) ranks[rank].present = true;
  return ranks;
}

Events events_of(const Setting& setting, const GroupState& group, const Step& step,
                 const Ranks& active) {
  const Replicated& options = setting.options();
  if (active.empty() || step.kind == PassKind::kNoGrad) return {};
  const bool is_synced = step.kind == PassKind::kSynced;
  const bool may_rebuild = options.rebuild && options.pinned == 0 &&
                           options.launch == Launch::kOverlapped && !setting.roles.reduced.empty();
  Events events;
  events.buffers = !group.is_window_open && !options.keep_buffers &&
                   !buffer_chunks(options, setting.tensors).empty();
  events.rebuild = is_synced && may_rebuild && group.has_recorded_pass && group.layout == 0;
  events.pass = is_synced && std::ranges::any_of(step.variants, keeps_a_forward);
  // In a synced step either every variant keeps outputs or none does (normalize()).
  assert(!is_synced || std::ranges::all_of(step.variants, [&](const auto& each) {
    return each.absent || events.pass == keeps_a_forward(each);
  }));
  return events;
}

// False: the join ends with the first event, in an error of all who train.
bool announce(const Setting& setting, GroupState& group, const Ranks& active, const Step& step,
              const Events& events, ExpectedStep& expected) {
  const bool is_forward = events.buffers || events.rebuild;
  if (!is_forward && !events.pass) return true;
  if (setting.options().join != Join::kNone) group.join_root = active.front();
  if (!ends_early(setting.options(), group.survivors, active)) return true;
  expected.collectives = announcement(setting.options(), group.survivors);
  fail_early(active, step, is_forward, expected);
  return false;
}

// Before the forwards of a sync window, and before forwards without gradients outside of one, all
// take what they share; then each forward changes the buffers.
GroupState run_forwards(const Setting& setting, GroupState group, const Ranks& active,
                        const Events& events, const Step& step) {
  if (events.buffers) {
    assert(!active.empty());
    assert(!group.is_window_open);
    const ModuleState root = group.ranks[active.front()].module;
    for (const std::uint32_t rank : group.survivors)
      if (!pass_of(step, rank).skip)
        group.ranks[rank].module =
            receive_buffers(setting, std::move(group.ranks[rank].module), root);
  }
  for (const std::uint32_t rank : active) {
    RankState& state = group.ranks[rank];
    if (!group.is_window_open && !pass_of(step, rank).skip) {
      const bool with_buffers = !state.replicas_have_buffers || !setting.options().keep_buffers;
      state.module = copy_state_to_replicas(setting, with_buffers, std::move(state.module));
      state.replicas_have_buffers = true;
    }
    if (kind_of(step, pass_of(step, rank)) != PassKind::kNoGrad)
      state.module = change_buffers(setting, rank, step, std::move(state.module));
  }
  if (step.kind != PassKind::kNoGrad && !active.empty()) group.is_window_open = true;
  return group;
}

// The order that a run has reported for the step, or that of registration (B2).
std::vector<std::uint32_t> ready_order_of(const Setting& setting, std::uint32_t step,
                                          const std::vector<ReadyOrder>& ready_orders) {
  const std::vector<std::uint32_t>& reduced = setting.roles.reduced;
  const auto is_reported = [&](const ReadyOrder& each) {
    return each.step == step && group_of(setting.program, each.rank) == setting.group;
  };
  const auto found = std::ranges::find_if(ready_orders, is_reported);
  if (found == ready_orders.end()) return reduced;
  std::vector<std::uint32_t> order = found->parameters;
  std::erase_if(order,
                [&](std::uint32_t p) { return !contains(reduced, p); });  // another reducer's
  const bool is_whole = std::ranges::is_permutation(order, reduced);
  return is_whole ? order : reduced;
}

PassRules rules_of(const Setting& setting, const GroupState& group, std::uint32_t rank) {
  const RankState& state = group.ranks[rank];
  const RankPass* held = nullptr;
  if (state.held_from && setting.program.steps[*state.held_from].kind == PassKind::kSynced)
    held = &pass_of(setting.program.steps[*state.held_from], rank);
  return {setting.roles, setting.options(), state.hooks_expected, group.used_set, held};
}

Calls calls_of(const Setting& setting, const Step& step, std::uint32_t rank,
               const RankState& state) {
  const RankPass& pass = pass_of(step, rank);
  Calls calls;
  if (kind_of(step, pass) == PassKind::kNoGrad || kept_outputs(pass) == 0) return calls;
  for (std::uint32_t c = 0; c < call_count(pass); ++c) {
    const Backward& call = backward_of(pass, c);
    if (call.held && !call.held_synced && state.held_from) {
      const Step& before = setting.program.steps[*state.held_from];
      assert(pass_of(before, rank).hold_outputs);
      calls.push_back(
          run_held_backward(setting.roles.owners, before.kind, pass_of(before, rank), call));
    } else {
      calls.push_back(run_backward(setting.roles.owners, pass, c));
    }
  }
  return calls;
}

// One backward call, and what the rank does just before it.
void make_call(const Setting& setting, const Step& step, std::uint32_t rank, const Calls& calls,
               std::uint32_t number, const std::vector<std::uint32_t>& ready_twice,
               RankState& state) {
  const Backward& call = backward_of(pass_of(step, rank), number);
  if (call.zeroes) state.gradients = zero_grad(setting, step.zero_grad, std::move(state.gradients));
  if (call.updates) state.module = train_values(setting, step.key, std::move(state.module));
  const bool starts_from_held = call.held && state.held_from;
  const Step& built_in = starts_from_held ? setting.program.steps[*state.held_from] : step;
  state.gradients = accumulate(setting, rank, built_in.key, calls[number], ready_twice,
                               std::move(state.gradients));
}

// One rank's backward calls, up to those that the pass takes; what local calls add after it comes
// later (train_on).
RankStep train_rank(const Setting& setting, const PassRules& rules, const Step& step,
                    std::uint32_t rank, RankState& state) {
  const RankPass& pass = pass_of(step, rank);
  if (!pass.skip && !zeroes_late(pass))
    state.gradients = zero_grad(setting, step.zero_grad, std::move(state.gradients));
  RankStep trained;
  trained.calls = calls_of(setting, step, rank, state);
  const bool is_checked = kind_of(step, pass) == PassKind::kSynced && !trained.calls.empty();
  trained.readiness = is_checked ? readiness(rules, pass, trained.calls, state.gradients)
                                 : local_readiness(state.gradients.size(), trained.calls);
  const std::uint32_t reduced = trained.readiness.calls_reduced;
  assert(reduced <= trained.readiness.calls_run);
  assert(trained.readiness.calls_run <= trained.calls.size());
  const std::vector<std::uint32_t> ready_twice = trained.readiness.ready_twice();
  for (std::uint32_t c = 0; c < reduced; ++c)
    make_call(setting, step, rank, trained.calls, c,
              c + 1 == reduced ? ready_twice : std::vector<std::uint32_t>{}, state);
  return trained;
}

RankSteps train_ranks(const Setting& setting, GroupState& group, const Ranks& active,
                      const Step& step) {
  for (RankState& state : group.ranks)
    for (Gradient& gradient : state.gradients) gradient.is_touched = gradient.is_reduced = false;
  RankSteps ranks(setting.program.world);
  for (const std::uint32_t rank : active)
    ranks[rank] =
        train_rank(setting, rules_of(setting, group, rank), step, rank, group.ranks[rank]);
  return ranks;
}

// The local calls that come when the pass is complete add to the results.
void train_on(const Setting& setting, GroupState& group, const Ranks& active, const Step& step,
              const RankSteps& ranks) {
  for (const std::uint32_t rank : active) {
    const auto& [calls, readiness] = ranks[rank];
    for (std::uint32_t c = readiness.calls_reduced; c < readiness.calls_run; ++c)
      make_call(setting, step, rank, calls, c, {}, group.ranks[rank]);
  }
}

// An error after the end of the pass (P7) is reached only if the pass ends, which needs the buckets
// of all others; every other error comes whatever the others do.
void write_outcome(const RankReadiness& rank, bool is_blocked, ExpectedRankStep& expected) {
  expected.outcome = is_blocked ? Outcome::kPeerError : Outcome::kSuccessOrPeerError;
  assert(expected.present);
  assert(!rank.is_complete || rank.error == Error::kNone || rank.error == Error::kSecondBackward);
  const bool is_prevented = is_blocked && rank.is_complete;
  if (rank.error == Error::kNone || is_prevented) return;
  expected.outcome = Outcome::kOwnError;
  expected.error = rank.error;
  expected.error_call = rank.error_call;
  expected.parameters = rank.parameters;
  expected.requiring = rank.requiring;
}

// What the errors of single ranks, and an absent one, mean for all. True: some rank withholds what
// the others need. An absent rank itself needs nobody, and raises at most what a peer does.
bool write_outcomes(const Setting& setting, const GroupState& group, const Ranks& active,
                    const Step& step, const RankSteps& ranks, ExpectedStep& expected) {
  assert(ranks.size() == expected.ranks.size());
  bool is_blocked = false;
  bool any_own = false;
  std::optional<std::uint32_t> absent;
  for (const std::uint32_t rank : active) {
    const RankReadiness& readiness = ranks[rank].readiness;
    if (pass_of(step, rank).absent) {
      absent = rank;
      expected.any_error = true;
      is_blocked = has_collectives(rules_of(setting, group, rank), group.buckets) || is_blocked;
    }
    if (readiness.error == Error::kNone) continue;
    expected.any_error = any_own = true;
    if (readiness.is_complete) continue;
    const PassRules rules = rules_of(setting, group, rank);
    is_blocked = withholds_buckets(rules, group.buckets, readiness) || is_blocked;
  }
  for (const std::uint32_t rank : active)
    if (expected.any_error) write_outcome(ranks[rank].readiness, is_blocked, expected.ranks[rank]);
  if (absent)
    expected.ranks[*absent].outcome = any_own ? Outcome::kSuccessOrPeerError : Outcome::kSuccess;
  return is_blocked;
}

Contributors contributors_of(const GroupState& group, const Ranks& active) {
  Contributors contributors;
  for (const std::uint32_t rank : group.survivors)
    contributors.push_back(contains(active, rank) ? &group.ranks[rank].gradients : nullptr);
  return contributors;
}

// All ranks take the results; the gradients of further replicas are undefined then (P15).
void take_results(const Setting& setting, std::vector<Reduced> results, GroupState& group) {
  for (Reduced& each : results) {
    assert(each.tensors.size() == 1 || each.tensors.size() == group.survivors.size());
    assert(contains(setting.roles.reduced, each.parameter));
    Gradient reduced;
    reduced.in_bucket = setting.options().views && !setting.parameter(each.parameter).sparse;
    reduced.is_order_dependent = each.is_order_dependent;
    reduced.is_touched = reduced.is_reduced = true;
    for (std::size_t position = 0; position < group.survivors.size(); ++position) {
      Gradients& gradients = group.ranks[group.survivors[position]].gradients;
      for (const std::uint32_t part : setting.roles.replicas[each.parameter]) gradients[part] = {};
      if (position < each.tensors.size())
        reduced.tensor = std::make_shared<const Tensor>(std::move(each.tensors[position]));
      gradients[each.parameter] = reduced;
    }
  }
}

// In plain mode every parameter is reduced; else those that some rank used, in static mode in the
// first synced pass (G5, G8, P11). An absent rank, without which there was nothing to start, keeps
// what it has.
void reduce_pass(const Setting& setting, GroupState& group, const Ranks& active, const Step& step) {
  const Contributors contributors = contributors_of(group, active);
  const std::uint32_t divisor = divisor_of(setting.options(), group.survivors, active);
  std::vector<bool> is_reduced =
      group.used_set ? *group.used_set : used_by_some(setting, contributors);
  assert(is_reduced.size() == setting.program.parameters.size());
  if (setting.options().mode == Mode::kStatic) group.used_set = is_reduced;
  if (setting.options().mode == Mode::kPlain)
    for (const std::uint32_t parameter : setting.roles.reduced) is_reduced[parameter] = true;
  std::vector<std::pair<std::uint32_t, Gradients>> of_absent;
  for (const std::uint32_t rank : active)
    if (pass_of(step, rank).absent) of_absent.emplace_back(rank, group.ranks[rank].gradients);
  for (const ExpectedBucket& bucket : group.buckets)
    take_results(setting,
                 reduce_bucket(setting, bucket, divisor, is_reduced, contributors, group.power),
                 group);
  for (auto& [rank, gradients] : of_absent) group.ranks[rank].gradients = std::move(gradients);
}

// The buckets and the usage map of a pass, in order (T2).
Collectives collectives_of_pass(const Setting& setting, const GroupState& group,
                                const Ranks& active) {
  const ExpectedCollective usage{Op::kAllReduceUsage, 0, setting.roles.reduced.size()};
  const Contributors contributors = contributors_of(group, active);
  Collectives first;
  Collectives after_usage;
  const Mode mode = setting.options().mode;
  if (mode == Mode::kStatic && !group.used_set && usage.count > 0) first.push_back(usage);
  for (std::uint32_t b = 0; b < group.buckets.size(); ++b) {
    const ExpectedBucket& bucket = group.buckets[b];
    const std::uint32_t p = bucket.parameters[0];
    assert(bucket.sparse == setting.parameter(p).sparse);
    if (bucket.sparse) {
      first.push_back({Op::kGatherSparse, b, sizeof(std::uint64_t)});  // the rows of each rank
      for (const ExpectedCollective& each :
           gather_rows(b, setting.parameter(p), sparse_contributions(setting, contributors, p)))
        after_usage.push_back(each);
    } else if (uses_power_sgd(setting, bucket)) {
      const auto [first_count, second_count] = power_sum_counts(setting, bucket);
      first.push_back({Op::kAllReduceBucket, b, first_count});
      after_usage.push_back({Op::kAllReduceBucket, b, second_count});
    } else if (setting.options().hook_result != HookResult::kLocal) {
      const std::uint32_t parts = parts_of(bucket.dtype);
      first.push_back(
          {Op::kAllReduceBucket, b, bucket.count * parts,
           parts > 1 ? DType::kFloat32 : wire_dtype(setting.options().hook, bucket.dtype)});
    }
  }
  if (mode == Mode::kDynamic && usage.count > 0) first.push_back(usage);
  first.insert(first.end(), after_usage.begin(), after_usage.end());
  return first;
}

// Everything that the ranks start together in a step, announcements included (T2).
Collectives collectives_of(const Setting& setting, const GroupState& group, const Ranks& active,
                           const Events& events) {
  assert(!active.empty() || !(events.buffers || events.rebuild || events.pass));
  Collectives all;
  const auto append = [&](const Collectives& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  const Collectives announced = announcement(setting.options(), group.survivors);
  if (events.buffers) {
    append(announced);
    for (const std::uint64_t bytes : buffer_chunks(setting.options(), setting.tensors))
      all.push_back({Op::kBroadcastBuffers, 0, bytes});
  }
  if (events.rebuild) {
    append(announced);
    all.push_back({Op::kBroadcastOrder, 0, setting.roles.reduced.size()});
  }
  if (events.pass) {
    append(announced);
    append(collectives_of_pass(setting, group, active));
  }
  return all;
}

// What is left of a completed pass, but for gradients.
GroupState close_pass(const Setting& setting, GroupState group, const Ranks& active,
                      const Step& step, const RankSteps& ranks) {
  assert(!active.empty());
  for (const std::uint32_t rank : active) {
    if (pass_of(step, rank).absent) continue;
    RankState& state = group.ranks[rank];
    if (setting.options().mode == Mode::kStatic && !state.hooks_expected)
      state.hooks_expected = ranks[rank].readiness.hooks_run;
    state.module = train_values(setting, step.key, std::move(state.module));
  }
  group.has_recorded_pass = group.has_recorded_pass || active.size() == group.survivors.size();
  group.is_window_open = false;
  return group;
}

// Where the bits of the parameter's tensor begin. The latest tensors are the likeliest to be asked
// for.
std::uint64_t offset_of(const Setting& setting, std::uint32_t p,
                        const std::shared_ptr<const Tensor>& tensor, ExpectationRecord& record) {
  assert(tensor != nullptr);
  auto& written = record.written[p];
  const auto found = std::find_if(written.rbegin(), written.rend(),
                                  [&](const auto& each) { return each.first == tensor; });
  if (found != written.rend()) return found->second;
  std::vector<std::uint64_t>& bits = record.expectation.bits;
  const std::uint64_t offset = bits.size();
  written.emplace_back(tensor, offset);
  if (setting.parameter(p).sparse) return append_bits(setting.parameter(p), *tensor, bits);
  const std::vector<std::uint32_t>& positions = setting.roles.positions[p];
  assert(tensor->values.size() == positions.size());
  bits.resize(offset + positions.size());
  round_values(setting.parameter(p).dtype, bits.data() + offset, tensor->values.data(),
               positions.data(), positions.size());
  return offset;
}

// What a rank has after a step. `is_moved`: the buckets were laid out anew.
void record_rank(const Setting& setting, const RankState& state,
                 const std::vector<bool>& is_ambiguous, bool is_moved, ExpectationRecord& record,
                 ExpectedRankStep& expected) {
  assert(expected.present);
  assert(state.gradients.size() == expected.gradients.size());
  expected.state = hashes_of(state.module);
  for (std::uint32_t p = 0; p < setting.roles.owners.size(); ++p) {
    const std::uint32_t owner = setting.roles.owners[p];
    if (owner == kNotTrained) continue;
    const Gradient& gradient = state.gradients[owner];
    assert(gradient.tensor || !gradient.in_bucket);
    ExpectedGradient& written = expected.gradients[p];
    written.known = !is_ambiguous[owner] && !gradient.is_order_dependent;
    written.reduced = gradient.is_reduced;
    written.in_bucket = gradient.in_bucket;
    written.defined = gradient.tensor != nullptr;
    if (!written.defined) continue;
    written.untouched =
        !gradient.is_touched && !gradient.is_misplaced && !(is_moved && gradient.in_bucket);
    written.offset = offset_of(setting, owner, gradient.tensor, record);
  }
}

}  // namespace

GroupState make_group(const Setting& setting, const Ranks& survivors) {
  GroupState group;
  group.ranks.resize(setting.program.world);
  for (RankState& rank : group.ranks) rank.gradients.resize(setting.program.parameters.size());
  for (const std::uint32_t rank : survivors) {
    assert(rank < setting.program.world);
    assert(!contains(group.survivors, rank));
    if (group_of(setting.program, rank) != setting.group) continue;
    group.survivors.push_back(rank);
    group.ranks[rank].module = initial_state(setting, rank);
  }
  if (!group.survivors.empty()) group.join_root = group.survivors.front();
  return start_over(setting, std::move(group));
}

GroupState renew_reducer(const Setting& setting, GroupState group) {
  for (RankState& rank : group.ranks)
    for (Gradient& gradient : rank.gradients) gradient.in_bucket = false;
  return start_over(setting, std::move(group));
}

GroupState end_join(const Setting& setting, GroupState group) {
  if (group.survivors.empty()) return group;
  const std::uint32_t root = std::exchange(group.join_root, group.survivors.front());
  group.is_window_open = false;
  return broadcast_state(setting, std::move(group), root);
}

GroupState run_step(const Setting& setting, GroupState group, std::uint32_t index,
                    const std::vector<ReadyOrder>& ready_orders, ExpectationRecord& record) {
  assert(index < setting.program.steps.size());
  assert(index == record.expectation.steps.size());
  const Step& step = setting.program.steps[index];
  const Ranks active = ranks_with_inputs(setting.program, group.survivors, index);
  const Events events = events_of(setting, group, step, active);
  ExpectedStep& expected = record.expectation.steps.emplace_back();
  expected.layout = group.layout;
  expected.ranks = blank_ranks(setting, group);
  if (!announce(setting, group, active, step, events, expected)) return group;
  group = run_forwards(setting, std::move(group), active, events, step);
  if (events.rebuild) {
    const std::vector<std::uint32_t> order = ready_order_of(setting, index, ready_orders);
    group.buckets = assign_buckets(setting.program, setting.contract, &order);
    record.expectation.rebuilt.push_back(group.buckets);
    expected.layout = group.layout = static_cast<std::uint32_t>(record.expectation.rebuilt.size());
  }
  const RankSteps ranks = train_ranks(setting, group, active, step);
  expected.collectives = collectives_of(setting, group, active, events);
  if (events.pass) {
    expected.is_reduced = true;
    if (!write_outcomes(setting, group, active, step, ranks, expected))
      reduce_pass(setting, group, active, step);
    train_on(setting, group, active, step, ranks);
    group = close_pass(setting, std::move(group), active, step, ranks);
  }
  for (const std::uint32_t rank : active) {
    const RankPass& pass = pass_of(step, rank);
    if (!pass.skip) group.ranks[rank].held_from.reset();
    if (pass.hold_outputs) group.ranks[rank].held_from = index;
  }
  std::vector<bool> is_ambiguous(setting.program.parameters.size());
  for (const RankStep& each : ranks)
    for (const std::uint32_t p : each.readiness.ambiguous) is_ambiguous[p] = true;
  for (const std::uint32_t rank : group.survivors) {
    const RankPass& pass = pass_of(step, rank);
    const bool is_behind =
        events.rebuild && pass.absent && kind_of(step, pass) != PassKind::kSynced;
    if (is_behind)  // its buckets are still the old ones
      for (Gradient& gradient : group.ranks[rank].gradients) gradient.in_bucket = false;
    record_rank(setting, group.ranks[rank], is_ambiguous, events.rebuild && !is_behind, record,
                expected.ranks[rank]);
  }
  return group;
}

void record_ending(const Setting& setting, GroupState group, ExpectationRecord& record) {
  assert(record.expectation.ending.empty());
  const std::vector<bool> none(setting.program.parameters.size());
  record.expectation.ending = blank_ranks(setting, group);
  for (RankState& state : group.ranks)
    for (Gradient& gradient : state.gradients) {
      gradient.is_touched = true;
      gradient.is_reduced = false;
    }
  for (const std::uint32_t rank : group.survivors)
    record_rank(setting, group.ranks[rank], none, false, record, record.expectation.ending[rank]);
}

}  // namespace lockstep::reference
