#include "properties/subject/torch/model/hook_model.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "properties/subject/torch/model/averaging.h"
#include "properties/subject/torch/model/bucket_layout.h"
#include "properties/subject/torch/model/call_sums.h"
#include "properties/subject/torch/model/calls.h"
#include "properties/subject/torch/model/collectives.h"
#include "properties/subject/torch/model/finalization.h"
#include "properties/subject/torch/model/gloo_sum.h"
#include "properties/subject/torch/model/graph.h"
#include "properties/subject/torch/model/last_results.h"
#include "properties/subject/torch/model/merged_entries.h"
#include "properties/subject/torch/model/parameter_memory.h"
#include "properties/subject/torch/model/rank_state.h"
#include "properties/subject/torch/model/sparse_launches.h"
#include "properties/subject/torch/model/usage_map.h"
#include "reference/arithmetic.h"
#include "reference/buckets.h"
#include "reference/order.h"
#include "reference/sparse.h"
#include "reference/values.h"

namespace lockstep::properties::torch_model {
using namespace reference;  // NOLINT: the vocabulary of programs
namespace {
constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

class HookModel {
 public:
  HookModel(const Program& program, const Policies& policies, Expectation& out);
  void run(const std::vector<Recovery>& recoveries);

 private:
  void recover(const std::vector<std::uint32_t>& survivors);
  bool update_group();
  void rebuild_if_due(ExpectedStep& expected);
  void rebuild(ExpectedStep& expected);
  void prepare(ExpectedStep& expected);
  void run_step(const Step& step, ExpectedStep& expected);
  void zero(std::uint32_t rank, ZeroGrad kind);
  void advance(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  void run_forward(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  void run_backward(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  void end_calls(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  bool run_call(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  Error take_hook(std::uint32_t rank, const Event& event);
  Error mark_by_hook(std::uint32_t rank, std::uint32_t parameter);
  Error end_first_static(std::uint32_t rank);
  Error mark_ready(std::uint32_t rank, std::uint32_t parameter);
  void give(std::uint32_t rank, std::uint32_t parameter);
  void give_whole(std::uint32_t rank, std::uint32_t bucket);
  void allocate(std::uint32_t rank, std::uint32_t bucket);
  void give_entries(std::uint32_t rank, std::uint32_t parameter);
  void note_launch(std::uint32_t rank, std::uint32_t parameter);
  void add_sum(const Event& event, std::uint32_t rank);
  void add_entries(std::uint32_t parameter, Entries& into, const Entries& next);
  bool end_in_hook(Rank& rank, ExpectedRankStep& expected) const;
  bool finish_pass(const Step& step, ExpectedStep& expected);
  bool finish_rebuild(ExpectedStep& expected);
  void leave_loose(std::uint32_t rank);
  void end_twice(ExpectedStep& expected);
  bool blocks_others(std::uint32_t rank, ExpectedStep& expected) const;
  void list_collectives(ExpectedStep& expected) const;
  void reduce(ExpectedStep& expected);
  bool is_skipped(std::uint32_t bucket) const;
  void leave_out(std::uint32_t parameter);
  void reduce_one(std::uint32_t parameter);
  void reduce_entries(std::uint32_t parameter);
  void end_reduction(std::uint32_t parameter);
  void record(std::vector<ExpectedRankStep>& ranks);

  Gradient& gradient(std::uint32_t rank, std::uint32_t parameter) {
    return gradients_[rank * program_.parameters.size() + parameter];
  }
  double* elements(std::uint32_t rank, std::uint32_t parameter) {
    return elements_.data() + rank * memory_.total + memory_.places[parameter].start;
  }
  Entries& entries(std::uint32_t rank, std::uint32_t parameter) {
    return entries_[rank * program_.parameters.size() + parameter];
  }
  double* given(std::uint32_t rank, std::uint32_t parameter) {
    return given_.data() + rank * memory_.total + memory_.places[parameter].start;
  }
  // Returns whether PyTorch counts the parameter as used on this rank when the pass ends.
  bool takes(std::uint32_t rank, std::uint32_t parameter) const {
    return ranks_[rank].takes[parameter] != 0;
  }
  bool is_dynamic() const { return program_.options.mode == Mode::kDynamic; }
  bool is_sparse(std::uint32_t parameter) const { return program_.parameters[parameter].sparse; }
  bool is_static() const { return program_.options.mode == Mode::kStatic; }
  // Whether a backward now belongs to the first pass.
  bool is_first_static(const Rank& rank) const {
    if (!policies_.first_static_pass_is_any) return is_static() && rank.forwards == 1;
    return is_static() && !rank.has_ended_first;
  }
  bool counts_hooks(const Rank& rank) const {
    if (!policies_.first_static_pass_is_any) return is_first_static(rank);
    return is_static() && rank.hooked_passes == 1;
  }
  Hook hook() const { return averaging_hook(program_.options); }
  bool has_views() const { return program_.options.views; }
  bool is_lazy() const { return torch_model::is_lazy(program_.options, policies_); }
  bool is_batched() const { return torch_model::is_batched(program_.options, policies_); }
  bool ends_by_hand() const { return torch_model::ends_by_hand(program_.options); }
  // Returns whether a hook of the user's ends a pass of this kind. Before the buckets are rebuilt
  // none does, as should_finalize_after_backward() asks for a call after backward then.
  bool ends_in_hook(PassKind kind) const {
    return may_end_in_hook(program_.options, kind) && !memory_.reduced.empty() &&
           !layout_.may_rebuild();
  }
  std::uint32_t endings(PassKind kind) const {
    return endings_after(program_.options, kind, ends_in_hook(kind));
  }
  // Returns whether the rank has launched all buckets, and waits for their sums in this step. A
  // rank whose pass nobody ends does not wait.
  bool is_waiting(const Rank& rank, PassKind kind) const {
    return rank.is_complete && !rank.is_over &&
           (!ends_by_hand() || rank.is_in_hook || endings(kind) > 0);
  }
  bool is_rebuild_due(const Rank& rank) const {
    return layout_.may_rebuild() && !rank.is_unfinished && !rank.order.empty();
  }
  // Returns whether a call of the rank waits: one who ends passes by hand goes on with the calls.
  bool is_stopped(const Rank& rank) const {
    return !rank.is_over && (ends_by_hand() ? rank.is_in_hook : rank.is_complete);
  }
  const std::vector<ExpectedBucket>& buckets() const { return layout_.buckets(); }
  std::vector<std::uint32_t> missing(const Rank& rank) const {
    return not_ready(rank, memory_.reduced);
  }

  const Program& program_;
  const Policies policies_;
  Expectation& out_;
  ParameterMemory memory_;
  BucketLayout layout_;
  LastResults results_;
  Graph graph_;

  std::vector<std::uint32_t> survivors_;
  std::vector<Rank> ranks_;
  std::vector<Gradient> gradients_;
  std::vector<double> elements_;
  std::vector<double> given_;  // what is in the buckets, by rank
  CallSums sums_;
  std::vector<Entries> entries_;        // sparse gradients, by rank and parameter
  SparseLaunches launched_;             // in this step
  bool is_open_ = false;                // the model cannot tell what comes of this step
  std::vector<std::uint8_t> is_raced_;  // by parameter, in this step
  bool is_counted_ = false;             // static mode: the first pass is over
};

HookModel::HookModel(const Program& program, const Policies& policies, Expectation& out)
    : program_(program),
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
  entries_.resize(gradients_.size());
}

// A new group, with new reducers.
void HookModel::recover(const std::vector<std::uint32_t>& survivors) {
  survivors_ = survivors;
  std::fill(gradients_.begin(), gradients_.end(), Gradient{});
  std::fill(entries_.begin(), entries_.end(), Entries{});
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
    const bool is_updated = index != 0 && index == program_.options.update_process_group;
    const bool is_known = !is_updated || update_group();
    run_step(program_.steps[index], out_.steps[index]);
    out_.steps[index].is_modelled = out_.steps[index].is_modelled && is_known;
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
  launched_.begin_step(program_.parameters.size());
  for (Gradient& each : gradients_) each.touched = each.reduced = false;
  is_open_ = false;
  is_raced_.assign(program_.parameters.size(), 0);
  for (Rank& rank : ranks_) rank.begin_step();
}

void HookModel::run_step(const Step& step, ExpectedStep& expected) {
  prepare(expected);
  expected.is_modelled = !memory_.reduced.empty();  // the wrapper refuses to work for nothing
  // A reduction that nobody waits for may write to it at any time.
  for (const std::uint32_t parameter : memory_.reduced)
    for (const std::uint32_t rank : survivors_)
      if (is_sparse(parameter) && gradient(rank, parameter).loose) expected.is_modelled = false;
  if (step.kind != PassKind::kNoGrad) rebuild_if_due(expected);
  for (const std::uint32_t rank : survivors_) {
    const RankPass& pass = pass_of(step, rank);
    if (step.kind == PassKind::kNoGrad && pass.skip) continue;
    if (!zeroes_late(pass)) zero(rank, step.zero_grad);
    if (step.kind != PassKind::kNoGrad && !policies_.stays_armed) disarm(pass, ranks_[rank]);
  }
  do {
    for (const std::uint32_t rank : survivors_)
      if (step.kind != PassKind::kNoGrad) advance(step, rank, expected.ranks[rank]);
  } while (finish_pass(step, expected));
  for (const std::uint32_t rank : survivors_) hold_outputs(step, rank, ranks_[rank]);
  expected.layout = layout_.index();
  expected.is_modelled = expected.is_modelled && !is_open_;
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
    rank.is_rebuilding = next == NextCall::kForward && is_rebuild_due(rank);
    if (rank.is_rebuilding) return;
    if (next == NextCall::kNone) return end_calls(step, number, expected);
    if (next == NextCall::kForward) run_forward(step, number, expected);
    if (next == NextCall::kBackward) run_backward(step, number, expected);
  }
}

void HookModel::run_forward(const Step& step, std::uint32_t number, ExpectedRankStep& expected) {
  Rank& rank = ranks_[number];
  const RankPass& pass = pass_of(step, number);
  const std::uint32_t f = rank.next_forward++;
  if (rank.is_unfinished) {
    expected.error = Error::kIncomplete;
    expected.error_call = kForwardCall;
    expected.parameters = missing(rank);
    return;
  }
  if (step.kind == PassKind::kSynced && !pass.forwards[f].local) {
    rank.is_armed = true;
    const bool is_further = std::exchange(rank.has_synced_forward, true);
    if (!is_further || policies_.counts_one_static_forward) ++rank.forwards;
    rank.begin_pass();
    if (is_dynamic()) graph_.find_unused(pass, f, policies_.searches_last_forward, rank.unused);
  }
  if (is_dynamic() || is_first_static(rank)) rank.whole_forwards |= 1U << f;
}

// The next call, up to the end of the call, or nested call, that completes the pass.
void HookModel::run_backward(const Step& step, std::uint32_t number, ExpectedRankStep& expected) {
  Rank& rank = ranks_[number];
  const RankPass& pass = pass_of(step, number);
  const bool is_in_synced_step = step.kind == PassKind::kSynced;
  const bool is_synced = is_in_synced_step && is_synced_call(pass, rank.next_call);
  if (!policies_.later_backwards_are_local && is_second_backward(step, number, rank)) {
    expected.error = Error::kSecondBackward;
    expected.error_call = rank.next_call;
    return;
  }
  if (rank.next_event == 0 && backward_of(pass, rank.next_call).zeroes) {
    zero(number, step.zero_grad);
    is_open_ = is_open_ || (is_in_synced_step && rank.next_call > 0);  // a bucket may be away
  }
  const bool is_beside = !policies_.averages_local_backward && is_in_synced_step && !is_synced;
  const bool is_armed = std::exchange(rank.is_armed, rank.is_armed && !is_beside);
  const bool is_fine = run_call(step, number, expected);
  if (is_beside) rank.is_armed = is_armed;
  if (!is_fine || rank.is_over) return;
  if (!policies_.stays_out_without_hooks && is_dynamic() && is_synced && !rank.is_unfinished)
    for (const std::uint32_t parameter : memory_.reduced) (void)mark_ready(number, parameter);
}

// The rank has no further call. It is an error if a pass that it ends by hand is not complete.
void HookModel::end_calls(const Step& step, std::uint32_t number, ExpectedRankStep& expected) {
  const Rank& rank = ranks_[number];
  if (kept_outputs(pass_of(step, number)) == 0 || rank.is_complete) return;
  const bool is_noticed = !policies_.reports_missing_later && rank.is_unfinished;
  if (!is_noticed && endings(step.kind) == 0) return;
  expected.error = Error::kIncomplete;
  expected.error_call = rank.next_call - (is_noticed ? 1 : 0);
  expected.parameters = missing(rank);
}

// The next call from where it was left. It stops where the reduction is waited for: at the end of
// a nested call that completed the pass, or in a hook of the user's. False: it ends in an error.
bool HookModel::run_call(const Step& step, std::uint32_t number, ExpectedRankStep& expected) {
  Rank& rank = ranks_[number];
  const RankPass& pass = pass_of(step, number);
  const StartedCall started = start_call(step, number, rank);
  if (started.is_left_out) return ++rank.next_call > 0;
  const std::vector<Event>& events =
      graph_.backward(started.pass_in(pass), started.call, started.whole_forwards);
  const std::uint32_t begun = graph_.whole_forwards_begun();
  const std::size_t first = std::exchange(rank.next_event, 0);
  std::uint32_t completed_at = kNowhere;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.kind == Event::Kind::kTensor && !sums_.add_tensor(event, number, started.step_key))
      is_open_ = true;
    if (i < first || event.kind == Event::Kind::kTensor) continue;
    if (event.kind == Event::Kind::kEnd) {
      if (event.depth != completed_at || ends_by_hand()) continue;
      rank.next_event = i + 1;
      return true;
    }
    if (event.defined) add_sum(event, number);
    const bool was_complete = rank.is_complete;
    if (const Error error = take_hook(number, event); error != Error::kNone) {
      // Its bucket is on its way, perhaps, and what came second is in it or not.
      if (is_sparse(event.parameter) || gradient(number, event.parameter).in_bucket)
        is_raced_[event.parameter] = 1;
      expected.error = error;
      expected.error_call = rank.next_call;
      expected.parameters = {event.parameter};
      return false;
    }
    if (rank.is_complete && !was_complete) completed_at = event.depth;
    // The user lets a hook end the pass once all forwards have run.
    const bool has_ending = ends_in_hook(step.kind) && rank.next_forward == pass.forwards.size();
    if (!has_ending || event.parameter != memory_.reduced.front()) continue;
    rank.next_event = i + 1;
    return end_in_hook(rank, expected);
  }
  // Each forward that the call started at ends it.
  const bool is_local = step.kind == PassKind::kNoSync || has_local_forward(pass);
  if (started.is_held && is_static()) is_open_ = true;
  const bool is_first = is_first_static(rank) && !started.is_held;
  const std::uint32_t ends = !is_first ? 0 : is_local ? begun : 1;
  for (std::uint32_t end = 0; end < ends && expected.error == Error::kNone; ++end)
    if (end == 0 || policies_.repeats_first_static_pass) expected.error = end_first_static(number);
  // The first pass is then ended in a call that had no hook.
  if (policies_.first_static_pass_is_any) {
    if (ends > 0) rank.has_ended_first = true;
    if (ends > 0 && rank.hooked_passes == 0) is_open_ = true;
  } else if (is_static() && !is_first && rank.whole_forwards > 0) {
    is_open_ = true;
  }
  if (expected.error != Error::kNone) {
    expected.error_call = rank.next_call;
    return false;
  }
  ++rank.next_call;
  return true;
}

// All buckets are launched when a backward of the first pass ends, which is an error if that pass
// is over.
Error HookModel::end_first_static(std::uint32_t number) {
  Rank& rank = ranks_[number];
  // A local pass is launched then, and no call ends it.
  if (!rank.is_armed && ends_by_hand()) is_open_ = true;
  if (!rank.is_armed || rank.is_complete) {
    const bool is_error =
        policies_.first_static_pass_is_any ? !rank.is_armed : policies_.repeats_first_static_pass;
    if (!is_error) return Error::kNone;
    for (const std::uint32_t parameter : memory_.reduced) note_launch(number, parameter);
    rank.has_launched_unarmed = !rank.is_armed;
    return Error::kSecondBackward;
  }
  for (const std::uint32_t parameter : memory_.reduced) {
    rank.unused[parameter] = rank.hooks[parameter] == 0 ? 1 : 0;
    if (const Error error = mark_ready(number, parameter); error == Error::kUndefinedSparse)
      return error;
  }
  return Error::kNone;
}

// False: there is nothing that the hook of the user's could end, or not yet.
bool HookModel::end_in_hook(Rank& rank, ExpectedRankStep& expected) const {
  rank.is_in_hook = rank.is_complete && rank.is_armed;
  if (rank.is_in_hook) return true;
  expected.error = rank.is_complete ? Error::kSecondBackward : Error::kIncomplete;
  expected.error_call = rank.next_call;
  expected.parameters = missing(rank);
  return false;
}

Error HookModel::take_hook(std::uint32_t number, const Event& event) {
  Rank& rank = ranks_[number];
  if (!is_reduced(program_.parameters[event.parameter])) return Error::kNone;
  if (!std::exchange(rank.has_hook, true)) ++rank.hooked_passes;
  const bool has_gradient =
      policies_.counts_stale_as_use ? gradient(number, event.parameter).defined : event.defined;
  const bool notes_use = is_dynamic() || counts_hooks(rank);
  if (notes_use && has_gradient && (rank.is_armed || !policies_.forgets_local_use))
    rank.used[event.parameter] = 1;
  if (!rank.is_armed) return Error::kNone;
  if (counts_hooks(rank)) {
    ++rank.hooks[event.parameter];
    // Its bucket is on its way, and nobody has waited for it.
    is_open_ |= rank.is_complete && ends_by_hand() && (has_views() || is_sparse(event.parameter));
    return Error::kNone;
  }
  return mark_by_hook(number, event.parameter);
}

Error HookModel::mark_by_hook(std::uint32_t number, std::uint32_t parameter) {
  Rank& rank = ranks_[number];
  if (!rank.has_marked) {
    rank.has_marked = true;
    for (const std::uint32_t other : memory_.reduced) {
      if (rank.unused[other] == 0) continue;
      if (const Error error = mark_ready(number, other); error != Error::kNone) return error;
    }
  }
  if (is_static()) {
    if (rank.left[parameter] == 0) return Error::kUsageChanged;
    if (--rank.left[parameter] > 0) return Error::kNone;
  }
  const bool is_recorded = layout_.may_rebuild();
  if (is_recorded) rank.order.push_back(parameter);
  if (const Error error = mark_ready(number, parameter); error != Error::kNone) return error;
  if (!is_recorded || !is_static() || !rank.is_complete) return Error::kNone;
  for (const std::uint32_t other : memory_.reduced)
    if (rank.unused[other]) rank.order.push_back(other);
  return Error::kNone;
}

Error HookModel::mark_ready(std::uint32_t number, std::uint32_t parameter) {
  Rank& rank = ranks_[number];
  if (rank.ready[parameter]) return Error::kReadyTwice;
  rank.is_unfinished = true;
  if (is_sparse(parameter)) {
    if (policies_.refuses_undefined_sparse && !gradient(number, parameter).defined)
      return Error::kUndefinedSparse;
    give_entries(number, parameter);
  } else {
    const bool is_used = is_dynamic() && rank.used[parameter] != 0;
    if (is_used && policies_.use_outlives_zero_grad && !gradient(number, parameter).defined)
      return Error::kUndefinedSparse;  // of a dense one here
    if (is_lazy() && has_views()) allocate(number, memory_.places[parameter].bucket);
    if (!is_batched()) give(number, parameter);
  }
  rank.ready[parameter] = 1;
  if (is_batched()) give_whole(number, memory_.places[parameter].bucket);
  if (!rank.is_complete && missing(rank).empty()) {
    rank.is_complete = true;
    rank.sent = rank.used;
  }
  return Error::kNone;
}

// What there is of the gradient goes into its bucket, scaled.
void HookModel::give(std::uint32_t number, std::uint32_t parameter) {
  const ParameterMemory::Place& place = memory_.places[parameter];
  const DType dtype = program_.parameters[parameter].dtype;
  const auto count = static_cast<std::uint32_t>(survivors_.size());
  Gradient& own = gradient(number, parameter);
  double* values = elements(number, parameter);
  double* out = given(number, parameter);
  std::fill_n(out, place.count, 0.0);
  if (own.defined && hook() != Hook::kNone) {
    std::copy_n(values, place.count, out);
  } else if (own.defined && divides(program_.options, policies_, own)) {
    divide(dtype, count, values, out, place.count);
  } else if (own.defined) {
    multiply(dtype, count, policies_, values, out, place.count);
  }
  const bool is_kept =
      (is_dynamic() && !policies_.reduces_unused_views && ranks_[number].used[parameter] == 0) ||
      (!policies_.scales_skipped && is_skipped(place.bucket));
  if (own.defined && has_views() && !is_kept) {
    std::copy_n(out, place.count, values);
    own.in_bucket = own.touched = true;
    own.recorded = false;
  }
}

// Once all gradients of a bucket are ready, they go into it together.
void HookModel::give_whole(std::uint32_t number, std::uint32_t bucket) {
  const std::vector<std::uint32_t>& members = buckets()[bucket].parameters;
  if (is_sparse(members.front()) || !are_ready(ranks_[number], members)) return;
  for (const std::uint32_t member : members) give(number, member);
}

// With lazy buckets: at the first gradient that is ready, the bucket gets its memory, and takes in
// the gradients that are there.
void HookModel::allocate(std::uint32_t number, std::uint32_t bucket) {
  const std::vector<std::uint32_t>& members = buckets()[bucket].parameters;
  const auto is_ready = [&](std::uint32_t member) { return ranks_[number].ready[member] != 0; };
  if (std::any_of(members.begin(), members.end(), is_ready)) return;
  for (const std::uint32_t member : members) {
    Gradient& each = gradient(number, member);
    each.in_new_bucket = each.defined;
    if (each.defined) each.in_bucket = each.touched = true;
  }
}

void HookModel::note_launch(std::uint32_t number, std::uint32_t parameter) {
  if (is_sparse(parameter) && !launched_.note(parameter, program_.parameters[parameter],
                                              gradient(number, parameter).shapeless,
                                              !entries(number, parameter).rows.empty()))
    is_open_ = true;
}

// A sparse gradient is its bucket: it is scaled where it lies, and replaced by the sum.
void HookModel::give_entries(std::uint32_t number, std::uint32_t parameter) {
  Gradient& own = gradient(number, parameter);
  if (!own.defined) return;
  note_launch(number, parameter);
  // A communication hook scales by itself, and runs for no bucket that is left out.
  const bool scales_skipped = policies_.scales_skipped && hook() == Hook::kNone;
  const bool is_kept =
      (is_dynamic() && !policies_.reduces_unused_sparse && ranks_[number].used[parameter] == 0) ||
      (!scales_skipped && is_skipped(memory_.places[parameter].bucket));
  if (is_kept) return;
  const Parameter& record = program_.parameters[parameter];
  Entries& held = entries(number, parameter);
  const auto count = static_cast<std::uint32_t>(survivors_.size());
  if (policies_.divides_sparse) {
    divide(record.dtype, count, held.values.data(), held.values.data(), held.values.size());
  } else {
    held = coalesced(record, held);
    scale_values(record.dtype, held.values.data(), held.values.data(),
                 scale_factor(record.dtype, count), held.values.size());
  }
  own.touched = true;
  own.recorded = false;
}

// The sum of a call goes into the gradient.
void HookModel::add_sum(const Event& event, std::uint32_t rank) {
  Gradient& target = gradient(rank, event.parameter);
  if (is_sparse(event.parameter)) {
    if (!target.defined) entries(rank, event.parameter) = {};
    add_entries(event.parameter, entries(rank, event.parameter),
                sums_.sparse(event.depth, event.parameter));
    target.shapeless = target.shapeless && entries(rank, event.parameter).rows.empty();
  } else {
    const ParameterMemory::Place& place = memory_.places[event.parameter];
    const double* sums = sums_.dense(event.depth) + place.start;
    if (target.defined)
      add_values(program_.parameters[event.parameter].dtype, elements(rank, event.parameter), sums,
                 place.count);
    else
      std::copy_n(sums, place.count, elements(rank, event.parameter));
  }
  target.defined = target.touched = true;
  target.reduced = target.recorded = false;
}

void HookModel::add_entries(std::uint32_t parameter, Entries& into, const Entries& next) {
  if (!torch_model::add_entries(program_.parameters[parameter], policies_.merges_sparse, into,
                                next))
    is_open_ = true;
}

// Whether others wait in vain for a bucket, or for the usage map, of this rank. What they do if all
// that it has not launched is without elements is not known.
bool HookModel::blocks_others(std::uint32_t number, ExpectedStep& expected) const {
  if (is_dynamic()) return true;
  // One who has ended a pass in this step launches nothing of a second one.
  std::size_t first = ranks_[number].is_over ? 0 : buckets().size();
  for (const std::uint32_t parameter : missing(ranks_[number]))
    first = std::min<std::size_t>(first, memory_.places[parameter].bucket);
  const bool blocks =
      std::any_of(buckets().begin() + static_cast<std::ptrdiff_t>(first), buckets().end(),
                  [](const ExpectedBucket& bucket) { return bucket.count > 0 || bucket.sparse; });
  expected.is_modelled = expected.is_modelled && blocks;
  return blocks;
}

// A reduction that nobody waits for may write to these gradients at any time.
void HookModel::leave_loose(std::uint32_t number) {
  const Rank& rank = ranks_[number];
  if (!rank.is_unfinished) return;
  for (const std::uint32_t parameter : memory_.reduced)
    if ((has_views() || is_sparse(parameter)) && rank.ready[parameter])
      gradient(number, parameter).loose = true;
}

// The first call ends the pass, and the second one finds nothing to end. What the first one does
// beside the error of another rank is not known.
void HookModel::end_twice(ExpectedStep& expected) {
  for (const std::uint32_t rank : survivors_) {
    ExpectedRankStep& each = expected.ranks[rank];
    is_open_ = is_open_ || each.error != Error::kNone;
    each.error = Error::kSecondBackward;
    each.error_call = ranks_[rank].next_call + 1;
  }
}

// Decides what comes of the calls that all ranks have made up to here. Returns whether the ranks go
// on in this step.
bool HookModel::finish_pass(const Step& step, ExpectedStep& expected) {
  const auto is_complete = [this](std::uint32_t rank) {
    return ranks_[rank].is_complete && !ranks_[rank].is_over;
  };
  const auto waits = [&](std::uint32_t rank) { return is_waiting(ranks_[rank], step.kind); };
  const bool is_any = std::any_of(survivors_.begin(), survivors_.end(), is_complete);
  const bool is_all = std::all_of(survivors_.begin(), survivors_.end(), is_complete);
  const bool is_awaited = std::any_of(survivors_.begin(), survivors_.end(), waits);
  if (is_any && is_all && endings(step.kind) > 1) end_twice(expected);
  const auto has_own = [&](std::uint32_t rank) {
    return expected.ranks[rank].error != Error::kNone;
  };
  const bool fails = std::any_of(survivors_.begin(), survivors_.end(), has_own);
  const bool has_reduced = expected.is_reduced;
  expected.any_error = fails || (is_awaited && !is_all);
  // Some ranks launched all that they have, and do not end their pass. Others that do, or that come
  // later, may have their sums of it.
  const auto leaves = [&](std::uint32_t rank) {
    return (is_complete(rank) && !waits(rank)) || ranks_[rank].has_launched_unarmed;
  };
  const bool is_left = std::any_of(survivors_.begin(), survivors_.end(), leaves);
  if (is_left && (is_awaited || (is_any && !is_all))) is_open_ = true;
  if (is_all && is_awaited) reduce(expected);
  if (is_all && is_any && !is_awaited) list_collectives(expected);
  for (const std::uint32_t rank : survivors_) {
    ExpectedRankStep& each = expected.ranks[rank];
    if (has_own(rank)) {
      each.outcome = Outcome::kOwnError;
    } else if (!waits(rank)) {
      each.outcome = Outcome::kSuccess;
      leave_loose(rank);
      expected.knows_collectives =
          expected.knows_collectives && (is_all || !ranks_[rank].is_unfinished);
      expected.leaves_pass_unfinished |= ranks_[rank].is_unfinished;
    } else if (!is_all) {
      each.outcome = Outcome::kPeerError;
    } else if (fails) {
      each.outcome = Outcome::kSuccessOrPeerError;
    }
    if (has_reduced && expected.any_error && each.outcome == Outcome::kSuccess)
      each.outcome = Outcome::kSuccessOrPeerError;
    if (is_awaited && !is_complete(rank) && !blocks_others(rank, expected)) break;
  }
  return is_awaited ? is_all : finish_rebuild(expected);
}

// A forward after a pass that has ended in this step may rebuild the buckets, with all ranks.
bool HookModel::finish_rebuild(ExpectedStep& expected) {
  const auto rebuilds = [this](std::uint32_t rank) { return ranks_[rank].is_rebuilding; };
  if (std::none_of(survivors_.begin(), survivors_.end(), rebuilds)) return false;
  // Others rebuild theirs in the next step, which counts the collectives, or fail before that.
  if (!std::all_of(survivors_.begin(), survivors_.end(), rebuilds)) is_open_ = true;
  if (!expected.any_error) rebuild(expected);
  return !expected.any_error;
}

void HookModel::list_collectives(ExpectedStep& expected) const {
  Collectives& out = expected.collectives;
  const std::size_t before = out.size();
  for (std::uint32_t b = 0; b < buckets().size(); ++b)
    if (!is_skipped(b))
      append_bucket(buckets()[b].count, wire_dtype(hook(), buckets()[b].dtype), out);
  if (is_dynamic() || (is_static() && !is_counted_))
    append_usage(memory_.reduced.size(), is_dynamic() ? 0 : out.size() - before, out);
}

void HookModel::reduce(ExpectedStep& expected) {
  expected.is_reduced = true;
  list_collectives(expected);
  find_taken(program_.options.mode, buckets(), survivors_, ranks_);
  for (const std::uint32_t parameter : memory_.reduced) reduce_one(parameter);
  is_counted_ = is_static();
  for (const std::uint32_t number : survivors_) {
    Rank& rank = ranks_[number];
    rank.is_armed = rank.is_unfinished = rank.has_hook = false;
    rank.is_over = true;
    if (is_static()) continue;
    std::fill(rank.used.begin(), rank.used.end(), std::uint8_t{0});
    rank.has_sums = false;
  }
}

// Whether the option leaves out a bucket, of which all is unused on all ranks. A static first pass
// launches all of them.
bool HookModel::is_skipped(std::uint32_t bucket) const {
  if (!program_.options.skip_all_reduce_unused_params || (is_static() && !is_counted_))
    return false;
  const std::vector<std::uint8_t>& unused = ranks_[survivors_.front()].unused;
  const std::vector<std::uint32_t>& members = buckets()[bucket].parameters;
  return std::all_of(members.begin(), members.end(),
                     [&](std::uint32_t parameter) { return unused[parameter] != 0; });
}

void HookModel::leave_out(std::uint32_t parameter) {
  if (!policies_.repeats_skipped) return;
  for (const std::uint32_t rank : survivors_)
    results_.repeat(rank, parameter, takes(rank, parameter),
                    {gradient(rank, parameter), given(rank, parameter), elements(rank, parameter),
                     entries(rank, parameter)});
}

void HookModel::reduce_one(std::uint32_t parameter) {
  if (is_skipped(memory_.places[parameter].bucket)) return leave_out(parameter);
  if (is_sparse(parameter)) {  // all ranks take it, or none does
    if (takes(survivors_.front(), parameter) || policies_.reduces_unused_sparse)
      reduce_entries(parameter);
    end_reduction(parameter);
    return;
  }
  const DType dtype = wire_dtype(hook(), program_.parameters[parameter].dtype);
  const ParameterMemory::Place& place = memory_.places[parameter];
  const auto count = static_cast<std::uint32_t>(survivors_.size());
  for (const std::uint32_t rank : survivors_)
    if (hook() != Hook::kNone)
      run_hook(hook(), program_.parameters[parameter].dtype, count, policies_,
               given(rank, parameter), place.count);
  std::size_t begin = 0;
  for (const OrderRun& run : layout_.order_of(place.bucket)) {
    if (run.end <= place.offset + begin) continue;
    if (begin == place.count) break;
    const std::size_t end = std::min<std::size_t>(place.count, run.end - place.offset);
    for (std::size_t i = 0; i + 1 < survivors_.size(); ++i) {
      const Addition& addition = run.additions[i];
      double* const into = given(survivors_[addition.into], parameter) + begin;
      const double* const from = given(survivors_[addition.from], parameter) + begin;
      if (dtype == DType::kFloat16 && policies_.loses_half_sums)
        add_as_gloo(into, from, end - begin);
      else
        add_values(dtype, into, from, end - begin);
    }
    const double* result = given(survivors_[run.result], parameter) + begin;
    results_.keep(parameter, begin, end, result);
    for (const std::uint32_t rank : survivors_) {
      const bool is_written =
          takes(rank, parameter) ||
          (has_views() && gradient(rank, parameter).in_bucket && policies_.reduces_unused_views);
      if (is_written) std::copy_n(result, end - begin, elements(rank, parameter) + begin);
    }
    begin = end;
  }
  end_reduction(parameter);
}

// The lists of all ranks, each with one entry a row, merged in the order of the ranks.
void HookModel::reduce_entries(std::uint32_t parameter) {
  const Parameter& record = program_.parameters[parameter];
  if (hook() == Hook::kFloat16) is_open_ = true;  // as in add_entries()
  Entries sum;
  for (const std::uint32_t rank : survivors_) {
    const Entries& own = entries(rank, parameter);
    if (!has_stable_order(own)) is_open_ = true;
    if (gradient(rank, parameter).defined) add_entries(parameter, sum, coalesced(record, own));
  }
  sum = coalesced(record, sum);
  for (const std::uint32_t rank : survivors_) {
    if (!gradient(rank, parameter).defined) continue;
    entries(rank, parameter) = sum;
    results_.keep(rank, parameter, sum);
    gradient(rank, parameter).is_result = true;
    gradient(rank, parameter).reduced = gradient(rank, parameter).touched = true;
    gradient(rank, parameter).recorded = false;
  }
}

// What is known of a parameter's gradients after it.
void HookModel::end_reduction(std::uint32_t parameter) {
  results_.end_reduction(parameter, is_lazy());
  for (const std::uint32_t rank : survivors_) {
    Gradient& each = gradient(rank, parameter);
    const bool is_used = takes(rank, parameter);
    if (!is_used && !(each.defined && each.in_bucket)) continue;
    if (is_used) {
      each.defined = each.reduced = each.touched = true;
      each.in_bucket = has_views() && !is_sparse(parameter);
    }
    each.recorded = false;
    if (is_raced_[parameter] == 0) continue;
    each.loose = true;
    each.reduced = false;
  }
}

void HookModel::record(std::vector<ExpectedRankStep>& ranks) {
  for (const std::uint32_t rank : survivors_) {
    for (std::uint32_t i = 0; i < memory_.owners.size(); ++i) {
      if (memory_.owners[i] == kNotTrained) continue;
      Gradient& actual = gradient(rank, memory_.owners[i]);
      if (actual.defined && !actual.recorded) {
        const std::uint32_t owner = memory_.owners[i];
        actual.offset =
            is_sparse(owner)
                ? append_bits(program_.parameters[owner], entries(rank, owner), out_.bits)
                : memory_.append_bits(owner, elements(rank, owner), out_.bits);
        actual.recorded = true;
      }
      ExpectedGradient& written = ranks[rank].gradients[i];
      written.known = !actual.loose;
      written.defined = actual.defined;
      written.untouched = actual.defined && !actual.touched;
      written.reduced = actual.reduced;
      written.in_bucket = actual.in_bucket;
      written.offset = actual.offset;
    }
  }
}

}  // namespace

reference::Expectation run(const Program& program, const Policies& policies,
                           const std::vector<Recovery>& recoveries) {
  Expectation expectation;
  HookModel(program, policies, expectation).run(recoveries);
  return expectation;
}

std::uint32_t modelled_steps(const Expectation& expectation) {
  const auto first = std::find_if(expectation.steps.begin(), expectation.steps.end(),
                                  [](const ExpectedStep& step) { return !step.is_modelled; });
  return static_cast<std::uint32_t>(first - expectation.steps.begin());
}

}  // namespace lockstep::properties::torch_model
