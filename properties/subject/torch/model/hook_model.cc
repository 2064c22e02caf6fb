#include "properties/subject/torch/model/hook_model.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <optional>
#include <utility>

#include "properties/subject/torch/model/calls.h"
#include "properties/subject/torch/model/collectives.h"
#include "properties/subject/torch/model/hook_model_state.h"

namespace lockstep::properties::torch_model {
namespace {

constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

}  // namespace

HookModel::HookModel(const Program& program, const TorchOptions& options, const Policies& policies,
                     Expected& out)
    : program_(program),
      options_(options),
      policies_(policies),
      out_(out),
      memory_(program),
      layout_(program, policies_, memory_, out),
      results_(program, memory_),
      graph_(memory_.owners),
      sums_(program, memory_, policies) {
  gradients_.resize(program.world * program.parameters.size());
  elements_.resize(program.world * memory_.total);
  given_.resize(program.world * memory_.total);
  sparse_.entries.resize(gradients_.size());
}

// A new group, with new reducers.
void HookModel::recover(const std::vector<std::uint32_t>& survivors) {
  survivors_ = survivors;
  std::fill(gradients_.begin(), gradients_.end(), Gradient{});
  std::fill(sparse_.entries.begin(), sparse_.entries.end(), Entries{});
  ranks_.assign(program_.world, Rank{});
  for (Rank& rank : ranks_) {
    rank.used.assign(program_.parameters.size(), 0);
    rank.unused = rank.used;
    rank.hooks.assign(program_.parameters.size(), 0);
    rank.begin_pass();
  }
  is_counted_ = false;
  layout_.begin(static_cast<std::uint32_t>(survivors_.size()));
  results_.begin_layout(buckets().size());
}

// The reducer goes on with another group of the same ranks, and gives up the pass that is not
// complete. Returns false if what that leaves is not known.
bool HookModel::update_group() {
  bool is_known = true;
  layout_.expect_rebuild();
  for (const std::uint32_t number : survivors_) {
    Rank& rank = ranks_[number];
    // Views are scaled, a static first pass stays counted, and launched buckets go on.
    if (rank.is_unfinished)
      is_known = is_known && !has_views() && !is_static() &&
                 !are_ready(rank, buckets().front().parameters);
    rank.is_armed = rank.is_unfinished = rank.has_hook = false;
    rank.order.clear();
    if (policies_.update_forgets_local_use && is_dynamic())
      std::fill(rank.used.begin(), rank.used.end(), std::uint8_t{0});
  }
  return is_known;
}

// At the first forward with gradients after the group's first complete pass.
void HookModel::rebuild_if_due(ExpectedStep& expected) {
  const auto is_due = [this](std::uint32_t rank) { return is_rebuild_due(ranks_[rank]); };
  if (std::none_of(survivors_.begin(), survivors_.end(), is_due)) return;
  assert(std::all_of(survivors_.begin(), survivors_.end(), is_due));
  rebuild(expected);
}

void HookModel::rebuild(ExpectedStep& expected) {
  layout_.rebuild(ranks_[survivors_.front()].order);
  results_.begin_layout(buckets().size());
  append_rebuild(memory_.reduced.size(), buckets().size(), expected.collectives);
  for (const std::uint32_t rank : survivors_) {
    ranks_[rank].order.clear();
    for (const std::uint32_t parameter : memory_.reduced) {
      Gradient& moved = gradient(rank, parameter);
      if (!has_views() || !moved.defined || is_sparse(parameter)) continue;
      moved.in_bucket = !is_lazy();  // its memory is of the former layout
      moved.touched = moved.touched || !is_lazy();
    }
  }
}

void HookModel::run(const std::vector<Recovery>& recoveries) {
  std::vector<std::uint32_t> all(program_.world);
  std::iota(all.begin(), all.end(), 0U);
  recover(all);
  out_.bits.clear();
  out_.ending.clear();
  out_.steps.resize(program_.steps.size());
  auto recovery = recoveries.begin();
  for (std::size_t index = 0; index < program_.steps.size(); ++index) {
    for (; recovery != recoveries.end() && recovery->before_step <= index; ++recovery)
      recover(recovery->survivors);
    const bool is_updated = index != 0 && index == options_.update_process_group;
    const bool is_known = !is_updated || update_group();
    run_step(program_.steps[index], out_.steps[index]);
    if (!is_known) leave_open();
    out_.knowledge.push_back(knowledge_);
    if (out_.steps[index].any_error) recover(survivors_);
  }
}

void HookModel::prepare(ExpectedStep& expected) {
  expected = ExpectedStep{};
  expected.ranks.resize(program_.world);
  for (ExpectedRankStep& rank : expected.ranks) {
    rank.present = false;
    rank.gradients.assign(program_.parameters.size(), ExpectedGradient{});
  }
  for (const std::uint32_t rank : survivors_) expected.ranks[rank].present = true;
  sparse_.launched.begin_step(program_.parameters.size());
  for (Gradient& each : gradients_) each.touched = each.reduced = false;
  knowledge_ = {};
  is_raced_.assign(program_.parameters.size(), 0);
  for (Rank& rank : ranks_) rank.begin_step();
}

// A rank that skips the step leaves the others alone in their forward, and they fail there.
bool HookModel::is_alone_at_rebuild(const Step& step, ExpectedStep& expected) {
  const auto skips = [&](std::uint32_t rank) {
    return kind_of(step, pass_of(step, rank)) == PassKind::kNoGrad;
  };
  const auto is_due = [&](std::uint32_t rank) { return is_rebuild_due(ranks_[rank]); };
  expected.any_error = step.kind != PassKind::kNoGrad && std::ranges::any_of(survivors_, skips) &&
                       std::ranges::any_of(survivors_, is_due);
  if (!expected.any_error) return false;
  for (const std::uint32_t rank : survivors_)
    expected.ranks[rank].outcome = skips(rank) ? Outcome::kSuccess : Outcome::kPeerError;
  knowledge_.knows_collectives = false;
  expected.layout = layout_.index();
  record(expected.ranks);
  return true;
}

void HookModel::run_step(const Step& step, ExpectedStep& expected) {
  prepare(expected);
  if (memory_.reduced.empty()) leave_open();  // the wrapper refuses to work for nothing
  // A reduction that nobody waits for may write to it at any time.
  for (const std::uint32_t parameter : memory_.reduced)
    for (const std::uint32_t rank : survivors_)
      if (is_sparse(parameter) && gradient(rank, parameter).loose) leave_open();
  if (is_alone_at_rebuild(step, expected)) return;
  if (step.kind != PassKind::kNoGrad) rebuild_if_due(expected);
  std::optional<Step> absent;
  const auto step_of = [&](std::uint32_t rank) -> const Step& {
    return pass_of(step, rank).absent ? *absent : step;
  };
  for (const std::uint32_t rank : survivors_) {
    const RankPass& pass = pass_of(step, rank);
    if (pass.absent) absent.emplace(step).kind = kind_of(step, pass);
    if (kind_of(step, pass) == PassKind::kNoGrad && pass.skip) continue;
    if (!zeroes_late(pass)) zero(rank, step.zero_grad);
    if (step.kind != PassKind::kNoGrad && !policies_.stays_armed) disarm(pass, ranks_[rank]);
  }
  do {
    for (const std::uint32_t rank : survivors_)
      if (step_of(rank).kind != PassKind::kNoGrad)
        advance(step_of(rank), rank, expected.ranks[rank]);
  } while (finish_pass(step, expected));
  for (const std::uint32_t rank : survivors_) hold_outputs(step, rank, ranks_[rank]);
  expected.layout = layout_.index();
  record(expected.ranks);
}

void HookModel::zero(std::uint32_t rank, ZeroGrad kind) {
  if (kind == ZeroGrad::kKeep) return;
  for (const std::uint32_t parameter : memory_.trained) {
    Gradient& zeroed = gradient(rank, parameter);
    results_.leave(rank, parameter, zeroed, entries(rank, parameter));
    if (kind == ZeroGrad::kUndefine) zeroed = Gradient{};
    zeroed.recorded = false;
    std::fill_n(elements(rank, parameter), memory_.places[parameter].count, 0.0);
    entries(rank, parameter) = {};
    zeroed.shapeless = zeroed.defined && program_.parameters[parameter].sizes.size() > 1;
    if (!policies_.forgets_local_use && !policies_.use_outlives_zero_grad && !is_counted_)
      ranks_[rank].used[parameter] = 0;
  }
}

// Up to where the rank waits for others, to an error, or to the end of its calls.
void HookModel::advance(const Step& step, std::uint32_t number, ExpectedRankStep& expected) {
  Rank& rank = ranks_[number];
  const RankPass& pass = pass_of(step, number);
  while (expected.error == Error::kNone && !is_stopped(rank)) {
    const NextCall next = next_call(pass, rank);
    rank.in_step.is_rebuilding = next == NextCall::kForward && is_rebuild_due(rank);
    if (rank.in_step.is_rebuilding) return;
    if (next == NextCall::kNone) return end_calls(step, number, expected);
    if (next == NextCall::kForward) run_forward(step, number, expected);
    if (next == NextCall::kBackward) run_backward(step, number, expected);
  }
}

void HookModel::run_forward(const Step& step, std::uint32_t number, ExpectedRankStep& expected) {
  Rank& rank = ranks_[number];
  const RankPass& pass = pass_of(step, number);
  const std::uint32_t f = rank.in_step.next_forward++;
  if (rank.is_unfinished) {
    expected.error = Error::kIncomplete;
    expected.error_call = kForwardCall;
    expected.parameters = missing(rank);
    return;
  }
  if (step.kind == PassKind::kSynced && !pass.forwards[f].local) {
    rank.is_armed = true;
    const bool is_further = std::exchange(rank.in_step.has_synced_forward, true);
    if (!is_further || policies_.counts_one_static_forward) ++rank.forwards;
    rank.begin_pass();
    if (is_dynamic()) graph_.find_unused(pass, f, policies_.searches_last_forward, rank.unused);
  }
  if (is_dynamic() || is_first_static(rank)) rank.in_step.whole_forwards |= 1U << f;
}

// The next call, up to the end of the call, or nested call, that completes the pass.
void HookModel::run_backward(const Step& step, std::uint32_t number, ExpectedRankStep& expected) {
  Rank& rank = ranks_[number];
  const RankPass& pass = pass_of(step, number);
  const bool is_in_synced_step = step.kind == PassKind::kSynced;
  const bool is_synced = is_in_synced_step && is_synced_call(pass, rank.in_step.next_call);
  if (!policies_.later_backwards_are_local && is_second_backward(step, number, rank)) {
    expected.error = Error::kSecondBackward;
    expected.error_call = rank.in_step.next_call;
    return;
  }
  if (rank.in_step.next_event == 0 && backward_of(pass, rank.in_step.next_call).zeroes) {
    zero(number, step.zero_grad);
    if (is_in_synced_step && rank.in_step.next_call > 0) leave_open();  // a bucket may be away
  }
  const bool is_beside = !policies_.averages_local_backward && is_in_synced_step && !is_synced;
  const bool is_armed = std::exchange(rank.is_armed, rank.is_armed && !is_beside);
  const bool is_fine = run_call(step, number, expected);
  if (is_beside) rank.is_armed = is_armed;
  if (!is_fine || rank.in_step.is_over) return;
  if (!policies_.stays_out_without_hooks && is_dynamic() && is_synced && !rank.is_unfinished)
    for (const std::uint32_t parameter : memory_.reduced) (void)mark_ready(number, parameter);
}

// The rank has no further call. It is an error if a pass that it ends by hand is not complete.
void HookModel::end_calls(const Step& step, std::uint32_t number, ExpectedRankStep& expected) {
  const Rank& rank = ranks_[number];
  if (kept_outputs(pass_of(step, number)) == 0 || rank.in_step.is_complete) return;
  const bool is_noticed = !policies_.reports_missing_later && rank.is_unfinished;
  if (!is_noticed && endings(step.kind) == 0) return;
  expected.error = Error::kIncomplete;
  expected.error_call = rank.in_step.next_call - (is_noticed ? 1 : 0);
  expected.parameters = missing(rank);
}

// The next call from where it was left. It stops where the reduction is waited for: at the end of
// a nested call that completed the pass, or in a hook of the user's. False: it ends in an error.
bool HookModel::run_call(const Step& step, std::uint32_t number, ExpectedRankStep& expected) {
  Rank& rank = ranks_[number];
  const RankPass& pass = pass_of(step, number);
  const StartedCall started = start_call(step, number, rank);
  if (started.is_left_out) return ++rank.in_step.next_call > 0;
  const std::vector<Event>& events =
      graph_.backward(started.pass_in(pass), started.call, started.whole_forwards);
  const std::uint32_t begun = graph_.whole_forwards_begun();
  const std::size_t first = std::exchange(rank.in_step.next_event, 0);
  std::uint32_t completed_at = kNowhere;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.kind == Event::Kind::kTensor && !sums_.add_tensor(event, number, started.step_key))
      leave_open();
    if (i < first || event.kind == Event::Kind::kTensor) continue;
    if (event.kind == Event::Kind::kEnd) {
      if (event.depth != completed_at || ends_by_hand()) continue;
      rank.in_step.next_event = i + 1;
      return true;
    }
    if (event.defined) add_sum(event, number);
    const bool was_complete = rank.in_step.is_complete;
    if (const Error error = take_hook(number, event); error != Error::kNone) {
      // Its bucket is on its way, perhaps, and what came second is in it or not.
      if (is_sparse(event.parameter) || gradient(number, event.parameter).in_bucket)
        is_raced_[event.parameter] = 1;
      expected.error = error;
      expected.error_call = rank.in_step.next_call;
      expected.parameters = {event.parameter};
      return false;
    }
    if (rank.in_step.is_complete && !was_complete) completed_at = event.depth;
    // The user lets a hook end the pass once all forwards have run.
    const bool has_ending =
        ends_in_hook(step.kind) && rank.in_step.next_forward == pass.forwards.size();
    if (!has_ending || event.parameter != memory_.reduced.front()) continue;
    rank.in_step.next_event = i + 1;
    return end_in_hook(rank, expected);
  }
  // Each forward that the call started at ends it.
  const bool is_local = step.kind == PassKind::kNoSync || has_local_forward(pass);
  if (started.is_held && is_static()) leave_open();
  const bool is_first = is_first_static(rank) && !started.is_held;
  const std::uint32_t ends = !is_first ? 0 : is_local ? begun : 1;
  for (std::uint32_t end = 0; end < ends && expected.error == Error::kNone; ++end)
    if (end == 0 || policies_.repeats_first_static_pass) expected.error = end_first_static(number);
  // The first pass is then ended in a call that had no hook.
  if (policies_.first_static_pass_is_any) {
    if (ends > 0) rank.has_ended_first = true;
    if (ends > 0 && rank.hooked_passes == 0) leave_open();
  } else if (is_static() && !is_first && rank.in_step.whole_forwards > 0) {
    leave_open();
  }
  if (expected.error != Error::kNone) {
    expected.error_call = rank.in_step.next_call;
    return false;
  }
  ++rank.in_step.next_call;
  return true;
}

Expected run(const Program& program, const TorchOptions& options, const Policies& policies,
             const std::vector<Recovery>& recoveries) {
  Expected expected;
  HookModel(program, options, policies, expected).run(recoveries);
  return expected;
}

std::uint32_t modelled_steps(const Expected& expected) {
  std::size_t step = 0;
  while (step < expected.steps.size() && expected.knowledge_of(step).is_modelled) ++step;
  return static_cast<std::uint32_t>(step);
}

}  // namespace lockstep::properties::torch_model
