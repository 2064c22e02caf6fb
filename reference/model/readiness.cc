#include "reference/model/readiness.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace lockstep::reference {
namespace {

using Parameters = std::vector<std::uint32_t>;

// One backward call of a synced pass, and what it makes of gradients, but for values.
struct Call {
  bool is_first = false;
  HookCounts hooks_before;    // in the pass; those after it are RankReadiness::hooks_run
  std::vector<bool> is_used;  // by parameter
  std::vector<bool> requires_grad;
};

template <class Predicate>
Parameters those_of(const Parameters& parameters, const Predicate& predicate) {
  Parameters found;
  std::ranges::copy_if(parameters, std::back_inserter(found), predicate);
  return found;
}

// The hooks that make a parameter ready. While static mode counts, no number of them does, and none
// is too large.
std::uint32_t hooks_expected(const PassRules& rules, std::uint32_t part) {
  if (rules.counts_hooks()) return ~std::uint32_t{0};
  return rules.hooks_expected ? (*rules.hooks_expected)[part] : 1;
}

bool is_ready(const PassRules& rules, const HookCounts& hooks, std::uint32_t part) {
  return hooks[part] >= hooks_expected(rules, part);
}

// A parameter is ready when its part in every replica is (P15).
bool all_ready(const PassRules& rules, const HookCounts& hooks, std::uint32_t parameter) {
  const Parameters& parts = rules.roles.replicas[parameter];
  return std::ranges::all_of(parts,
                             [&](std::uint32_t part) { return is_ready(rules, hooks, part); });
}

// In dynamic mode the unused search does not see into checkpoints, nor what is reached beside the
// pass: the first hook of the pass has marked what is there as unused, so that its own hook counts
// as a second one (P6). With manual sync all outputs count as those of one forward (P13).
HookCounts count_hooks(const PassRules& rules, const RankPass& pass, std::uint32_t call,
                       const std::vector<AutogradHook>& hooks, HookCounts counts) {
  UnusedSearch search;
  if (rules.is_dynamic()) search = search_unused(rules.roles.owners, pass, call);
  for (const AutogradHook& hook : hooks) {
    const std::uint32_t part = hook.parameter;
    const bool is_marked = rules.is_dynamic() && (hook.is_nested || search.reached_beside[part]) &&
                           (rules.options.manual_sync || !search.seen_elsewhere[part]);
    counts[part] += is_marked ? 2 : 1;
  }
  return counts;
}

// The parameters whose hook comes too often (P6, P11).
Parameters find_ready_twice(const PassRules& rules, const HookCounts& before,
                            const HookCounts& after) {
  if (rules.options.repeated_hooks) return {};
  return those_of(rules.roles.parts, [&](std::uint32_t part) {
    return after[part] > before[part] && after[part] > hooks_expected(rules, part);
  });
}

// In dynamic mode none: what has no hook in the first call counts as unused.
Parameters find_missing(const PassRules& rules, const HookCounts& hooks) {
  if (rules.is_dynamic()) return {};
  return those_of(rules.roles.parts,
                  [&](std::uint32_t part) { return !is_ready(rules, hooks, part); });
}

// Whether the call brings the parameter to its bucket: with the hook that makes it ready, or, if it
// will have none, with the first hook of the pass. Where hooks that run again count, the call that
// completes the pass brings all.
bool is_filled(const PassRules& rules, const Call& call, const HookCounts& hooks,
               std::uint32_t parameter) {
  if (rules.is_dynamic() || rules.counts_hooks()) return call.is_first;
  if (rules.options.repeated_hooks) return find_missing(rules, hooks).empty();
  const bool was_ready = !call.is_first && all_ready(rules, call.hooks_before, parameter);
  return all_ready(rules, hooks, parameter) && !was_ready;
}

// The gradients that the call brings to their buckets although they require grad (P16).
Parameters find_requiring(const PassRules& rules, const Call& call, const HookCounts& hooks) {
  return those_of(rules.roles.parts, [&](std::uint32_t part) {
    return call.requires_grad[part] && is_filled(rules, call, hooks, rules.roles.originals[part]);
  });
}

// What no rank used in the counted pass is not reduced: that a rank uses it now is an error (P11).
Parameters find_usage_change(const PassRules& rules, const Call& call, const HookCounts& hooks) {
  if (!rules.used_set) return {};
  assert(rules.used_set->size() == call.is_used.size());
  return those_of(rules.roles.reduced, [&](std::uint32_t parameter) {
    const Parameters& parts = rules.roles.replicas[parameter];
    const bool is_used =
        std::ranges::any_of(parts, [&](std::uint32_t part) { return call.is_used[part]; });
    const bool is_due = rules.counts_hooks() || all_ready(rules, hooks, parameter);
    return is_used && is_due && !(*rules.used_set)[parameter];
  });
}

void note_use(const std::vector<AutogradHook>& hooks, const Parameters& but, Call& call) {
  for (const AutogradHook& hook : hooks) {
    if (hook.is_defined() && !contains(but, hook.parameter)) call.is_used[hook.parameter] = true;
    if (hook.requires_grad()) call.requires_grad[hook.parameter] = true;
  }
}

void fail(RankReadiness& rank, Error error, const Parameters& parameters) {
  assert(rank.error == Error::kNone);
  assert(!parameters.empty());
  rank.error = error;
  rank.parameters = parameters;
}

// The call, and the error that it ends in. The hook of a parameter that is ready twice raises
// before its gradient is touched; that such a gradient requires grad may still be the first of the
// two errors.
void run_call(const PassRules& rules, const std::vector<AutogradHook>& hooks, Call& call,
              RankReadiness& rank) {
  assert(rank.error == Error::kNone);
  assert(call.hooks_before.size() == rank.hooks_run.size());
  rank.missing = find_missing(rules, rank.hooks_run);
  const Parameters ready_twice = find_ready_twice(rules, call.hooks_before, rank.hooks_run);
  for (const std::uint32_t part : ready_twice)
    if (!is_ready(rules, call.hooks_before, part))
      rank.ambiguous.insert(rank.ambiguous.end(), {part, rules.roles.originals[part]});
  note_use(hooks, ready_twice, call);
  const Parameters requiring = find_requiring(rules, call, rank.hooks_run);
  const Parameters changed = find_usage_change(rules, call, rank.hooks_run);
  if (!ready_twice.empty()) {
    fail(rank, Error::kReadyTwice, ready_twice);
    rank.requiring = requiring;
  } else if (!requiring.empty()) {
    fail(rank, Error::kRequiresGrad, requiring);
  } else if (!changed.empty()) {
    fail(rank, Error::kUsageChanged, changed);
  }
}

}  // namespace

RankReadiness local_readiness(std::size_t parameters, const Calls& calls) {
  RankReadiness rank;
  rank.calls_run = rank.calls_reduced = static_cast<std::uint32_t>(calls.size());
  rank.hooks_run.resize(parameters);
  return rank;
}

namespace {

// A local backward in the middle of a pass raises where the pass has taken the gradient (P1).
Parameters find_taken(const PassRules& rules, const std::vector<AutogradHook>& hooks,
                      const HookCounts& counts) {
  if (rules.options.repeated_hooks) return {};  // the pass takes nothing before it is complete
  return those_of(rules.roles.parts, [&](std::uint32_t part) {
    const bool is_reached =
        std::ranges::any_of(hooks, [part](const auto& hook) { return hook.parameter == part; });
    return is_reached && all_ready(rules, counts, rules.roles.originals[part]);
  });
}

// Whether the call starts from outputs of an earlier pass, which is complete (P7).
bool starts_at_complete_pass(const PassRules& rules, const Backward& call) {
  return call.held_synced && rules.held != nullptr &&
         !held_outputs(PassKind::kSynced, *rules.held, true).empty();
}

RankReadiness run_calls(const PassRules& rules, const RankPass& pass, const Calls& calls,
                        const Gradients& gradients) {
  assert(calls.size() == call_count(pass));
  assert(gradients.size() == rules.roles.owners.size());
  RankReadiness rank;
  rank.hooks_run.resize(gradients.size());
  Call call;
  call.is_first = true;
  call.is_used.resize(gradients.size());
  call.requires_grad.resize(gradients.size());
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    call.is_used[p] = gradients[p].is_used;
    call.requires_grad[p] = gradients[p].requires_grad;
  }
  for (std::uint32_t c = 0; c < calls.size(); ++c) {
    rank.error_call = rank.calls_run = c;
    if (backward_of(pass, c).zeroes) {  // P10
      call.is_used.assign(gradients.size(), false);
      call.requires_grad.assign(gradients.size(), false);
    }
    const bool is_synced = is_synced_call(pass, c);
    // The error comes before any gradient is touched (P7).
    if ((rank.is_complete && is_synced) || starts_at_complete_pass(rules, backward_of(pass, c))) {
      rank.error = Error::kSecondBackward;
      return rank;
    }
    rank.calls_run = c + 1;
    if (rank.is_complete) continue;
    rank.calls_reduced = c + 1;
    if (!is_synced) {
      Parameters taken;
      if (!call.is_first) taken = find_taken(rules, calls[c], rank.hooks_run);
      note_use(calls[c], taken, call);
      if (taken.empty()) continue;
      fail(rank, Error::kReadyTwice, taken);
      return rank;
    }
    rank.has_begun = true;
    call.hooks_before = rank.hooks_run;
    rank.hooks_run = count_hooks(rules, pass, c, calls[c], call.hooks_before);
    run_call(rules, calls[c], call, rank);
    if (rank.error != Error::kNone) return rank;
    // While static mode counts, too, what has no hook in the first call counts as unused (P11).
    rank.is_complete = rules.counts_hooks() || rank.missing.empty();
    call.is_first = false;
    if (rank.is_complete || live_output_reaches(rules.roles.owners, pass, c, rank.missing))
      continue;
    fail(rank, Error::kIncomplete, rank.missing);
    return rank;
  }
  if (rank.is_complete) return rank;
  assert(rank.has_begun);                        // normalize() sees to it
  fail(rank, Error::kIncomplete, rank.missing);  // check_complete() raises it
  rank.error_call = rank.calls_run;
  return rank;
}

// Whether an error of the calls, if there is one, is found only when the backward ends. While
// static mode counts hooks, gradients are copied to their buckets then; and so are those of unused
// parameters, if no hook ran in the backward.
bool is_found_at_end(const PassRules& rules, const RankReadiness& rank) {
  const bool has_run_none = std::ranges::all_of(
      rules.roles.parts, [&](std::uint32_t part) { return rank.hooks_run[part] == 0; });
  const bool fills_at_end = rules.counts_hooks() || has_run_none;
  return rank.error == Error::kNone || rank.error == Error::kIncomplete ||
         rank.error == Error::kUsageChanged || (rank.error == Error::kRequiresGrad && fills_at_end);
}

// Whether the others notice that a bucket without elements is not launched is left open. A bucket
// whose hook starts no collective cannot be missed (S4).
bool is_needed(const PassRules& rules, const ExpectedBucket& bucket) {
  return (bucket.count > 0 && rules.options.hook_result != HookResult::kLocal) || bucket.sparse;
}

}  // namespace

bool has_collectives(const PassRules& rules, const std::vector<ExpectedBucket>& buckets) {
  const bool sends_usage = rules.is_dynamic() || (rules.counts_hooks() && !rules.used_set);
  return (sends_usage && !rules.roles.reduced.empty()) || rules.options.join != Join::kNone ||
         std::ranges::any_of(
             buckets, [&](const ExpectedBucket& bucket) { return is_needed(rules, bucket); });
}

// A second checkpoint around the whole model may fail the backward before it ends (P1, P12). That
// error takes the place of an error that would be found at the end.
RankReadiness readiness(const PassRules& rules, const RankPass& pass, const Calls& calls,
                        const Gradients& gradients) {
  RankReadiness rank = run_calls(rules, pass, calls, gradients);
  if (pass.recompute != Recompute::kTwiceFails || !is_found_at_end(rules, rank)) return rank;
  assert(calls.size() == 1);
  rank.error = Error::kForwardInBackward;
  rank.is_complete = false;
  rank.error_call = 0;
  rank.parameters.clear();
  rank.requiring.clear();
  return rank;
}

// A rank launches no bucket whose parameters it lacks, and no later one (P3). While static mode
// counts, it launches not even the usage map, unless what comes to the buckets is refused. After
// backward (P14) a rank whose backward failed, or whose pass is not complete, launches none. In
// dynamic mode a rank lacks nothing but what is refused.
bool withholds_buckets(const PassRules& rules, const std::vector<ExpectedBucket>& buckets,
                       const RankReadiness& rank) {
  assert(rank.error != Error::kNone);
  assert(!rank.is_complete);
  if (!rank.has_begun) return has_collectives(rules, buckets);
  const bool is_refused = rank.error == Error::kRequiresGrad;
  const bool counts = rules.counts_hooks();
  const Parameters ready_twice = rank.ready_twice();
  Parameters lacking = is_refused ? rank.parameters : rank.requiring;
  std::erase_if(lacking, [&](std::uint32_t part) { return contains(ready_twice, part); });
  if (!(counts && is_refused)) {
    // The rank withholds the usage map, which comes before all buckets.
    if (counts && !rules.used_set && !rank.missing.empty()) return true;
    lacking.insert(lacking.end(), rank.missing.begin(), rank.missing.end());
  }
  const bool is_broken_off = rank.error == Error::kForwardInBackward;
  if (counts && is_broken_off && !rules.used_set && !rules.roles.reduced.empty()) return true;
  const bool has_failed = rank.error == Error::kReadyTwice || rank.error == Error::kUsageChanged ||
                          is_broken_off || (is_refused && !counts);
  const bool is_after =
      rules.options.launch == Launch::kAfterBackward || rules.options.repeated_hooks;
  const bool launches_none =
      (is_after && (has_failed || !lacking.empty())) || (counts && is_broken_off);
  const auto is_withheld = [&](const ExpectedBucket& bucket) {
    const auto is_in_it = [&](std::uint32_t part) {
      return contains(bucket.parameters, rules.roles.originals[part]);
    };
    return launches_none || std::ranges::any_of(lacking, is_in_it);
  };
  const auto first = std::ranges::find_if(buckets, is_withheld);
  return std::any_of(first, buckets.end(),
                     [&](const ExpectedBucket& bucket) { return is_needed(rules, bucket); });
}

}  // namespace lockstep::reference
