// The oracle on errors: every expected error is present, no other error is, and each names what the
// contract requires (F2). What it cannot judge, it counts by reason (unspecified.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "properties/oracle/fault_errors.h"
#include "properties/oracle/oracles.h"
#include "properties/oracle/program_errors.h"

namespace lockstep::properties {
namespace {

using reference::Error;
using reference::ExpectedRankStep;
using reference::Outcome;

class ErrorOracle {
 public:
  ErrorOracle(const Case& c, const reference::Expectation& expectation,
              const Observation& observation)
      : c_(c, expectation, observation), program_(c_), fault_(c_, program_) {}

  Verdict judge() {
    for (c_.rank_ = 0; c_.rank_ < c_.observation_.ranks.size(); ++c_.rank_) {
      const RankObservation& seen = c_.observation_.ranks[c_.rank_];
      if (!seen.construction.ok())
        return c_.wrong("construction",
                        "the reducer could not be constructed: " + seen.construction.to_string());
      if (!seen.recovery.ok())
        return c_.wrong("reuse", "reset with a new group failed: " + seen.recovery.to_string());
      for (const FailedCall& join : seen.failed_joins)
        if (Verdict verdict = judge_failed_join(join).settle(counts_); !verdict.ok())
          return verdict;
      for (std::size_t i = 0; i < seen.steps.size(); ++i) {
        if (seen.exited && i + 1 == seen.steps.size()) {  // it owes no error
          counts_.note(Unspecified::kLastStepOfExited);
          break;
        }
        if (Verdict verdict = judge_step(seen.steps[i]); !verdict.ok()) return verdict;
      }
      if (Verdict verdict = judge_joining(seen.joining); !verdict.ok()) return verdict;
      if (!seen.finished && !seen.exited)
        return c_.wrong("progress", "left before the end of its program");
      if (Verdict verdict = judge_unnoticed(seen); !verdict.ok()) return verdict;
    }
    Verdict verdict;
    verdict.unspecified = counts_;
    return verdict;
  }

 private:
  // A peer may have gone on to its next step, failed there, and ended the group in which this rank
  // was still being constructed or reset. Why the peer failed is judged as its own error. A rank
  // that exits or hangs may leave no record of its last step; there its fault is the reason.
  Ruling judge_failed_join(const FailedCall& join) const {
    bool may_be_lost = false;
    for (std::size_t rank = 0; rank < c_.observation_.ranks.size(); ++rank) {
      if (rank == c_.rank_ || !c_.is_peer(rank, c_.rank_)) continue;
      const RankObservation& seen = c_.observation_.ranks[rank];
      const auto has_failed = [&](const ObservedStep& step) {
        const bool is_last = &step == &seen.steps.back();
        const bool is_lost = is_last && (seen.exited || seen.silenced);
        const bool is_during = step.begin_us <= join.end_us &&
                               (join.begin_us <= step.end_us || (is_lost && step.end_us == 0));
        return join.step <= step.step && is_during && (is_lost || !step.status.ok());
      };
      if (std::any_of(seen.steps.begin(), seen.steps.end(), has_failed)) return {};
      const auto is_during = [&](const FailedCall& call) {
        return join.step <= call.step && call.begin_us <= join.end_us &&
               join.begin_us <= call.end_us;
      };
      const auto& ends = seen.failed_end_joins;
      if (std::any_of(ends.begin(), ends.end(), is_during)) return {};
      const auto is_lost_there = [&](const faults::Fault& fault) {
        const bool is_recorded = !seen.steps.empty() && fault.step <= seen.steps.back().step;
        return fault.rank == rank && join.step <= fault.step && !is_recorded;
      };
      may_be_lost = may_be_lost ||
                    (seen.exited && std::any_of(c_.fatal_.begin(), c_.fatal_.end(), is_lost_there));
    }
    if (may_be_lost) return Unspecified::kLastStepOfExited;
    return c_.wrong("reuse", "the reducer could be constructed or reset only at a further attempt");
  }

  // A rank without inputs must report why the passes of others ended (S2).
  Verdict judge_joining(const Status& joining) {
    if (joining.ok()) return {};
    if (c_.fatal_.empty() && !c_.program_fails())
      return c_.wrong("error", "end_join failed without a reason: " + joining.to_string());
    const Code code = joining.code();
    if (c_.is_all_payload() && !c_.program_fails() && code != Code::kCorrupted)
      return c_.wrong("error", "end_join does not say what was changed: " + joining.to_string());
    const bool is_no_pass = !program_.is_pass_of_join(joining.failure());
    if (code == Code::kInternal || code == Code::kPoisoned || is_no_pass)
      return c_.wrong("error", "end_join does not name a cause: " + joining.to_string());
    if (lacks_sequence(joining.failure()))
      return c_.wrong("error", "end_join does not name the sequence number of the collective: " +
                                   joining.to_string());
    const ProgramErrors::Match own = program_.match_some_step(joining.failure());
    if (own == ProgramErrors::Match::kUnknown) counts_.note(Unspecified::kLayout);
    if (own != ProgramErrors::Match::kNo) return {};
    // The peer with the error may have left before its flight record was stored.
    if (c_.program_fails() && (code == Code::kAborted || code == Code::kPeerLost))
      return Ruling(Unspecified::kPeerLeft).settle(counts_);
    if (c_.fatal_.empty())
      return c_.wrong("error", "end_join names no error of the program: " + joining.to_string());
    return fault_.judge_join(joining.failure()).settle(counts_);
  }

  Verdict judge_step(const ObservedStep& step) {
    const ExpectedRankStep& expected = c_.expectation_.steps[step.step].ranks[c_.rank_];
    if (!expected.present) {  // it has exited, and was ahead of those who recovered without it
      counts_.note(Unspecified::kAheadOfRecovery);
      return {};
    }
    const bool must_fail =
        expected.outcome == Outcome::kOwnError || expected.outcome == Outcome::kPeerError;
    if (expected.outcome == Outcome::kSuccessOrPeerError) counts_.note(Unspecified::kOutcomeByTime);
    if (step.status.ok()) {
      if (!must_fail) return {};
      return c_.wrong_step(
          "error", step,
          "ended well, but " + program_.describe_cause(step.step) + " had to be raised");
    }
    ++counts_.errors;
    counts_.note(Unspecified::kDetails);
    if (breaks_passes_off(step)) return Ruling(Unspecified::kOtherReducer).settle(counts_);
    if (Verdict verdict = judge_poison(step).settle(counts_); !verdict.ok()) return verdict;
    const Failure& failure = step.status.failure();
    if (Verdict verdict = judge_attached(step, failure).settle(counts_); !verdict.ok())
      return verdict;
    const ProgramErrors::Match own = program_.match_step(step, failure);
    if (own == ProgramErrors::Match::kUnknown) counts_.note(Unspecified::kLayout);
    if (own != ProgramErrors::Match::kNo) return {};
    if (is_left_by_peer(step, failure)) return Ruling(Unspecified::kPeerLeft).settle(counts_);
    if (c_.may_mismatch() && failure.code == Code::kMismatch)
      return Ruling(Unspecified::kSharedGroup).settle(counts_);
    if (c_.excused_by_fault(step.step)) return fault_.judge(step, failure, counts_);
    if (expected.outcome != Outcome::kSuccess)
      return c_.wrong_step("error", step,
                           "the error must be " + program_.describe_cause(step.step) +
                               ", and is: " + step.status.to_string());
    const bool hung = failure.code == Code::kTimeout;
    return c_.wrong_step(hung ? "progress" : "error", step,
                         "failed without a reason: " + step.status.to_string(),
                         hung ? Failing::kDeadlock : Failing::kWrongError);
  }

  // A failed collective has a sequence number. A rank that reports a peer's error has observed
  // something itself, and must report that, too (F2).
  Ruling judge_attached(const ObservedStep& step, const Failure& failure) const {
    if (!is_collective(failure.collective))
      return c_.wrong_step(
          "error", step,
          "the error names a collective that does not exist: " + failure.to_string());
    if (lacks_sequence(failure))
      return c_.wrong_step(
          "error", step,
          "the error does not name the sequence number of the collective: " + failure.to_string());
    const bool is_of_peer = is_own_error(failure.code) && failure.rank != failure.reported_by &&
                            failure.rank != kNone && failure.reported_by != kNone;
    if (!is_of_peer) return {};
    if (failure.code == Code::kUnevenInputs || !c_.observation_.attaches)
      return Unspecified::kAttached;
    const std::string own = fmt::format("rank {} saw: ", failure.reported_by);
    const bool is_told =
        std::any_of(failure.later.begin(), failure.later.end(),
                    [&](const std::string& line) { return line.starts_with(own); });
    if (is_told) return {};
    return c_.wrong_step(
        "error", step,
        "the error of a peer does not say what this rank saw: " + failure.to_string());
  }

  static bool is_collective(const std::string& name) {
    static const std::array<std::string, 4> kNames = {"", "all_reduce", "broadcast", "all_gather"};
    return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
  }

  static bool lacks_sequence(const Failure& failure) {
    return !failure.collective.empty() && failure.sequence < 0;
  }

  // A rank that completed the step leaves its group if a peer must fail in the step (S2). Other
  // ranks may notice this before they receive the error, and before their own last bytes arrive:
  // then they never reach a second backward. No other own error is excused in this way.
  bool is_left_by_peer(const ObservedStep& step, const Failure& failure) const {
    const reference::ExpectedStep& expected = c_.expectation_.steps[step.step];
    return c_.joins() && expected.any_error &&
           (expected.ranks[c_.rank_].outcome == Outcome::kSuccessOrPeerError ||
            expected.ranks[c_.rank_].error == Error::kSecondBackward) &&
           failure.reported_by == c_.group_rank(step.step, c_.rank_) &&
           (failure.code == Code::kAborted || failure.code == Code::kPeerLost);
  }

  // An error in the pass of one reducer interrupts the pass of the other, which reports what it
  // knows of that (F7). If two ranks lack something in passes of different reducers, neither may
  // raise its error before the timeout. This holds in this step, or in a later one that a peer has
  // already reached.
  bool breaks_passes_off(const ObservedStep& step) const {
    if (reference::reducer_count(c_.case_.program) == 1) return false;
    for (std::uint32_t at = step.step; at < c_.expectation_.steps.size(); ++at) {
      if (c_.expectation_.steps[at].any_error) return true;
      if (at > step.step && c_.holds_together(at)) return false;
    }
    return false;
  }

  // Whether every payload fault of the plan that acts on this rank has certainly fired.
  bool was_deceived() const {
    const auto& plan = c_.case_.faults.faults;
    return std::any_of(plan.begin(), plan.end(), [&](const faults::Fault& fault) {
      if (!faults::is_payload(fault.kind)) return false;
      const auto planned = static_cast<std::uint64_t>(
          std::count_if(plan.begin(), plan.end(),
                        [&](const faults::Fault& other) { return other.kind == fault.kind; }));
      return receiver_of(fault, c_.case_) == c_.rank_ &&
             c_.observation_.fired.counts[static_cast<std::size_t>(fault.kind)] == planned;
    });
  }

  // A rank that received other bytes than were sent must notice it (F3). If other things fail as
  // well, it may fail because of those first.
  Verdict judge_unnoticed(const RankObservation& seen) const {
    if (!c_.is_all_payload() || c_.program_fails() || c_.may_mismatch() || !was_deceived())
      return {};
    const bool failed = std::any_of(seen.steps.begin(), seen.steps.end(),
                                    [](const ObservedStep& step) { return !step.status.ok(); });
    if (failed || !seen.joining.ok()) return {};
    return c_.wrong("error", "what it received was not what was sent, and it did not notice");
  }

  // The subject must be poisoned if it launched a collective in the pass or the group itself
  // failed; otherwise it must remain usable (P12).
  Ruling judge_poison(const ObservedStep& step) const {
    const Failure& failure = step.status.failure();
    const bool own = is_own_error(failure.code) && failure.rank == failure.reported_by;
    bool must = !own || (step.launched && !c_.is_local(step));
    if (own && failure.code == Code::kSecondBackward) must = false;
    // A rank that raised the error may have left before others received it (S2).
    if (failure.code == Code::kUnevenInputs) must = !failure.collective.empty();
    // A backward that failed by itself had started nothing (P14). A communication hook fails after
    // backward has ended, and static mode checks its counts at that time, too.
    const bool after = c_.case_.program.options.launch == reference::Launch::kAfterBackward;
    const bool has_hook = c_.case_.program.options.hook == reference::Hook::kElsewhere;
    const bool is_static = c_.case_.program.options.mode == reference::Mode::kStatic;
    const bool in_backward = failure.code == Code::kReadyTwice ||
                             (failure.code == Code::kRequiresGrad && !is_static) ||
                             (failure.code == Code::kUserFailure && !has_hook);
    const bool joins = c_.joins();  // joining ranks announce their passes
    if (after && own && in_backward && step.launched && !c_.is_local(step) && !joins)
      return c_.wrong_step(
          "schedule", step,
          "collectives were started before the backward ended: " + failure.to_string());
    if (step.poisoned == must) return {};
    // The launched collective may belong to the other reducer, which has not failed.
    if (own && !c_.has_one_reducer() && !step.poisoned) return Unspecified::kPoisonOfOther;
    return c_.wrong_step(
        "poison", step,
        fmt::format("after this error the reducer must {}, and does not: {}",
                    must ? "refuse work until reset" : "stay usable", failure.to_string()));
  }

  ErrorContext c_;
  const ProgramErrors program_;
  FaultErrors fault_;
  UnspecifiedCounts counts_;
};

}  // namespace

Verdict judge_errors(const Case& c, const reference::Expectation& expectation,
                     const Observation& observation) {
  return ErrorOracle(c, expectation, observation).judge();
}

}  // namespace lockstep::properties
