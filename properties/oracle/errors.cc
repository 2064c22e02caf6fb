// The oracle on errors: every expected error is present, no other error is, and each names what the
// contract requires (F2).
#include <fmt/format.h>

#include <algorithm>

#include "properties/case/hook_error.h"
#include "properties/oracle/fault_reach.h"
#include "properties/oracle/oracles.h"

namespace lockstep::properties {
namespace {

using reference::Error;
using reference::ExpectedRankStep;
using reference::Outcome;

Code code_of(Error error) {
  switch (error) {
    case Error::kIncomplete:
      return Code::kIncomplete;
    case Error::kReadyTwice:
      return Code::kReadyTwice;
    case Error::kSecondBackward:
      return Code::kSecondBackward;
    case Error::kUsageChanged:
      return Code::kUsageChanged;
    case Error::kRequiresGrad:
      return Code::kRequiresGrad;
    case Error::kUnevenInputs:
      return Code::kUnevenInputs;
    case Error::kForwardInBackward:
      return Code::kInvalidArgument;
    case Error::kUndefinedSparse:  // not an error of the contract
    case Error::kNone:
      break;
  }
  return Code::kOk;
}

bool is_own_error(Code code) {
  return code == Code::kIncomplete || code == Code::kReadyTwice || code == Code::kSecondBackward ||
         code == Code::kUsageChanged || code == Code::kRequiresGrad ||
         code == Code::kUnevenInputs || code == Code::kUserFailure ||
         code == Code::kInvalidArgument;
}

class ErrorOracle {
 public:
  ErrorOracle(const Case& c, const reference::Expectation& expectation,
              const Observation& observation)
      : case_(c),
        expectation_(expectation),
        observation_(observation),
        fatal_(fatal_faults(c, observation)) {}

  Verdict judge() {
    for (rank_ = 0; rank_ < observation_.ranks.size(); ++rank_) {
      const RankObservation& seen = observation_.ranks[rank_];
      if (!seen.construction.ok())
        return wrong("construction",
                     "the reducer could not be constructed: " + seen.construction.to_string());
      if (!seen.recovery.ok())
        return wrong("reuse", "reset with a new group failed: " + seen.recovery.to_string());
      if (seen.retries > 0 && fatal_.empty() && !program_fails() && !may_mismatch())
        return wrong("reuse",
                     "the reducer could be constructed or reset only at a further attempt");
      for (std::size_t i = 0; i < seen.steps.size(); ++i) {
        if (seen.exited && i + 1 == seen.steps.size())
          break;  // a rank that has exited owes no error
        if (Verdict verdict = judge_step(seen.steps[i]); !verdict.ok()) return verdict;
      }
      if (Verdict verdict = judge_joining(seen.joining); !verdict.ok()) return verdict;
      if (!seen.finished && !seen.exited)
        return wrong("progress", "left before the end of its program");
      if (Verdict verdict = judge_unnoticed(seen); !verdict.ok()) return verdict;
      if (Verdict verdict = judge_unnoticed_hook(seen); !verdict.ok()) return verdict;
    }
    return {};
  }

 private:
  Verdict wrong(const std::string& oracle, const std::string& what,
                Failing failing = Failing::kWrongError) {
    return {failing, oracle, fmt::format("rank {}: {}", rank_, what)};
  }
  Verdict wrong_step(const std::string& oracle, const ObservedStep& step, const std::string& what,
                     Failing failing = Failing::kWrongError) {
    return wrong(oracle, fmt::format("step {}: {}", step.step, what), failing);
  }

  // A rank without inputs must report why the passes of others ended (S2).
  Verdict judge_joining(const Status& joining) {
    if (joining.ok()) return {};
    if (fatal_.empty() && !program_fails())
      return wrong("error", "end_join failed without a reason: " + joining.to_string());
    const Code code = joining.code();
    if (is_all_payload() && !program_fails() && code != Code::kCorrupted)
      return wrong("error", "end_join does not say what was changed: " + joining.to_string());
    const bool is_no_pass = !is_pass_of_join(joining.failure());
    if (code == Code::kInternal || code == Code::kPoisoned || is_no_pass)
      return wrong("error", "end_join does not name a cause: " + joining.to_string());
    if (lacks_sequence(joining.failure()))
      return wrong("error", "end_join does not name the sequence number of the collective: " +
                                joining.to_string());
    if (is_error_of_a_step(joining.failure())) return {};
    // The peer with the error may have left before its flight record was stored.
    if (program_fails() && (code == Code::kAborted || code == Code::kPeerLost)) return {};
    if (fatal_.empty())
      return wrong("error", "end_join names no error of the program: " + joining.to_string());
    return judge_fault_in_join(joining.failure());
  }

  // Whether the failure correctly reports the own error of some rank. No rank reports in which step
  // the others are.
  bool is_error_of_a_step(const Failure& failure) const {
    for (std::uint32_t at = 0; at < expectation_.steps.size(); ++at) {
      ObservedStep here;
      here.step = at;
      if (any_share([&](const auto& share) { return is_cause(share, at, here, failure); }))
        return true;
    }
    return false;
  }

  Verdict judge_fault_in_join(const Failure& failure) {
    const auto lacks = [&](const std::string& what) {
      return wrong("error", "end_join does not name " + what + ": " + failure.to_string());
    };
    if (!has_rank(failure)) return lacks("a rank to look at");
    if (failure.bucket == kNone && failure.collective.empty() && !is_own_error(failure.code))
      return lacks("the bucket or collective");
    if (failure.bucket != kNone && failure.parameters.empty()) return lacks("a parameter");
    if (fatal_.size() != 1 || program_fails() || !is_of_user(fatal_[0])) return {};
    const std::uint32_t culprit = fatal_[0].rank % case_.program.world;
    if (failure.rank == group_rank(0, culprit)) return {};
    return lacks(fmt::format("that rank {} is the cause", culprit));
  }

  bool is_local(const ObservedStep& step) const {
    return case_.program.steps[step.step].kind != reference::PassKind::kSynced;
  }

  Verdict judge_step(const ObservedStep& step) {
    const ExpectedRankStep& expected = expectation_.steps[step.step].ranks[rank_];
    if (!expected.present)
      return {};  // the rank has exited; it was ahead of those who recovered without it
    const bool must_fail =
        expected.outcome == Outcome::kOwnError || expected.outcome == Outcome::kPeerError;
    if (step.status.ok()) {
      if (!must_fail) return {};
      return wrong_step("error", step,
                        "ended well, but " + describe_cause(step.step) + " had to be raised");
    }
    if (breaks_passes_off(step)) return {};
    if (Verdict verdict = judge_poison(step); !verdict.ok()) return verdict;
    const Failure& failure = step.status.failure();
    if (Verdict verdict = judge_attached(step, failure); !verdict.ok()) return verdict;
    if (is_caused_by_program(step, failure)) return {};
    if (is_left_by_peer(step, failure)) return {};
    if (may_mismatch() && failure.code == Code::kMismatch) return {};
    if (excused_by_fault(step.step)) return judge_fault_error(step, failure);
    if (expected.outcome != Outcome::kSuccess)
      return wrong_step("error", step,
                        "the error must be " + describe_cause(step.step) +
                            ", and is: " + step.status.to_string());
    const bool hung = failure.code == Code::kTimeout;
    return wrong_step(hung ? "progress" : "error", step,
                      "failed without a reason: " + step.status.to_string(),
                      hung ? Failing::kDeadlock : Failing::kWrongError);
  }

  // A failed collective has a sequence number. A rank that reports a peer's error has observed
  // something itself, and must report that, too (F2).
  Verdict judge_attached(const ObservedStep& step, const Failure& failure) {
    if (lacks_sequence(failure))
      return wrong_step(
          "error", step,
          "the error does not name the sequence number of the collective: " + failure.to_string());
    const bool is_of_peer = is_own_error(failure.code) && failure.rank != failure.reported_by &&
                            failure.rank != kNone && failure.reported_by != kNone;
    if (!is_of_peer || failure.code == Code::kUnevenInputs || !observation_.attaches) return {};
    const std::string own = fmt::format("rank {} saw: ", failure.reported_by);
    const bool is_told =
        std::any_of(failure.later.begin(), failure.later.end(),
                    [&](const std::string& line) { return line.starts_with(own); });
    if (is_told) return {};
    return wrong_step(
        "error", step,
        "the error of a peer does not say what this rank saw: " + failure.to_string());
  }

  static bool lacks_sequence(const Failure& failure) {
    return !failure.collective.empty() && failure.sequence < 0;
  }

  // Returns the first step of this step's group, or of its reducers.
  std::uint32_t begin_of_group(std::uint32_t step) const {
    std::uint32_t begin = 0;
    const auto note = [&](std::uint32_t first) {
      if (first <= step) begin = std::max(begin, first);
    };
    for (const reference::Recovery& recovery : observation_.recoveries) note(recovery.before_step);
    for (std::uint32_t s = 0; s < step && s < expectation_.steps.size(); ++s)
      if (expectation_.steps[s].any_error) note(s + 1);
    note(case_.program.renewed);
    return begin;
  }

  // Returns the number of the step's pass, or of the pass that would come next in the step.
  std::int64_t pass_number(const reference::Expectation& share, std::uint32_t step) const {
    return pass_number(share, step, begin_of_group(step));
  }
  static std::int64_t pass_number(const reference::Expectation& share, std::uint32_t step,
                                  std::uint32_t begin) {
    const auto first = share.steps.begin() + begin;
    const auto end = share.steps.begin() +
                     static_cast<std::ptrdiff_t>(std::min<std::size_t>(step, share.steps.size()));
    return std::count_if(first, end, [](const auto& each) { return each.is_reduced; });
  }

  // Return the steps in which a peer may be while this rank is in `step`: from the last step that
  // this rank could finish without the peer, to the next step that the peer cannot finish alone.
  std::uint32_t first_reached(std::uint32_t step) const {
    const std::uint32_t begin = begin_of_group(step);
    while (step > begin && !holds_together(--step)) {
    }
    return step;
  }
  std::uint32_t last_reached(std::uint32_t step) const {
    const auto steps = static_cast<std::uint32_t>(expectation_.steps.size());
    while (step + 1 < steps)
      if (holds_together(++step)) break;
    return step;
  }

  bool is_pass_of(const Failure& failure, std::uint32_t first, std::uint32_t last) const {
    // A rank that is ahead is still in the same group, even if all ranks recover before the others
    // reach its step.
    const std::uint32_t begin = begin_of_group(first);
    for (std::uint32_t at = first; at <= last; ++at)
      if (any_share(
              [&](const auto& share) { return failure.pass == pass_number(share, at, begin); }))
        return true;
    // A peer without inputs receives the announcement of the next pass (S2).
    if (case_.program.options.join == reference::Join::kNone) return false;
    return any_share([&](const auto& share) {
      return last < share.steps.size() && share.steps[last].is_reduced &&
             failure.pass == pass_number(share, last, begin) + 1;
    });
  }

  // Whether the pass belongs to any step, or to a step that would have followed in its group. For a
  // rank that a fault ended, nobody knows how many of its passes were shadowed.
  bool is_pass_of_join(const Failure& failure) const {
    const auto& steps = case_.program.steps;
    const auto is_synced = [](const auto& each) {
      return each.kind == reference::PassKind::kSynced;
    };
    if (!fatal_.empty())
      return failure.pass >= 0 &&
             failure.pass <= std::count_if(steps.begin(), steps.end(), is_synced);
    for (std::uint32_t at = 0; at < expectation_.steps.size(); ++at)
      if (any_share([&](const auto& share) {
            const std::int64_t number = pass_number(share, at);
            return failure.pass == number ||
                   (share.steps[at].is_reduced && failure.pass == number + 1);
          }))
        return true;
    return false;
  }

  // If the buckets follow an order that no rank reported, because the step of the rebuild failed,
  // their layout is unknown (B2).
  bool knows_layout(const reference::Expectation& share, std::uint32_t step) const {
    if (share.steps[step].layout == 0) return true;
    const std::uint32_t begin = begin_of_group(step);
    const auto tells = [&](const ObservedStep& each) {
      return begin <= each.step && each.step <= step && !each.rebuilt_order.empty();
    };
    const auto& ranks = observation_.ranks;
    for (std::size_t r = 0; r < ranks.size(); ++r)
      if (is_peer(r, rank_) && std::any_of(ranks[r].steps.begin(), ranks[r].steps.end(), tells))
        return true;
    return false;
  }

  // Whether the named parameters are in the named bucket: the first one for an own error; all of
  // them for a failure of the bucket.
  bool is_bucket_of(const reference::Expectation& share, std::uint32_t step,
                    const Failure& failure) const {
    if (failure.bucket == kNone) return failure.parameters.empty();
    if (!knows_layout(share, step)) return true;
    const auto& buckets = reference::buckets_of(share, share.steps[step]);
    const auto index = static_cast<std::size_t>(failure.bucket);
    if (failure.bucket < 0 || index >= buckets.size() || failure.parameters.empty()) return false;
    const auto& members = buckets[index].parameters;
    if (is_own_error(failure.code) && failure.code != Code::kUserFailure) {
      const auto is_named = [&](std::uint32_t p) { return failure.parameters[0] == name(p); };
      for (std::uint32_t p = 0; p < case_.program.parameters.size(); ++p)
        if (is_named(p))
          return std::find(members.begin(), members.end(),
                           reference::original_of(case_.program, p)) != members.end();
      return false;
    }
    return std::equal(members.begin(), members.end(), failure.parameters.begin(),
                      failure.parameters.end(),
                      [](std::uint32_t p, const std::string& named) { return named == name(p); });
  }

  bool is_bucket_of(const Failure& failure, std::uint32_t first, std::uint32_t last) const {
    const auto steps = static_cast<std::uint32_t>(expectation_.steps.size());
    for (std::uint32_t at = first; at <= last && at < steps; ++at)
      if (any_share([&](const auto& share) { return is_bucket_of(share, at, failure); }))
        return true;
    return false;
  }

  // A rank that completed the step leaves its group if a peer must fail in the step (S2). Other
  // ranks may notice this before they receive the error, and before their own last bytes arrive:
  // then they never reach a second backward. No other own error is excused in this way.
  bool is_left_by_peer(const ObservedStep& step, const Failure& failure) const {
    const reference::ExpectedStep& expected = expectation_.steps[step.step];
    return case_.program.options.join != reference::Join::kNone && expected.any_error &&
           (expected.ranks[rank_].outcome == Outcome::kSuccessOrPeerError ||
            expected.ranks[rank_].error == Error::kSecondBackward) &&
           failure.reported_by == group_rank(step.step, rank_) &&
           (failure.code == Code::kAborted || failure.code == Code::kPeerLost);
  }

  // Whether the failure names a rank to examine. For a lost peer, NCCL does not say which rank it
  // is.
  bool has_rank(const Failure& failure) const {
    const bool is_nameless = case_.program.options.transport == reference::Transport::kNccl &&
                             failure.code == Code::kPeerLost && case_.program.world > 2;
    return failure.rank != kNone || failure.suspect != kNone || is_nameless;
  }

  int group_rank(std::uint32_t step, std::size_t original) const {
    return properties::group_rank(case_.program, observation_, step, original);
  }
  bool is_peer(std::size_t rank, std::size_t other) const {
    return properties::is_peer(case_.program, rank, other);
  }

  // Calls `is` with the expectation of each reducer of this rank, until one call returns true.
  template <class Is>
  bool any_share(const Is& is) const {
    for (std::uint32_t r = 0; r < reference::reducer_count(case_.program); ++r)
      if (is(reference::share_of(case_.program, expectation_, rank_, r))) return true;
    return false;
  }

  static std::string name(std::uint32_t parameter) { return fmt::format("p{}", parameter); }

  bool holds_together(std::uint32_t step) const {
    return properties::holds_together(case_.program, expectation_, rank_, step);
  }

  bool program_fails() const {
    return std::any_of(expectation_.steps.begin(), expectation_.steps.end(),
                       [](const auto& step) { return step.any_error; });
  }

  // Whether the failure correctly reports the own error of some rank, in this step or in a later
  // one that a peer has already reached. A peer cannot be ahead by more than one step that
  // communicates.
  bool is_caused_by_program(const ObservedStep& step, const Failure& failure) const {
    if (failure.reported_by != group_rank(step.step, rank_)) return false;
    for (std::uint32_t at = step.step; at < expectation_.steps.size(); ++at) {
      if (any_share([&](const auto& share) { return is_cause(share, at, step, failure); }))
        return true;
      if ((at > step.step && holds_together(at)) || expectation_.steps[at].any_error) break;
    }
    return false;
  }

  bool is_cause(const reference::Expectation& share, std::uint32_t at, const ObservedStep& step,
                const Failure& failure) const {
    const auto& ranks = share.steps[at].ranks;
    for (std::size_t q = 0; q < ranks.size(); ++q) {
      const ExpectedRankStep& cause = ranks[q];
      const bool is_other = !cause.requiring.empty() && failure.code == Code::kRequiresGrad;
      if (cause.outcome != Outcome::kOwnError) continue;
      if (failure.code != code_of(cause.error) && !is_other) continue;
      const std::size_t named = cause.error == Error::kUnevenInputs ? first_without_inputs(at) : q;
      if (failure.rank != group_rank(step.step, named)) continue;
      if (failure.pass != pass_number(share, at)) continue;
      const bool names_parameters = !failure.parameters.empty() && !cause.parameters.empty();
      if (names_parameters && !is_bucket_of(share, at, failure)) continue;
      const bool own_call =
          q == rank_ && step.failed_call != static_cast<std::int32_t>(cause.error_call);
      if (q == rank_ && (at != step.step || own_call)) continue;
      if (is_other ? names_one_of(cause.requiring, failure) : names_match(cause, failure))
        return true;
    }
    return false;
  }

  // Returns the rank that an early termination must name (S2).
  std::size_t first_without_inputs(std::uint32_t step) const {
    const auto& ranks = expectation_.steps[step].ranks;
    std::uint32_t rank = 0;
    while (rank < ranks.size() && (!is_peer(rank, rank_) || !ranks[rank].present ||
                                   reference::has_input(case_.program, rank, step)))
      ++rank;
    return rank;
  }

  static bool names_one_of(const std::vector<std::uint32_t>& parameters, const Failure& failure) {
    return failure.parameters.size() == 1 &&
           std::any_of(parameters.begin(), parameters.end(),
                       [&](std::uint32_t p) { return failure.parameters[0] == name(p); });
  }

  static bool names_match(const ExpectedRankStep& cause, const Failure& failure) {
    const auto& named = failure.parameters;
    const auto is_named = [&named](std::uint32_t p) {
      return std::find(named.begin(), named.end(), name(p)) != named.end();
    };
    switch (cause.error) {
      case Error::kIncomplete:
      case Error::kUsageChanged:
        return named.size() == cause.parameters.size() &&
               std::all_of(cause.parameters.begin(), cause.parameters.end(), is_named);
      case Error::kReadyTwice:
      case Error::kRequiresGrad:
        return names_one_of(cause.parameters, failure);
      default:
        return true;
    }
  }

  std::string describe_cause(std::uint32_t step) const {
    std::string out;
    const auto& ranks = expectation_.steps[step].ranks;
    for (std::size_t q = 0; q < ranks.size(); ++q) {
      if (ranks[q].outcome != Outcome::kOwnError) continue;
      out += fmt::format("{}'{}' of rank {} in call {}", out.empty() ? "" : " or ",
                         lockstep::name_of(code_of(ranks[q].error)), q, ranks[q].error_call);
      for (const std::uint32_t p : ranks[q].parameters) out += " " + name(p);
    }
    return out;
  }

  bool excused_by_fault(std::uint32_t step) const {
    return std::any_of(fatal_.begin(), fatal_.end(), [&](const auto& fault) {
      return reaches(case_, expectation_, observation_, fault, rank_, step);
    });
  }

  // An error in the pass of one reducer interrupts the pass of the other, which reports what it
  // knows of that (F7). If two ranks lack something in passes of different reducers, neither may
  // raise its error before the timeout. This holds in this step, or in a later one that a peer has
  // already reached.
  bool breaks_passes_off(const ObservedStep& step) const {
    if (reference::reducer_count(case_.program) == 1) return false;
    for (std::uint32_t at = step.step; at < expectation_.steps.size(); ++at) {
      if (expectation_.steps[at].any_error) return true;
      if (at > step.step && holds_together(at)) return false;
    }
    return false;
  }

  // Whether two reducers of one group that share a backward may mismatch (F7). If they reduce after
  // backward, they run one after the other, unless one of them must wait for a further backward, or
  // fails.
  bool may_mismatch() const {
    const reference::Program& program = case_.program;
    if (reference::reducer_count(program) == 1 || program.options.group_each) return false;
    if (program.options.launch == reference::Launch::kOverlapped || program_fails()) return true;
    return std::any_of(program.steps.begin(), program.steps.end(), [](const auto& step) {
      return std::any_of(step.variants.begin(), step.variants.end(),
                         [](const auto& pass) { return pass.backwards.size() > 1; });
    });
  }

  // A rank that has lost a peer in the group of one reducer aborts the other reducer, whose own
  // group knows nothing of the loss (F7). There the rank is the cause, and the peer the suspect.
  bool is_given_up_elsewhere(const Failure& failure) const {
    const reference::Program& program = case_.program;
    return reference::reducer_count(program) > 1 && program.options.group_each &&
           failure.rank != failure.reported_by;
  }

  // Judges what an error that a fault caused must report (F2).
  Verdict judge_fault_error(const ObservedStep& step, const Failure& failure) {
    const auto lacks = [&](const std::string& what) {
      return wrong_step("error", step,
                        "the error does not name " + what + ": " + failure.to_string());
    };
    if (failure.code == Code::kInternal || failure.code == Code::kPoisoned) return lacks("a cause");
    // Only the engine runs a local backward, and the engine knows no rank and no pass.
    if (is_local(step) && failure.code == Code::kUserFailure) return {};
    if (failure.reported_by != group_rank(step.step, rank_)) return lacks("who reports it");
    const std::uint32_t first = first_reached(step.step);
    const std::uint32_t last = last_reached(step.step);
    if (!is_pass_of(failure, first, last)) return lacks("the pass");
    if (!has_rank(failure)) return lacks("a rank to look at");
    if (!is_own_error(failure.code)) {
      if (failure.bucket == kNone && failure.collective.empty())
        return lacks("the bucket or collective");
      if (failure.bucket != kNone && failure.parameters.empty()) return lacks("a parameter");
    }
    if (!is_bucket_of(failure, first, last)) return lacks("the bucket of the parameters named");
    if (is_all_payload()) return judge_sender(step, failure);
    if (is_one_stall()) return judge_stall(step, failure);
    if (Verdict verdict = judge_culprit(step, failure); !verdict.ok()) return verdict;
    return judge_hook(step, failure);
  }

  // Whether the only fatal fault is a communication hook that fails with a code of its own.
  bool is_one_hook() const {
    return fatal_.size() == 1 && fatal_[0].kind == faults::Kind::kHookFails && !program_fails() &&
           reference::reducer_count(case_.program) == 1;
  }

  // Whatever the code, it is a failure of the user on every rank, and keeps its text (S4).
  Verdict judge_hook(const ObservedStep& step, const Failure& failure) {
    if (!is_one_hook() || failure.rank != group_rank(step.step, fatal_[0].rank)) return {};
    if (failure.code == Code::kUserFailure &&
        failure.detail.find(kHookErrorText) != std::string::npos)
      return {};
    return wrong_step("error", step,
                      fmt::format("the communication hook of rank {} failed, and the error is "
                                  "another: {}",
                                  fatal_[0].rank, failure.to_string()));
  }

  // A rank whose hook has failed must say so.
  Verdict judge_unnoticed_hook(const RankObservation& seen) {
    const auto& plan = case_.faults.faults;
    if (!is_one_hook() || plan.size() != 1 || fatal_[0].rank != rank_) return {};
    const bool failed = std::any_of(seen.steps.begin(), seen.steps.end(),
                                    [](const ObservedStep& step) { return !step.status.ok(); });
    if (failed || !seen.joining.ok()) return {};
    return wrong("error", "its communication hook failed, and no call did");
  }

  // Whether the only planned fault is a stalled operation, and it fired.
  bool is_one_stall() const {
    return case_.faults.faults.size() == 1 && fatal_.size() == 1 &&
           fatal_[0].kind == faults::Kind::kOperationStall && !program_fails() &&
           reference::reducer_count(case_.program) == 1;
  }

  // Then no innocent rank is suspected, and no rank has left, because all wait (F2). A stalled
  // message is not judged in this way: all ranks then wait for each other in a cycle, and nobody
  // can tell where it began. Nor are two reducers (F7), because their groups need not end at the
  // same rank.
  Verdict judge_stall(const ObservedStep& step, const Failure& failure) {
    const int stalled = group_rank(step.step, fatal_[0].rank);
    const bool names_rank =
        failure.suspect == kNone && case_.program.options.transport != reference::Transport::kNccl;
    const int named = names_rank ? failure.rank : failure.suspect;
    if (is_done_or_dead_over_nccl(step.step)) return {};
    if (named != stalled && named != kNone)
      return wrong_step("error", step,
                        fmt::format("rank {} stalled, and the error suspects another: {}",
                                    fatal_[0].rank, failure.to_string()));
    if (failure.detail.find("left the group") == std::string::npos) return {};
    return wrong_step("error", step,
                      fmt::format("rank {} stalled, and the error says that it left: {}",
                                  fatal_[0].rank, failure.to_string()));
  }

  // Over NCCL a rank that has completed the collective, as the root of a broadcast may, reports
  // nothing. The stalled rank knows that all have entered, and cannot tell a rank that is done from
  // one that died afterwards.
  bool is_done_or_dead_over_nccl(std::uint32_t step) const {
    if (case_.program.options.transport != reference::Transport::kNccl) return false;
    return std::any_of(observation_.ranks.begin(), observation_.ranks.end(), [&](const auto& rank) {
      return rank.steps.size() > step && rank.steps[step].status.ok();
    });
  }

  // Whether a node or a communication hook fails.
  static bool is_of_user(const faults::Fault& fault) {
    return fault.kind == faults::Kind::kNodeThrows || fault.kind == faults::Kind::kHookFails;
  }

  static bool tells_culprit(const faults::Fault& fault) {
    return fault.kind == faults::Kind::kRankExit || is_of_user(fault) ||
           fault.kind == faults::Kind::kOperationError || fault.kind == faults::Kind::kCallError;
  }

  // One of the faulty ranks must be the cause, if the culprit of every fault is known.
  Verdict judge_culprit(const ObservedStep& step, const Failure& failure) {
    std::vector<int> culprits;
    std::string names;
    for (const faults::Fault& fault : fatal_) {
      if (!reaches(case_, expectation_, observation_, fault, rank_, step.step)) continue;
      const bool is_own = fault.rank == rank_ && !is_of_user(fault);
      if (!tells_culprit(fault) || is_own) return {};
      culprits.push_back(group_rank(step.step, fault.rank));
      names += fmt::format("{}rank {} ({})", names.empty() ? "" : " or ", fault.rank,
                           faults::name_of(fault.kind));
    }
    const auto is_culprit = [&](int rank) {
      return rank != kNone && std::find(culprits.begin(), culprits.end(), rank) != culprits.end();
    };
    if (is_culprit(failure.rank)) return judge_pass_of_node(step, failure);
    // Over NCCL the error may not name a lost peer: see has_rank().
    const bool is_nameless = failure.suspect == kNone &&
                             case_.program.options.transport == reference::Transport::kNccl &&
                             failure.code == Code::kPeerLost;
    if (is_nameless && failure.rank == kNone) return {};
    const bool is_suspected = is_nameless || is_culprit(failure.suspect);
    if ((is_given_up_elsewhere(failure) && is_suspected) || is_closed_elsewhere(failure)) return {};
    return wrong_step("error", step,
                      fmt::format("{} is the cause, and the error names another: {}", names,
                                  failure.to_string()));
  }

  // A node that throws fails its own pass, and no other.
  Verdict judge_pass_of_node(const ObservedStep& step, const Failure& failure) {
    // A rank without inputs runs the passes of others (S2).
    const bool joins = case_.program.options.join != reference::Join::kNone;
    if (failure.code != Code::kUserFailure || fatal_.size() != 1 || joins) return {};
    const std::uint32_t thrown = fatal_[0].step;
    if (case_.program.steps[thrown].kind != reference::PassKind::kSynced) return {};
    if (is_pass_of(failure, thrown, thrown)) return {};
    return wrong_step("error", step,
                      fmt::format("a {} in step {}, and the error tells another pass: {}",
                                  faults::name_of(fatal_[0].kind), thrown, failure.to_string()));
  }

  // Whether the only fatal faults are payload faults.
  bool is_all_payload() const {
    return !fatal_.empty() && std::all_of(fatal_.begin(), fatal_.end(), [](const auto& fault) {
      return faults::is_payload(fault.kind);
    });
  }

  // Every rank must report the corruption, and name the sender (F3).
  Verdict judge_sender(const ObservedStep& step, const Failure& failure) {
    if (is_closed_elsewhere(failure)) return {};
    if (failure.code != Code::kCorrupted)
      return wrong_step(
          "error", step,
          "what travelled was changed, and the error does not say so: " + failure.to_string());
    const bool is_named = std::any_of(fatal_.begin(), fatal_.end(), [&](const auto& fault) {
      return failure.suspect == group_rank(step.step, fault.rank % case_.program.world);
    });
    if (is_named) return {};
    return wrong_step(
        "error", step,
        "the error does not name the sender of what was changed: " + failure.to_string());
  }

  // A rank may wait in the group of one reducer while a peer's group of another reducer ends and
  // closes (F7). Over a transport that closes silently, the others notice only that their next peer
  // is lost.
  bool is_closed_elsewhere(const Failure& failure) const {
    const reference::Program& program = case_.program;
    return observation_.closes_silently && reference::reducer_count(program) > 1 &&
           program.options.group_each && failure.code == Code::kPeerLost;
  }

  std::uint32_t receiver_of(const faults::Fault& fault) const {
    const std::uint32_t world = case_.program.world;
    const std::uint32_t sender = fault.rank % world;
    const std::uint32_t receiver = fault.peer % world;
    return receiver == sender ? (receiver + 1) % world : receiver;
  }

  // Whether every payload fault of the plan that acts on this rank has certainly fired.
  bool was_deceived() const {
    const auto& plan = case_.faults.faults;
    return std::any_of(plan.begin(), plan.end(), [&](const faults::Fault& fault) {
      if (!faults::is_payload(fault.kind)) return false;
      const auto planned = static_cast<std::uint64_t>(
          std::count_if(plan.begin(), plan.end(),
                        [&](const faults::Fault& other) { return other.kind == fault.kind; }));
      return receiver_of(fault) == rank_ &&
             observation_.fired.counts[static_cast<std::size_t>(fault.kind)] == planned;
    });
  }

  // A rank that received other bytes than were sent must notice it (F3). If other things fail as
  // well, it may fail because of those first.
  Verdict judge_unnoticed(const RankObservation& seen) {
    if (!is_all_payload() || program_fails() || may_mismatch() || !was_deceived()) return {};
    const bool failed = std::any_of(seen.steps.begin(), seen.steps.end(),
                                    [](const ObservedStep& step) { return !step.status.ok(); });
    if (failed || !seen.joining.ok()) return {};
    return wrong("error", "what it received was not what was sent, and it did not notice");
  }

  // The subject must be poisoned if it launched a collective in the pass or the group itself
  // failed; otherwise it must remain usable (P12).
  Verdict judge_poison(const ObservedStep& step) {
    const Failure& failure = step.status.failure();
    const bool own = is_own_error(failure.code) && failure.rank == failure.reported_by;
    bool must = !own || (step.launched && !is_local(step));
    if (own && failure.code == Code::kSecondBackward) must = false;
    // A rank that raised the error may have left before others received it (S2).
    if (failure.code == Code::kUnevenInputs) must = !failure.collective.empty();
    // A backward that failed by itself had started nothing (P14). A communication hook fails after
    // backward has ended, and static mode checks its counts at that time, too.
    const bool after = case_.program.options.launch == reference::Launch::kAfterBackward;
    const bool has_hook = case_.program.options.hook == reference::Hook::kElsewhere;
    const bool is_static = case_.program.options.mode == reference::Mode::kStatic;
    const bool in_backward = failure.code == Code::kReadyTwice ||
                             failure.code == Code::kInvalidArgument ||
                             (failure.code == Code::kRequiresGrad && !is_static) ||
                             (failure.code == Code::kUserFailure && !has_hook);
    const bool joins = case_.program.options.join !=
                       reference::Join::kNone;  // joining ranks announce their passes
    if (after && own && in_backward && step.launched && !is_local(step) && !joins)
      return wrong_step(
          "schedule", step,
          "collectives were started before the backward ended: " + failure.to_string());
    if (step.poisoned == must) return {};
    // The launched collective may belong to the other reducer, which has not failed.
    if (own && reference::reducer_count(case_.program) > 1 && !step.poisoned) return {};
    return wrong_step(
        "poison", step,
        fmt::format("after this error the reducer must {}, and does not: {}",
                    must ? "refuse work until reset" : "stay usable", failure.to_string()));
  }

  const Case& case_;
  const reference::Expectation& expectation_;
  const Observation& observation_;
  const std::vector<faults::Fault> fatal_;
  std::size_t rank_ = 0;
};

}  // namespace

Verdict judge_errors(const Case& c, const reference::Expectation& expectation,
                     const Observation& observation) {
  return ErrorOracle(c, expectation, observation).judge();
}

}  // namespace lockstep::properties
