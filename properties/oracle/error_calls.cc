// The oracle on errors of a subject that works hook by hook: each error must occur in the call
// where it is expected, and in no other call. The oracle ignores what errors name, unless the
// contract requires them to name a lost rank.
//
// With faults: a rank that needs a lost rank must not complete its step, and must not wait for long
// after the timeout. Steps before a fault and after the recovery are judged as without faults. If a
// plan has several fatal faults, the oracle does not know which of them fired: then it judges only
// what does not depend on that, and the verdict says so.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "properties/oracle/fault_reach.h"
#include "properties/oracle/oracles.h"

namespace lockstep::properties {
namespace {

using reference::ExpectedRankStep;
using reference::Outcome;

const char* name_of(reference::Error error) {
  switch (error) {
    case reference::Error::kIncomplete:
      return "missing parameters";
    case reference::Error::kReadyTwice:
      return "a parameter that is ready twice";
    case reference::Error::kSecondBackward:
      return "a second backward";
    case reference::Error::kUsageChanged:
      return "a parameter of another use";
    case reference::Error::kRequiresGrad:
      return "a gradient that requires a gradient";
    case reference::Error::kUnevenInputs:
      return "ranks without inputs";
    case reference::Error::kForwardInBackward:
      return "forward in backward";
    case reference::Error::kUndefinedSparse:
      return "a sparse parameter without a gradient";
    case reference::Error::kNone:
      break;
  }
  return "nothing";
}

std::string name_of_call(std::int32_t call) {
  return call < 0 ? std::string("a forward") : fmt::format("backward call {}", call);
}

// A failing call must end within this time after the two timeouts that it may have waited for: one
// in a forward, and one in a backward.
constexpr std::uint64_t kGraceMs = 10'000;

class ErrorCallOracle {
 public:
  ErrorCallOracle(const Case& c, const torch_model::Policies& policies,
                  const reference::Expectation& expectation, const Observation& observation)
      : case_(c),
        policies_(policies),
        expectation_(expectation),
        observation_(observation),
        fatal_(fatal_faults(c, observation)) {
    if (fatal_.size() == 1) loss_ = find_loss(fatal_[0]);
  }

  Verdict judge() {
    for (rank_ = 0; rank_ < observation_.ranks.size(); ++rank_)
      if (Verdict verdict = judge_rank(observation_.ranks[rank_]); !verdict.ok()) return verdict;
    Verdict verdict;
    if (fatal_.size() > 1)
      verdict.message = fmt::format(
          "not judged: which ranks had to fail, as {} faults of the plan may have fired",
          fatal_.size());
    return verdict;
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

  Verdict wrong(const char* oracle, const std::string& what,
                Failing failing = Failing::kWrongError) const {
    return {failing, oracle, fmt::format("rank {}: {}", rank_, what)};
  }
  Verdict wrong_step(const ObservedStep& step, const std::string& what) const {
    return {Failing::kWrongError, "error",
            fmt::format("rank {}, step {}: {}", rank_, step.step, what)};
  }

  Verdict judge_rank(const RankObservation& seen) const {
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

  Verdict judge_step(const ObservedStep& step) const {
    const ExpectedRankStep& expected = expectation_.steps[step.step].ranks[rank_];
    if (!expected.present) return {};
    const bool is_excused = std::any_of(fatal_.begin(), fatal_.end(), [&](const auto& fault) {
      return reaches(case_, expectation_, observation_, fault, rank_, step.step);
    });
    if (is_excused) return judge_loss(step, expected);
    const auto call = static_cast<std::int32_t>(expected.error_call);
    const bool must_fail =
        expected.outcome == Outcome::kOwnError || expected.outcome == Outcome::kPeerError;
    if (step.status.ok()) {
      if (!must_fail) return {};
      if (expected.outcome == Outcome::kPeerError)
        return wrong_step(step, "ended well, but a rank it depends on has left it alone");
      return wrong_step(step, fmt::format("ended well, but {} had to fail for {}",
                                          name_of_call(call), name_of(expected.error)));
    }
    if (expected.outcome == Outcome::kSuccess)
      return wrong_step(step, "failed without a reason: " + step.status.to_string());
    if (expected.outcome == Outcome::kOwnError && step.failed_call != call)
      return wrong_step(step, fmt::format("{} had to fail for {}, and {} fails: {}",
                                          name_of_call(call), name_of(expected.error),
                                          name_of_call(step.failed_call), step.status.to_string()));
    return {};
  }

  // Judges a step that the fault can reach.
  Verdict judge_loss(const ObservedStep& step, const ExpectedRankStep& expected) const {
    if (!loss_) return {};
    const faults::Fault& fault = loss_->fault;
    const bool is_own = rank_ == fault.rank;
    const bool is_there = step.step == fault.step;
    if (!step.status.ok()) {
      const bool names_it = step.status.failure().rank ==
                            group_rank(case_.program, observation_, step.step, fault.rank);
      if (policies_.names_no_lost_rank || is_own || names_it) return {};
      return wrong_step(
          step, fmt::format("rank {} is lost ({}), and the error does not name it: {}", fault.rank,
                            faults::name_of(fault.kind), step.status.to_string()));
    }
    if (is_own && is_there && fault.kind == faults::Kind::kNodeThrows)
      return wrong_step(step, "ended well, though one of its nodes threw");
    if (step.step < fault.step || expected.outcome != Outcome::kSuccess) return {};
    const reference::ExpectedStep& all = expectation_.steps[step.step];
    if (!all.knows_collectives || is_alone(all)) return {};
    if (!holds_together(all, is_there ? loss_->first_missing : 0)) return {};
    return wrong_step(step, fmt::format("ended well without rank {}, which it needs ({})",
                                        fault.rank, faults::name_of(fault.kind)));
  }

  static bool is_alone(const reference::ExpectedStep& step) {
    return std::count_if(step.ranks.begin(), step.ranks.end(),
                         [](const auto& rank) { return rank.present; }) == 1;
  }

  // Judges how long a call waited (F1). A stopped rank continues when the others have given up.
  Verdict judge_wait(const ObservedStep& step) const {
    const bool is_stopped = std::any_of(fatal_.begin(), fatal_.end(), [&](const auto& fault) {
      return fault.kind == faults::Kind::kOperationStall && fault.rank == rank_;
    });
    const std::uint64_t timeout_ms = case_.timeout_ms == 0 ? kDefaultTimeoutMs : case_.timeout_ms;
    const std::uint64_t took_ms = (step.end_us - step.begin_us) / 1000;
    if (step.status.ok() || is_stopped || took_ms <= 2 * timeout_ms + kGraceMs) return {};
    return wrong("progress",
                 fmt::format("step {} failed after {} ms, and the timeout is {} ms: {}", step.step,
                             took_ms, timeout_ms, step.status.to_string()),
                 Failing::kDeadlock);
  }

  const Case& case_;
  const torch_model::Policies& policies_;
  const reference::Expectation& expectation_;
  const Observation& observation_;
  const std::vector<faults::Fault> fatal_;
  std::optional<Loss> loss_;
  std::size_t rank_ = 0;
};

}  // namespace

Verdict judge_error_calls(const Case& c, const torch_model::Policies& policies,
                          const reference::Expectation& expectation,
                          const Observation& observation) {
  return ErrorCallOracle(c, policies, expectation, observation).judge();
}

}  // namespace lockstep::properties
