#include <algorithm>
#include <cassert>
#include <utility>

#include "properties/subject/torch/model/averaging.h"
#include "properties/subject/torch/model/hook_model_state.h"
#include "properties/subject/torch/model/merged_entries.h"
#include "reference/arithmetic.h"

namespace lockstep::properties::torch_model {

// All buckets are launched when a backward of the first pass ends, which is an error if that pass
// is over.
Error HookModel::end_first_static(std::uint32_t number) {
  Rank& rank = ranks_[number];
  // A local pass is launched then, and no call ends it.
  if (!rank.is_armed && ends_by_hand()) leave_open();
  if (!rank.is_armed || rank.in_step.is_complete) {
    const bool is_error =
        policies_.first_static_pass_is_any ? !rank.is_armed : policies_.repeats_first_static_pass;
    if (!is_error) return Error::kNone;
    for (const std::uint32_t parameter : memory_.reduced) note_launch(number, parameter);
    rank.in_step.has_launched_unarmed = !rank.is_armed;
    return Error::kSecondBackward;
  }
  for (const std::uint32_t parameter : memory_.reduced) {
    rank.unused[parameter] = rank.hooks[parameter] == 0 ? 1 : 0;
    if (const Error error = mark_ready(number, parameter); error == Error::kForeign) return error;
  }
  return Error::kNone;
}

// False: there is nothing that the hook of the user's could end, or not yet.
bool HookModel::end_in_hook(Rank& rank, ExpectedRankStep& expected) const {
  rank.in_step.is_in_hook = rank.in_step.is_complete && rank.is_armed;
  if (rank.in_step.is_in_hook) return true;
  expected.error = rank.in_step.is_complete ? Error::kSecondBackward : Error::kIncomplete;
  expected.error_call = rank.in_step.next_call;
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
    if (rank.in_step.is_complete && ends_by_hand() && (has_views() || is_sparse(event.parameter)))
      leave_open();
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
  if (!is_recorded || !is_static() || !rank.in_step.is_complete) return Error::kNone;
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
      return Error::kForeign;
    give_entries(number, parameter);
  } else {
    const bool is_used = is_dynamic() && rank.used[parameter] != 0;
    if (is_used && policies_.use_outlives_zero_grad && !gradient(number, parameter).defined)
      return Error::kForeign;  // of a dense one here
    if (is_lazy() && has_views()) allocate(number, memory_.places[parameter].bucket);
    if (!is_batched()) give(number, parameter);
  }
  rank.ready[parameter] = 1;
  if (is_batched()) give_whole(number, memory_.places[parameter].bucket);
  if (!rank.in_step.is_complete && missing(rank).empty()) {
    rank.in_step.is_complete = true;
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
  } else if (own.defined && divides(options_, policies_, own)) {
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
  if (is_sparse(parameter) && !sparse_.launched.note(parameter, program_.parameters[parameter],
                                                     gradient(number, parameter).shapeless,
                                                     !entries(number, parameter).rows.empty()))
    leave_open();
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
    leave_open();
}

}  // namespace lockstep::properties::torch_model
