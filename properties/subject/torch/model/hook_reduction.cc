#include <algorithm>
#include <cassert>
#include <utility>

#include "properties/subject/torch/model/averaging.h"
#include "properties/subject/torch/model/collectives.h"
#include "properties/subject/torch/model/gloo_sum.h"
#include "properties/subject/torch/model/hook_model_state.h"
#include "properties/subject/torch/model/merged_entries.h"
#include "properties/subject/torch/model/usage_map.h"
#include "reference/arithmetic.h"

namespace lockstep::properties::torch_model {

// Whether others wait in vain for a bucket, or for the usage map, of this rank. What they do if all
// that it has not launched is without elements is not known.
bool HookModel::blocks_others(std::uint32_t number) {
  if (is_dynamic()) return true;
  // One who has ended a pass in this step launches nothing of a second one.
  std::size_t first = ranks_[number].in_step.is_over ? 0 : buckets().size();
  for (const std::uint32_t parameter : missing(ranks_[number]))
    first = std::min<std::size_t>(first, memory_.places[parameter].bucket);
  const bool blocks =
      std::any_of(buckets().begin() + static_cast<std::ptrdiff_t>(first), buckets().end(),
                  [](const ExpectedBucket& bucket) { return bucket.count > 0 || bucket.sparse; });
  if (!blocks) leave_open();
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
    if (each.error != Error::kNone) leave_open();
    each.error = Error::kSecondBackward;
    each.error_call = ranks_[rank].in_step.next_call + 1;
  }
}

// Decides what comes of the calls that all ranks have made up to here. Returns whether the ranks go
// on in this step.
bool HookModel::finish_pass(const Step& step, ExpectedStep& expected) {
  const auto is_complete = [this](std::uint32_t rank) {
    return ranks_[rank].in_step.is_complete && !ranks_[rank].in_step.is_over;
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
    return (is_complete(rank) && !waits(rank)) || ranks_[rank].in_step.has_launched_unarmed;
  };
  const bool is_left = std::any_of(survivors_.begin(), survivors_.end(), leaves);
  if (is_left && (is_awaited || (is_any && !is_all))) leave_open();
  if (is_all && is_awaited) reduce(expected);
  if (is_all && is_any && !is_awaited) list_collectives(expected);
  for (const std::uint32_t rank : survivors_) {
    ExpectedRankStep& each = expected.ranks[rank];
    if (has_own(rank)) {
      each.outcome = Outcome::kOwnError;
    } else if (!waits(rank)) {
      each.outcome = Outcome::kSuccess;
      leave_loose(rank);
      const bool is_unfinished = ranks_[rank].is_unfinished;
      knowledge_.knows_collectives = knowledge_.knows_collectives && (is_all || !is_unfinished);
      knowledge_.leaves_pass_unfinished = knowledge_.leaves_pass_unfinished || is_unfinished;
    } else if (!is_all) {
      each.outcome = Outcome::kPeerError;
    } else if (fails) {
      each.outcome = Outcome::kSuccessOrPeerError;
    }
    if (has_reduced && expected.any_error && each.outcome == Outcome::kSuccess)
      each.outcome = Outcome::kSuccessOrPeerError;
    if (is_awaited && !is_complete(rank) && !blocks_others(rank)) break;
  }
  return is_awaited ? is_all : finish_rebuild(expected);
}

// A forward after a pass that has ended in this step may rebuild the buckets, with all ranks.
bool HookModel::finish_rebuild(ExpectedStep& expected) {
  const auto rebuilds = [this](std::uint32_t rank) { return ranks_[rank].in_step.is_rebuilding; };
  if (std::none_of(survivors_.begin(), survivors_.end(), rebuilds)) return false;
  // Others rebuild theirs in the next step, which counts the collectives, or fail before that.
  if (!std::all_of(survivors_.begin(), survivors_.end(), rebuilds)) leave_open();
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
    rank.in_step.is_over = true;
    if (is_static()) continue;
    std::fill(rank.used.begin(), rank.used.end(), std::uint8_t{0});
    rank.has_sums = false;
  }
}

// Whether the option leaves out a bucket, of which all is unused on all ranks. A static first pass
// launches all of them.
bool HookModel::is_skipped(std::uint32_t bucket) const {
  if (!options_.skip_all_reduce_unused_params || (is_static() && !is_counted_)) return false;
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
  if (hook() == Hook::kFloat16) leave_open();  // as in add_entries()
  Entries sum;
  for (const std::uint32_t rank : survivors_) {
    const Entries& own = entries(rank, parameter);
    if (!has_stable_order(own)) leave_open();
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

}  // namespace lockstep::properties::torch_model
