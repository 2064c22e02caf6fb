#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/arithmetic.h"
#include "reference/buckets.h"
#include "reference/running_model.h"
#include "reference/values.h"

namespace lockstep::reference {

// P10: usage goes with the gradient.
void Model::zero(std::uint32_t rank, ZeroGrad kind) {
  if (kind == ZeroGrad::kKeep) return;
  if (kind == ZeroGrad::kReplace || kind == ZeroGrad::kSwap) return set_others(rank, kind);
  for (const std::uint32_t parameter : memory_.trained) {
    Gradient& zeroed = gradient(rank, parameter);
    if (kind == ZeroGrad::kUndefine) zeroed.defined = zeroed.in_bucket = zeroed.misplaced = false;
    zeroed.used = false;
    zeroed.loose = false;
    zeroed.requires_grad = false;
    zeroed.recorded = false;
    std::fill_n(elements(rank, parameter), memory_.places[parameter].count, 0.0);
    if (is_sparse(parameter)) entries(rank, parameter) = {};
  }
}

void Model::set_others(std::uint32_t rank, ZeroGrad kind) {
  const auto set = [](Gradient& other) {
    other.misplaced = other.misplaced || other.in_bucket;
    other.used = other.in_bucket = false;
  };
  if (kind == ZeroGrad::kReplace) {
    for (const std::uint32_t parameter : memory_.trained) {
      Gradient& replaced = gradient(rank, parameter);
      if (is_sparse(parameter) || !replaced.defined) continue;
      set(replaced);
      replaced.misplaced = replaced.requires_grad = false;
    }
    return;
  }
  for (const auto& [a, b] : swapped_gradients(program_)) {
    Gradient& left = gradient(rank, a);
    Gradient& right = gradient(rank, b);
    std::swap_ranges(elements(rank, a), elements(rank, a) + memory_.places[a].count,
                     elements(rank, b));
    std::swap(left, right);
    set(left);
    set(right);
    left.recorded = right.recorded = false;
  }
}

// The step's backward calls on one rank, and the error that they end in (P5, P6, P7).
void Model::train(const Step& step, std::uint32_t rank, ExpectedRankStep& expected) {
  const RankPass& pass = step.variants[rank % step.variants.size()];
  if (pass.skip && step.kind == PassKind::kNoGrad) return;
  zero(rank, step.zero_grad);
  if (step.kind == PassKind::kNoGrad || kept_outputs(pass) == 0) return;
  const bool is_synced = step.kind == PassKind::kSynced;
  std::fill(hooks_.begin(), hooks_.end(), 0U);
  std::fill(is_left_out_.begin(), is_left_out_.end(), std::uint8_t{0});

  const std::uint32_t calls = call_count(pass);
  bool is_complete = false;
  for (std::uint32_t call = 0; call < calls; ++call) {
    expected.error_call = call;
    if (is_complete) {  // before anything is touched
      expected.error = Error::kSecondBackward;
      return;
    }
    if (is_synced && is_dynamic()) find_elsewhere(pass, calls);
    const std::vector<Event>& events = graph_.backward(pass, call);
    if (is_synced && find_ready_twice(events, rank, expected.parameters)) {
      expected.error = Error::kReadyTwice;
    }
    accumulate(rank, step.key, events);
    if (is_synced && find_requiring(events, rank, call == 0, expected.requiring)) {
      if (expected.error == Error::kNone) {
        expected.error = Error::kRequiresGrad;
        expected.parameters.swap(expected.requiring);
      }
    } else if (is_synced && expected.error == Error::kNone &&
               find_new_use(rank, expected.parameters)) {
      expected.error = Error::kUsageChanged;
    }
    if (expected.error != Error::kNone) {
      if (blocks_others(rank, expected)) ++blocking_ranks_;
      return;
    }
    if (!is_synced) continue;
    if (counts(rank))
      std::copy(hooks_.begin(), hooks_.end(),
                hooks_per_pass_.begin() + static_cast<std::ptrdiff_t>(rank * hooks_.size()));
    // In dynamic mode, and in the pass that is counted, whatever did not fire in the first call
    // counts as unused.
    is_complete = is_dynamic() || counts(rank) || missing(rank).empty();
    if (is_complete || graph_.leaves_a_way(pass, call, missing(rank))) continue;
    return fail_as_incomplete(rank, call, expected);
  }
  expected.error_call = 0;
  if (is_synced && !is_complete) fail_as_incomplete(rank, calls, expected);  // by check_complete()
}

void Model::fail_as_incomplete(std::uint32_t rank, std::uint32_t call, ExpectedRankStep& expected) {
  expected.error = Error::kIncomplete;
  expected.error_call = call;
  expected.parameters = missing(rank);
  if (blocks_others(rank, expected)) ++blocking_ranks_;
}

// After how many hooks of a pass the parameter is ready. While static mode counts, nothing is
// before the first backward has ended.
std::uint32_t Model::hooks_due(std::uint32_t rank, std::uint32_t parameter) const {
  if (!is_static()) return 1;
  return !counts(rank) ? hooks_per_pass_[rank * program_.parameters.size() + parameter] : kNever;
}

// P6, dynamic mode: what the first call of a pass does not reach from outside of checkpoints, but
// an output of another forward that is alive does: the unused search has seen it.
void Model::find_elsewhere(const RankPass& pass, std::uint32_t calls) {
  is_elsewhere_.assign(program_.parameters.size(), 0);
  if (calls == 1 && !pass.keep_outputs) return;  // the others were let go
  const auto note = [this](const RankPass& outputs, std::uint8_t value) {
    if (kept_outputs(outputs) == 0) return;
    for (const Event& event : graph_.backward(outputs, 0))
      if (event.kind == Event::Kind::kHook && event.depth == 0)
        is_elsewhere_[event.parameter] = value;
  };
  RankPass all = pass;
  all.backwards.clear();
  note(all, 1);
  if (pass.backwards.empty() || pass.backwards[0].roots.empty()) return note(all, 0);
  RankPass of_call = all;
  std::uint32_t before = 0;
  const std::uint32_t count = kept_outputs(pass);
  for (Forward& forward : of_call.forwards) {
    if (forward.discard) continue;
    const std::uint32_t end = before + static_cast<std::uint32_t>(forward.outputs.size());
    const auto& roots = pass.backwards[0].roots;
    forward.discard = std::none_of(roots.begin(), roots.end(), [&](std::uint32_t root) {
      return before <= root % count && root % count < end;
    });
    before = end;
  }
  note(of_call, 0);
}

// P6, for one call, and P11. In dynamic mode the unused search does not see into checkpoints: the
// first hook of the pass marked what is in there, so that its own hook counts as a second one. A
// parameter whose slot was filled by an earlier call was reduced with what it had then; of one that
// gets ready and fires once more in this call nobody can say which of its gradients is reduced.
bool Model::find_ready_twice(const std::vector<Event>& events, std::uint32_t rank,
                             std::vector<std::uint32_t>& found) {
  std::fill(hooks_now_.begin(), hooks_now_.end(), 0U);
  for (const Event& event : events) {
    if (event.kind != Event::Kind::kHook) continue;
    const bool is_marked = is_dynamic() && event.depth > 0 && !is_elsewhere_[event.parameter];
    hooks_now_[event.parameter] += is_marked ? 2 : 1;
  }
  for (const std::uint32_t parameter : memory_.parts) {
    const std::uint32_t before = hooks_[parameter];
    const std::uint32_t due = hooks_due(rank, parameter);
    hooks_[parameter] += hooks_now_[parameter];
    if (hooks_now_[parameter] == 0 || hooks_[parameter] <= due) continue;
    found.push_back(parameter);
    is_left_out_[parameter] = 1;
    if (before < due) is_unknown_[parameter] = is_unknown_[original(parameter)] = 1;
  }
  return !found.empty();
}

// P11: what no rank used in the counted pass is not reduced; that a rank uses it now is an error.
bool Model::find_new_use(std::uint32_t rank, std::vector<std::uint32_t>& found) {
  if (!is_static() || !is_counted_) return false;
  for (const std::uint32_t parameter : memory_.reduced) {
    const auto lacks = [&](std::uint32_t part) { return hooks_[part] < hooks_due(rank, part); };
    const bool is_waiting = !counts(rank) && any_part(parameter, lacks);
    if (!is_waiting && is_used(rank, parameter) && !is_in_use_[parameter])
      found.push_back(parameter);
  }
  return !found.empty();
}

// Those whose hooks did not all fire in this pass, ascending.
std::vector<std::uint32_t> Model::missing(std::uint32_t rank) const {
  std::vector<std::uint32_t> missing;
  for (const std::uint32_t parameter : memory_.parts) {
    if (hooks_[parameter] < hooks_due(rank, parameter)) missing.push_back(parameter);
  }
  return missing;
}

// P16, for what this call brings to its bucket: with each hook that makes a parameter ready, and
// with the first hook of the pass what will have none. Of what is ready twice it may be the first
// of the two errors.
bool Model::find_requiring(const std::vector<Event>& events, std::uint32_t rank, bool begins_pass,
                           std::vector<std::uint32_t>& found) {
  is_requiring_.assign(program_.parameters.size(), 0);
  for (const Event& event : events)
    if (event.requires_grad) is_requiring_[event.parameter] = is_left_out_[event.parameter];
  const auto had_come = [&](std::uint32_t part) {
    return !begins_pass && hooks_[part] - hooks_now_[part] >= hooks_due(rank, part);
  };
  const auto has_come = [&](std::uint32_t part) { return hooks_[part] >= hooks_due(rank, part); };
  for (const std::uint32_t part : memory_.parts) {
    const std::uint32_t parameter = original(part);
    bool is_filled =
        !any_part(parameter, std::not_fn(has_come)) && any_part(parameter, std::not_fn(had_come));
    if (is_dynamic()) is_filled = begins_pass;
    if (counts(rank)) is_filled = true;
    const bool requires_grad = gradient(rank, part).requires_grad || is_requiring_[part];
    if (is_filled && requires_grad) found.push_back(part);
  }
  return !found.empty();
}

// A rank that lacks parameters launches the bucket of none of them, and no later one (P3); while
// static mode counts, not even the usage map (of which there is none for a rank that shadowed the
// others' first pass), unless it is what comes to the buckets that is refused. Whether the others
// notice that a bucket without elements was not launched is left open. After backward (P14) a rank
// launches all buckets or, when its backward failed or its pass is not complete, none. In dynamic
// mode it lacks nothing but what is refused.
bool Model::blocks_others(std::uint32_t rank, const ExpectedRankStep& expected) const {
  const bool is_refused = expected.error == Error::kRequiresGrad;
  const bool counts = this->counts(rank);
  std::vector<std::uint32_t> lacking = expected.requiring;
  if (is_refused) lacking = expected.parameters;
  std::erase_if(lacking, [&](std::uint32_t parameter) { return is_left_out_[parameter] != 0; });
  if (!is_dynamic() && !(counts && is_refused)) {
    const std::vector<std::uint32_t> others = missing(rank);
    lacking.insert(lacking.end(), others.begin(), others.end());
    if (counts && !is_counted_ && !others.empty()) return true;
  }
  std::size_t first = buckets().size();
  const bool is_failed = expected.error == Error::kReadyTwice ||
                         expected.error == Error::kUsageChanged || (is_refused && !counts);
  if (is_after_backward() && (is_failed || !lacking.empty())) first = 0;
  for (const std::uint32_t parameter : lacking) {
    first = std::min<std::size_t>(first, memory_.places[parameter].bucket);
  }
  return std::any_of(
      buckets().begin() + static_cast<std::ptrdiff_t>(first), buckets().end(),
      [](const ExpectedBucket& bucket) { return bucket.count > 0 || bucket.sparse; });
}

void Model::accumulate(std::uint32_t rank, std::uint32_t step_key,
                       const std::vector<Event>& events) {
  sums_in_call_.assign(program_.parameters.size(), 0);
  sums_due_.assign(program_.parameters.size(), 0);
  had_gradient_.resize(program_.parameters.size());
  is_exact_.resize(program_.parameters.size());
  for (const Event& event : events) {
    if (event.kind == Event::Kind::kHook && event.defined) ++sums_due_[event.parameter];
  }
  for (const Event& event : events) {
    if (is_left_out_[event.parameter]) continue;
    std::vector<std::uint8_t>& requires_grad = sum_requires_grad_[event.depth];
    requires_grad.resize(program_.parameters.size());
    if (event.kind == Event::Kind::kTensor) {
      const bool before = !event.first && requires_grad[event.parameter] != 0;
      requires_grad[event.parameter] = before || event.requires_grad;
    } else if (event.defined && requires_grad[event.parameter] != 0) {
      gradient(rank, event.parameter).requires_grad = true;
    }
    std::vector<double>& sums = sums_[event.depth];
    if (sums.empty()) sums.resize(memory_.total);
    if (is_sparse(event.parameter)) {
      accumulate_entries(event, rank, step_key);
    } else if (event.kind == Event::Kind::kTensor) {
      memory_.add_tensor(event, rank, step_key, sums.data());
    } else if (event.defined) {
      add_sum(event.parameter, rank, sums.data());
    }
  }
}

// S1, and G11 for it: nothing is added up yet.
void Model::accumulate_entries(const Event& event, std::uint32_t rank, std::uint32_t step_key) {
  const Parameter& parameter = program_.parameters[event.parameter];
  Entries& sum = sparse_sums_[event.depth][event.parameter];
  if (event.kind == Event::Kind::kTensor) {
    if (event.first) sum = {};
    const Use use{step_key, event.node_key, event.entries};
    append(sum, entries_of(program_, parameter, rank, use, event.scalar));
    return;
  }
  if (!event.defined) return;
  Gradient& target = gradient(rank, event.parameter);
  Entries& own = entries(rank, event.parameter);
  if (!target.defined) own = {};
  // A nested call and the outer one run side by side: either may come first.
  if (sums_due_[event.parameter] > 1) {
    std::uint8_t& is_exact = is_exact_[event.parameter];
    const bool is_first = ++sums_in_call_[event.parameter] == 1;
    if (is_first) is_exact = adds_exactly(parameter.dtype, own.values);
    if (!adds_exactly(parameter.dtype, sum.values)) is_exact = 0;
    if (!is_first && !is_exact) target.loose = true;
  }
  append(own, sum);
  set_added(target);
}

// Whether sums of such values are the same in every order: integers far below the last place. The
// 16-bit types run out of bits after a few additions.
bool Model::adds_exactly(std::uint32_t parameter, const double* values) const {
  return adds_exactly(program_.parameters[parameter].dtype,
                      {values, values + memory_.places[parameter].count});
}

bool Model::adds_exactly(DType dtype, std::span<const double> values) {
  if (size_of(dtype) < 4) return false;
  return std::all_of(values.begin(), values.end(), [](double value) {
    return std::abs(value) < 1 << 20 && value == std::trunc(value);
  });
}

void Model::set_added(Gradient& target) {
  target.defined = true;
  target.used = true;
  target.touched = true;
  target.recorded = false;
}

// G11: the sum of one call arrives at the gradient.
void Model::add_sum(std::uint32_t parameter, std::uint32_t rank, const double* sums) {
  const ParameterMemory::Place& place = memory_.places[parameter];
  Gradient& target = gradient(rank, parameter);
  // A nested call and the outer one run side by side. Two sums commute; a third term, or what was
  // there before, does not.
  if (sums_due_[parameter] > 1) {
    const std::uint32_t terms = ++sums_in_call_[parameter];
    if (terms == 1) {
      had_gradient_[parameter] = target.defined;
      is_exact_[parameter] = !target.defined || adds_exactly(parameter, elements(rank, parameter));
    }
    if (!adds_exactly(parameter, sums + place.start)) is_exact_[parameter] = 0;
    if (terms > 1 && terms + had_gradient_[parameter] > 2 && !is_exact_[parameter])
      target.loose = true;
  }
  if (target.defined) {
    add_values(program_.parameters[parameter].dtype, elements(rank, parameter), sums + place.start,
               place.count);
  } else {
    std::copy_n(sums + place.start, place.count, elements(rank, parameter));
  }
  set_added(target);
}

}  // namespace lockstep::reference
