#include "properties/oracle/outcomes.h"

#include <algorithm>

namespace lockstep::properties {
namespace {

using reference::Error;
using reference::ExpectedRankStep;
using reference::Outcome;

constexpr Among kGroupEnded = Among::of({Code::kAborted, Code::kPeerLost});
constexpr Among kUneven = Among::of({Code::kUnevenInputs});

void allow(std::vector<AllowedError>& errors, const char* because, const ErrorPattern& pattern) {
  errors.push_back({.because = because});
  errors.back().requirements.allow(Must::kCode, pattern);
}

// A failed collective has a sequence number.
void require_form(Requirements& it) {
  it.allow(Must::kForm, {.without = kNamesCollective});
  it.allow(Must::kForm, {.with = kKnowsCollective | kNamesSequence});
}

}  // namespace

Outcomes::Outcomes(const Case& c, const reference::Expectation& expectation,
                   const Observation& observation)
    : c_(c, expectation, observation), program_(c_), faults_(c_, program_) {}

AllowedOutcomes Outcomes::success_of_step(std::uint32_t step) const {
  AllowedOutcomes allowed;
  const RankObservation& seen = c_.observation_.ranks[c_.rank_];
  const ExpectedRankStep& expected = c_.expectation_.steps[step].ranks[c_.rank_];
  // What needs nobody, such as the root's end of a broadcast, may still end well.
  if (seen.left_out_in && step >= *seen.left_out_in) {
    allowed.open = Unspecified::kPeerLeft;
    allowed.is_anything = !c_.holds_together(step);
    if (!allowed.is_anything) allowed.must_fail = "the others went on without it";
    return allowed;
  }
  if (seen.exited && step == seen.steps.back().step) {  // it owes no error
    allowed.open = Unspecified::kLastStepOfExited;
    allowed.is_anything = true;
    return allowed;
  }
  // It has exited, and was ahead of those who recovered without it.
  if (!expected.present) {
    allowed.open = Unspecified::kAheadOfRecovery;
    allowed.is_anything = true;
    return allowed;
  }
  switch (expected.outcome) {
    case Outcome::kSuccess:
      break;
    case Outcome::kOwnError:
      allowed.must_fail = "it must raise an error";
      break;
    case Outcome::kPeerError:
      allowed.must_fail = "a peer must raise an error";
      break;
    case Outcome::kSuccessOrPeerError:
      allowed.open = Unspecified::kOutcomeByTime;
      break;
  }
  return allowed;
}

AllowedOutcomes Outcomes::of_step(std::uint32_t step) const {
  AllowedOutcomes allowed = success_of_step(step);
  if (allowed.is_anything) return allowed;
  const auto& left_out_in = c_.observation_.ranks[c_.rank_].left_out_in;
  if (left_out_in && step >= *left_out_in) {
    allow(allowed.errors, "the others went on without it",
          {.codes = ~Among::of({Code::kInternal}), .open = Unspecified::kPeerLeft});
    return allowed;
  }
  if (is_interrupted(step)) {
    allow(allowed.errors, "another reducer fails beside this one",
          {.open = Unspecified::kOtherReducer});
    return allowed;
  }
  require_wait(step, allowed.of_all_errors);
  require_state(step, allowed.of_all_errors);
  require_form(allowed.of_all_errors);
  require_own_view(allowed.of_all_errors);
  program_.allow_in_step(step, allowed.errors);
  // A rank that completed the step leaves its group if a peer must fail in the step (S2). Other
  // ranks may notice this before they receive the error, and before their own last bytes arrive:
  // then they never reach a second backward; nor another error of their own, if the others complete
  // the step without their buckets, because a communication hook leaves each rank its own.
  const reference::ExpectedStep& all = c_.expectation_.steps[step];
  const ExpectedRankStep& own = all.ranks[c_.rank_];
  const reference::Replicated& options = c_.case_.program.options;
  const bool is_needed = options.hook != reference::Hook::kElsewhere ||
                         options.hook_result != reference::HookResult::kLocal;
  const bool may_be_left = own.outcome == Outcome::kSuccessOrPeerError ||
                           own.error == Error::kSecondBackward ||
                           (own.outcome == Outcome::kOwnError && !is_needed);
  if (c_.joins() && all.any_error && may_be_left)
    allow(allowed.errors, "a peer may leave before its error arrives",
          {.codes = kGroupEnded,
           .reporters = Among::of({c_.group_rank(step, c_.rank_)}),
           .open = Unspecified::kPeerLeft});
  if (program_.may_mismatch())
    allow(allowed.errors, "two reducers share a group",
          {.codes = Among::of({Code::kMismatch}), .open = Unspecified::kSharedGroup});
  faults_.allow_in_step(step, allowed.errors);
  if (!allowed.errors.empty()) faults_.allow_without_reports(step, allowed.errors);
  return allowed;
}

// An error in the pass of one reducer interrupts the pass of the other, which reports what it knows
// of that (F7). If two ranks lack something in passes of different reducers, neither may raise its
// error before the timeout. This holds in this step, or in a later one that a peer has already
// reached.
bool Outcomes::is_interrupted(std::uint32_t step) const {
  if (c_.has_one_reducer()) return false;
  for (std::uint32_t at = step; at < c_.expectation_.steps.size(); ++at) {
    if (c_.expectation_.steps[at].any_error) return true;
    if (at > step && c_.holds_together(at)) return false;
  }
  return false;
}

// A backward that failed by itself had started nothing (P14). A communication hook fails after
// backward has ended, and static mode checks its counts at that time, too. Ranks that join announce
// their passes before.
void Outcomes::require_wait(std::uint32_t step, Requirements& it) const {
  const reference::Replicated& options = c_.case_.program.options;
  if (options.launch != reference::Launch::kAfterBackward) return;
  if (c_.joins() || c_.is_local(step)) return;
  Among in_backward = Among::of({Code::kReadyTwice});
  const auto add = [&](Code code) { in_backward.add(static_cast<std::int64_t>(code)); };
  if (options.mode != reference::Mode::kStatic) add(Code::kRequiresGrad);
  if (options.hook != reference::Hook::kElsewhere) add(Code::kUserFailure);
  it.allow(Must::kWait, {.codes = ~in_backward});
  if (c_.may_have_aborted(step)) it.allow(Must::kWait, {});
  it.allow(Must::kWait, {.without = kIsOwn});
  it.allow(Must::kWait, {.without = kHadLaunched});
  // What was started belongs to the pass before.
  it.allow(Must::kWait, {.calls = c_.local_calls(c_.rank_, step)});
}

// After an error of its own the rank's reducer refuses work if it had launched a collective in the
// pass; otherwise it remains usable, as after the failure of a backward that belongs to no pass.
// After all other errors it refuses work (P12).
void Outcomes::require_state(std::uint32_t step, Requirements& it) const {
  if (!c_.observation_.recovers) return;  // a new reducer takes its place, whatever its state is
  // A reducer whose user has aborted it, or its groups, has no group that works. Where more may
  // have failed, that is known if the error is the abort.
  if (c_.may_have_aborted(step) && c_.has_one_reducer() && !c_.is_one_abort()) {
    it.allow(Must::kAbort, {.without = kHasTextOfAbort});
    it.allow(Must::kAbort, {.with = kHasTextOfAbort | kRefusesWork});
  }
  if (c_.may_have_aborted(step)) it.allow(Must::kState, {.with = kRefusesWork});
  if (c_.may_have_aborted(step) && c_.is_one_abort()) return;
  constexpr Among kRefused = Among::of({Code::kSecondBackward});
  constexpr Among kMemory = Among::of({Code::kOutOfMemory});
  constexpr Among kOwn = kOwnErrors & ~kRefused & ~kUneven & ~kMemory;
  it.allow(Must::kState, {.codes = ~kOwnErrors, .with = kRefusesWork});
  it.allow(Must::kState,
           {.codes = kOwn | kRefused | kMemory, .with = kRefusesWork, .without = kIsOwn});
  it.allow(Must::kState, {.codes = kRefused, .with = kIsOwn, .without = kRefusesWork});
  // A rank that raised the error may have left before others received it (S2).
  it.allow(Must::kState, {.codes = kUneven, .with = kNamesCollective | kRefusesWork});
  it.allow(Must::kState, {.codes = kUneven, .without = kNamesCollective | kRefusesWork});
  // A forward sends buffers, or lays out buckets, with all ranks: a rank that is refused memory
  // then ends the group. A collective may need memory itself. (A checkpoint runs its forward inside
  // of the backward.)
  constexpr std::int64_t kForward = -1;  // ObservedStep::failed_call
  const reference::Step& record = c_.case_.program.steps[step];
  const reference::RankPass& pass = record.variants[c_.rank_ % record.variants.size()];
  const bool is_nested = pass.recompute != reference::Recompute::kNone;
  const Among forwards = is_nested ? Among() : Among::of({kForward});
  it.allow(Must::kState, {.codes = kMemory, .calls = forwards, .with = kIsOwn | kRefusesWork});
  it.allow(Must::kState, {.codes = kMemory, .with = kIsOwn | kNamesCollective | kRefusesWork});
  require_state_after_backward(kOwn, {}, step, it);
  require_state_after_backward(kMemory, is_nested ? Among() : ~forwards, step, it);
  // The launched collective may belong to the other reducer, which has not failed.
  if (!c_.has_one_reducer())
    it.allow(Must::kState, {.codes = kOwn | kUneven | kMemory,
                            .with = kIsOwn,
                            .without = kRefusesWork,
                            .open = Unspecified::kPoisonOfOther});
}

// Says whether the rank refuses further work after an error of its own with one of these codes, in
// one of these calls.
void Outcomes::require_state_after_backward(Among codes, Among calls, std::uint32_t step,
                                            Requirements& it) const {
  const Among local = c_.is_local(step) ? Among() : c_.local_calls(c_.rank_, step);
  const Among synced = calls & ~local;
  it.allow(Must::kState,
           {.codes = codes, .calls = synced, .with = kIsOwn | kHadLaunched | kRefusesWork});
  it.allow(
      Must::kState,
      {.codes = codes, .calls = synced, .with = kIsOwn, .without = kHadLaunched | kRefusesWork});
  it.allow(Must::kState,
           {.codes = codes, .calls = calls & local, .with = kIsOwn, .without = kRefusesWork});
}

// A rank that reports a peer's own error has observed something itself, and must report that, too
// (F2).
void Outcomes::require_own_view(Requirements& it) const {
  constexpr Among kNoRank = Among::of({kNone});
  it.allow(Must::kOwnView, {.codes = ~kOwnErrors});
  it.allow(Must::kOwnView, {.with = kIsOwn});
  it.allow(Must::kOwnView, {.causes = kNoRank});
  it.allow(Must::kOwnView, {.reporters = kNoRank});
  it.allow(Must::kOwnView, {.codes = kUneven, .open = Unspecified::kAttached});
  // Over NCCL a rank may learn from its group alone, and not by an error of its own, that a peer's
  // collective was refused memory.
  if (c_.is_over_nccl())
    it.allow(Must::kOwnView, {.codes = Among::of({Code::kOutOfMemory}), .with = kNamesCollective});
  if (c_.observation_.attaches)
    it.allow(Must::kOwnView, {.codes = ~kUneven, .with = kSaysWhatItSaw});
  else
    it.allow(Must::kOwnView, {.open = Unspecified::kAttached});
}

// A rank without inputs must report why the passes of others ended.
AllowedOutcomes Outcomes::of_end_join() const {
  AllowedOutcomes allowed;
  const bool fails = c_.program_fails();
  if (c_.fatal_.empty() && !fails) return allowed;
  Requirements& all = allowed.of_all_errors;
  if (c_.is_all_payload() && !fails && c_.broken_stores_.empty())
    all.allow(Must::kChange, {.codes = Among::of({Code::kCorrupted})});
  all.allow(Must::kCode, {.codes = ~Among::of({Code::kInternal, Code::kPoisoned})});
  if (c_.may_have_aborted()) all.allow(Must::kCode, {.codes = Among::of({Code::kPoisoned})});
  all.allow(Must::kPass, {.passes = program_.passes_of_join()});
  require_form(all);
  program_.allow_in_join(allowed.errors);
  // The peer with the error may have left before its flight record was stored.
  if (fails)
    allow(allowed.errors, "a peer may leave before its error arrives",
          {.codes = kGroupEnded, .open = Unspecified::kPeerLeft});
  faults_.allow_in_join(allowed.errors);
  return allowed;
}

// Whether the peer failed, or ended, in the group of the attempt. A rank that exits or hangs may
// leave no record of its last step.
Outcomes::Loss Outcomes::loss_in_group_of(const FailedCall& attempt, std::size_t peer) const {
  const RankObservation& seen = c_.observation_.ranks[peer];
  const auto has_failed = [&](const ObservedStep& step) {
    const bool is_last = &step == &seen.steps.back();
    const bool is_lost = is_last && (seen.exited || seen.was_replaced || seen.silenced);
    return step.generation == attempt.generation && (is_lost || !step.status.ok());
  };
  const auto is_of_group = [&](const FailedCall& call) {
    return call.generation == attempt.generation;
  };
  const auto& ends = seen.failed_end_joins;
  if (std::any_of(seen.steps.begin(), seen.steps.end(), has_failed) ||
      std::any_of(ends.begin(), ends.end(), is_of_group))
    return Loss::kYes;
  const auto is_lost_there = [&](const faults::Fault& fault) {
    const bool is_recorded = !seen.steps.empty() && fault.step <= seen.steps.back().step;
    return fault.rank == peer && attempt.step <= fault.step && !is_recorded;
  };
  const bool may_be_lost = (seen.exited || seen.was_replaced) &&
                           std::any_of(c_.fatal_.begin(), c_.fatal_.end(), is_lost_there);
  return may_be_lost ? Loss::kUnrecorded : Loss::kNone;
}

// A peer may have gone on to its next step, failed there, and ended the group in which this rank
// was still being constructed or reset, or had not even begun to be. Why the peer failed is judged
// as its own error.
AllowedOutcomes Outcomes::of_failed_attempt(const FailedCall& attempt) const {
  Loss most = Loss::kNone;
  for (std::size_t rank = 0; rank < c_.observation_.ranks.size(); ++rank)
    if (rank != c_.rank_ && c_.is_peer(rank, c_.rank_))
      most = std::max(most, loss_in_group_of(attempt, rank));
  AllowedOutcomes allowed;
  // A rank whose network fails at once after its own reset takes the end of the others' with it.
  const auto cuts_off = [&](const faults::Fault& fault) {
    return faults::is_network(fault.kind) && c_.is_peer(fault.rank, c_.rank_) &&
           attempt.step <= fault.step;
  };
  if (std::any_of(c_.fatal_.begin(), c_.fatal_.end(), cuts_off))
    allow(allowed.errors, "a fault of the network may have begun",
          {.open = Unspecified::kEndsOfLink});
  if (most == Loss::kYes) allow(allowed.errors, "a peer of the group failed", {});
  if (most == Loss::kUnrecorded)
    allow(allowed.errors, "a peer ended, perhaps meanwhile",
          {.open = Unspecified::kLastStepOfExited});
  // The user of a rank that is ahead may have aborted where the rank needs nobody any more.
  const auto aborts = [&](const faults::Fault& fault) {
    if (fault.kind != faults::Kind::kUserAbort || !c_.is_peer(fault.rank, c_.rank_)) return false;
    const auto& steps = c_.observation_.ranks[fault.rank].steps;
    return std::any_of(steps.begin(), steps.end(), [&](const ObservedStep& step) {
      return step.generation == attempt.generation && step.step == fault.step;
    });
  };
  if (std::any_of(c_.fatal_.begin(), c_.fatal_.end(), aborts))
    allow(allowed.errors, "the user of a peer may have aborted", {});
  const auto acts_there = [&](const faults::Fault& fault) {
    return fault.in_reset && fault.step == attempt.step && c_.is_peer(fault.rank, c_.rank_);
  };
  if (std::any_of(c_.fatal_.begin(), c_.fatal_.end(), acts_there) ||
      std::any_of(c_.broken_stores_.begin(), c_.broken_stores_.end(), acts_there))
    allow(allowed.errors, "a fault acted in the reset", {});
  return allowed;
}

}  // namespace lockstep::properties
