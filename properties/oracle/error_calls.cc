// The oracle on errors of a subject that works hook by hook: it asks whether what each rank did is
// one of the allowed outcomes. Each error must occur in the call where it is expected, and in no
// other call. What errors name does not matter, unless the contract requires them to name a lost
// rank.
//
// With faults: a rank that needs a lost rank must not complete its step, and must not wait for long
// after the timeout. Steps before a fault and after the recovery are judged as without faults. If a
// plan has several fatal faults, the oracle does not know which of them fired: then it judges only
// what does not depend on that, and the verdict says so and counts it.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "properties/oracle/allowed_outcomes.h"
#include "properties/oracle/fault_reach.h"
#include "properties/oracle/oracles.h"
#include "reference/outcome.h"

namespace lockstep::properties {
namespace {

using reference::ExpectedRankStep;
using reference::Outcome;

const char* name_of(reference::Error error) {
  switch (error) {
    case reference::Error::kIncomplete: return "missing parameters";
    case reference::Error::kReadyTwice: return "a parameter that is ready twice";
    case reference::Error::kSecondBackward: return "a second backward";
    case reference::Error::kUsageChanged: return "a parameter of another use";
    case reference::Error::kRequiresGrad: return "a gradient that requires a gradient";
    case reference::Error::kUnevenInputs: return "ranks without inputs";
    case reference::Error::kForwardInBackward: return "forward in backward";
    case reference::Error::kAbsent: return "an absent rank";
    case reference::Error::kForeign: return "what the contract allows";
    case reference::Error::kNone: break;
  }
  return "nothing";
}

std::string name_of_call(std::int32_t call) {
  return call < 0 ? std::string("a forward") : fmt::format("backward call {}", call);
}

// A failing call must end within this time after the two timeouts that it may have waited for: one
// in a forward, and one in a backward.
constexpr std::uint64_t kGraceMs = 10'000;

// Returns whether the fault is sure to fail each collective of its rank until the ranks recover. Of
// the faults that a host carries out, only a partition from all others that lasts as long is sure.
bool loses_rank(const faults::Fault& fault) {
  if (!faults::is_of_host(fault.kind)) return true;
  return fault.kind == faults::Kind::kNetPartition && fault.duration_us == 0 &&
         fault.peer == fault.rank;
}

// What each rank may do in each step.
class CallOutcomes {
 public:
  CallOutcomes(const Case& c, const torch_model::Policies& policies, const Expected& expectation,
               const Observation& observation)
      : case_(c),
        policies_(policies),
        expectation_(expectation),
        observation_(observation),
        fatal_(fatal_faults(c, observation)) {
    if (fatal_.size() == 1) loss_ = find_loss(fatal_[0]);
  }

  const std::vector<faults::Fault>& fatal() const { return fatal_; }

  AllowedOutcomes of_step(std::size_t rank, std::uint32_t step) const {
    const ExpectedRankStep& expected = expectation_.steps[step].ranks[rank];
    AllowedOutcomes allowed;
    allowed.is_anything = !expected.present;
    if (allowed.is_anything) allowed.open = Unspecified::kAheadOfRecovery;
    const bool is_reached = std::any_of(fatal_.begin(), fatal_.end(), [&](const auto& fault) {
      return reaches(case_, expectation_, observation_, fault, rank, step);
    });
    if (is_reached)
      allow_loss(rank, step, allowed);
    else
      allow_expected(expected, allowed);
    return allowed;
  }

 private:
  // The lost rank, and the first collective of the step that it did not start.
  struct Loss {
    faults::Fault fault;
    std::size_t first_missing = 0;
  };

  std::optional<Loss> find_loss(const faults::Fault& fault) const {
    if (fault.kind != faults::Kind::kNodeThrows) return Loss{fault, fault.site};
    const ObservedStep* thrown = step_of(fault);
    if (thrown == nullptr) return std::nullopt;
    return Loss{fault, thrown->collectives.size()};
  }

  // Returns the step of the faulty rank when the fault fired.
  const ObservedStep* step_of(const faults::Fault& fault) const {
    const auto& steps = observation_.ranks[fault.rank].steps;
    const auto found = std::find_if(steps.begin(), steps.end(),
                                    [&](const auto& step) { return step.step == fault.step; });
    return found == steps.end() ? nullptr : &*found;
  }

  static Requirements& allow_error(AllowedOutcomes& allowed, const char* because) {
    allowed.errors.push_back({.because = because});
    return allowed.errors.back().requirements;
  }

  // What the model expects. An error may name anything.
  static void allow_expected(const ExpectedRankStep& expected, AllowedOutcomes& allowed) {
    const auto call = static_cast<std::int32_t>(expected.error_call);
    switch (expected.outcome) {
      case Outcome::kSuccess: break;
      case Outcome::kOwnError:
        allowed.must_fail =
            fmt::format("{} had to fail for {}", name_of_call(call), name_of(expected.error));
        allow_error(allowed, name_of(expected.error))
            .allow(Must::kCall, {.calls = Among::of({call})});
        break;
      case Outcome::kPeerError:
        allowed.must_fail = "a rank it depends on has left it alone";
        allow_error(allowed, "a rank has left");
        break;
      case Outcome::kSuccessOrPeerError:
        allowed.open = Unspecified::kOutcomeByTime;
        allow_error(allowed, "a rank may have left");
        break;
    }
  }

  // What a rank may do in a step that the fault can reach.
  void allow_loss(std::size_t rank, std::uint32_t step, AllowedOutcomes& allowed) const {
    allowed.errors.push_back({.faults = fatal_});
    if (!loss_) {
      allowed.open = allowed.open | Unspecified::kSeveralFaults;
      return;
    }
    const faults::Fault& fault = loss_->fault;
    const bool is_own = rank == fault.rank;
    if (!policies_.names_no_lost_rank && !is_own)
      allowed.errors.back().requirements.allow(
          Must::kCause, {.causes = Among::of({reference::rank_in_group(
                             case_.program, observation_.recoveries, step, fault.rank)})});
    if (is_own && step == fault.step && fault.kind == faults::Kind::kNodeThrows)
      allowed.must_fail = "one of its nodes threw";
    else if (loses_rank(fault) && needs_lost_rank(rank, step))
      allowed.must_fail = fmt::format("it needs rank {}, which is lost ({})", fault.rank,
                                      faults::name_of(fault.kind));
  }

  bool needs_lost_rank(std::size_t rank, std::uint32_t step) const {
    const faults::Fault& fault = loss_->fault;
    const reference::ExpectedStep& all = expectation_.steps[step];
    if (step < fault.step || all.ranks[rank].outcome != Outcome::kSuccess) return false;
    if (!expectation_.knowledge_of(step).knows_collectives || is_alone(all)) return false;
    return reference::holds_together(all, step == fault.step ? loss_->first_missing : 0);
  }

  static bool is_alone(const reference::ExpectedStep& step) {
    return std::count_if(step.ranks.begin(), step.ranks.end(),
                         [](const auto& rank) { return rank.present; }) == 1;
  }

  const Case& case_;
  const torch_model::Policies& policies_;
  const Expected& expectation_;
  const Observation& observation_;
  const std::vector<faults::Fault> fatal_;
  std::optional<Loss> loss_;
};

class ErrorCallOracle {
 public:
  ErrorCallOracle(const Case& c, const torch_model::Policies& policies, const Expected& expectation,
                  const Observation& observation)
      : case_(c), observation_(observation), outcomes_(c, policies, expectation, observation) {}

  Verdict judge() {
    for (rank_ = 0; rank_ < observation_.ranks.size(); ++rank_)
      if (Verdict verdict = judge_rank(observation_.ranks[rank_]); !verdict.ok()) return verdict;
    Verdict verdict;
    verdict.unspecified = counts_;
    if (const std::size_t count = outcomes_.fatal().size(); count > 1)
      verdict.message = fmt::format(
          "not judged: which ranks had to fail, as {} faults of the plan may have fired", count);
    return verdict;
  }

 private:
  Verdict wrong(const char* oracle, const std::string& what,
                Failing failing = Failing::kWrongError) const {
    return {failing, oracle, fmt::format("rank {}: {}", rank_, what)};
  }
  Verdict wrong_step(const ObservedStep& step, const std::string& what) const {
    return {Failing::kWrongError, "error",
            fmt::format("rank {}, step {}: {}", rank_, step.step, what)};
  }

  Verdict judge_rank(const RankObservation& seen) {
    const bool has_new_reducer = seen.construction.ok() && seen.recovery.ok();
    if (!has_new_reducer && disturbs_connecting()) {
      counts_.note(Unspecified::kOutcomeByTime);  // these subjects connect once, and then give up
      return {};
    }
    if (!seen.construction.ok())
      return wrong("construction",
                   "the reducer could not be constructed: " + seen.construction.to_string());
    if (!seen.recovery.ok())
      return wrong("reuse", "a new reducer could not be had: " + seen.recovery.to_string());
    for (const ObservedStep& step : seen.steps) {
      if (Verdict verdict = judge_step(step); !verdict.ok()) return verdict;
      if (Verdict verdict = judge_wait(step); !verdict.ok()) return verdict;
    }
    if (!seen.finished && !seen.exited)
      return wrong("progress", "left before the end of its program");
    return {};
  }

  // Returns whether a fault has fired that was planned for a construction or a reset.
  bool disturbs_connecting() const {
    const auto& fatal = outcomes_.fatal();
    return std::any_of(fatal.begin(), fatal.end(),
                       [](const faults::Fault& fault) { return fault.in_reset; });
  }

  Verdict judge_step(const ObservedStep& step) {
    const AllowedOutcomes allowed = outcomes_.of_step(rank_, step.step);
    allowed.open.note_in(counts_);
    if (allowed.is_anything) return {};
    if (step.status.ok())
      return allowed.may_succeed() ? Verdict() : wrong_step(step, describe_success(allowed));
    ++counts_.errors;
    counts_.note(Unspecified::kDetails);
    const Membership found = membership_of(raised_in(case_.program, step), allowed);
    found.open.note_in(counts_);
    if (found.is_member) return {};
    Verdict verdict =
        wrong_step(step, describe(step.status, found, allowed) + others_in(step.step));
    verdict.might_succeed = allowed.may_succeed();
    return verdict;
  }

  // Says which ranks raised an error in the step and which did not: where some wait for a
  // collective until their time is up, it is one of the others that has left it out.
  std::string others_in(std::uint32_t step) const {
    std::vector<std::size_t> failed;
    std::vector<std::size_t> ended;
    for (std::size_t rank = 0; rank < observation_.ranks.size(); ++rank)
      for (const ObservedStep& each : observation_.ranks[rank].steps)
        if (each.step == step) (each.status.ok() ? ended : failed).push_back(rank);
    if (ended.empty()) return {};
    const auto ranks = [](const std::vector<std::size_t>& list) {
      return fmt::format("{} {}", list.size() == 1 ? "rank" : "ranks", fmt::join(list, ", "));
    };
    return fmt::format(
        "\nin this step {} raised an error, and {} {} ended it without one: if the error says that "
        "time "
        "is up, a collective is missing there",
        ranks(failed), ranks(ended), ended.size() == 1 ? "has" : "have");
  }

  // Judges how long a call waited (F1). A stopped rank continues when the others have given up.
  Verdict judge_wait(const ObservedStep& step) const {
    const auto& fatal = outcomes_.fatal();
    const bool is_stopped = std::any_of(fatal.begin(), fatal.end(), [&](const auto& fault) {
      return fault.kind == faults::Kind::kOperationStall && fault.rank == rank_;
    });
    const std::uint64_t timeout_ms = gloo_timeout_ms(case_);
    const std::uint64_t took_ms = (step.end_us - step.begin_us) / 1000;
    if (step.status.ok() || is_stopped || took_ms <= 2 * timeout_ms + kGraceMs) return {};
    return wrong("progress",
                 fmt::format("step {} failed after {} ms, and the timeout is {} ms: {}", step.step,
                             took_ms, timeout_ms, step.status.to_string()),
                 Failing::kDeadlock);
  }

  const Case& case_;
  const Observation& observation_;
  const CallOutcomes outcomes_;
  std::size_t rank_ = 0;
  UnspecifiedCounts counts_;
};

}  // namespace

Verdict judge_error_calls(const Case& c, const torch_model::Policies& policies,
                          const Expected& expectation, const Observation& observation) {
  return ErrorCallOracle(c, policies, expectation, observation).judge();
}

}  // namespace lockstep::properties
