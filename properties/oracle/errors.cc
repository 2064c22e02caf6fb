// The oracle on errors: it asks whether what each rank did is one of the allowed outcomes
// (outcomes.h). Every expected error is present, no other error is, and each names what the
// contract requires (F2).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "properties/case/hook_error.h"
#include "properties/oracle/oracles.h"
#include "properties/oracle/outcomes.h"

namespace lockstep::properties {
namespace {

const char* oracle_of(Must must) {
  switch (must) {
    case Must::kWait:
      return "schedule";
    case Must::kState:
      return "poison";
    default:
      return "error";
  }
}

class ErrorOracle {
 public:
  ErrorOracle(const Case& c, const reference::Expectation& expectation,
              const Observation& observation)
      : case_(c),
        program_(c.program),
        observation_(observation),
        outcomes_(c, expectation, observation) {}

  // A rank that waited in vain is named only if no other rank ended wrongly in another way: what it
  // waited for may have been that one.
  Verdict judge() {
    Verdict hang;
    for (rank_ = 0; rank_ < observation_.ranks.size(); ++rank_) {
      outcomes_.set_rank(rank_);
      Verdict verdict = judge_rank(observation_.ranks[rank_]);
      if (verdict.ok()) continue;
      if (verdict.failing != Failing::kDeadlock) return verdict;
      if (hang.ok()) hang = std::move(verdict);
    }
    if (!hang.ok()) return hang;
    Verdict verdict;
    verdict.unspecified = counts_;
    return verdict;
  }

 private:
  // `where` is "" or ", step 3".
  Verdict wrong(const char* oracle, const std::string& what, const std::string& where = "",
                Failing failing = Failing::kWrongError) const {
    return {failing, oracle, fmt::format("rank {}{}: {}", rank_, where, what)};
  }

  Verdict judge_rank(const RankObservation& seen) {
    if (!seen.construction.ok())
      return wrong("construction",
                   "the reducer could not be constructed: " + seen.construction.to_string());
    if (!seen.recovery.ok())
      return wrong("reuse", "reset with a new group failed: " + seen.recovery.to_string());
    // A group that one rank could not shrink is given up by all of its ranks.
    std::uint64_t refused_shrinks = observation_.refused_shrinks;
    for (const FailedCall& attempt : seen.failed_joins) {
      Verdict verdict = judge_failed_attempt(attempt);
      if (!verdict.ok() && refused_shrinks == 0) return verdict;
      if (!verdict.ok()) --refused_shrinks;
    }
    for (const ObservedStep& step : seen.steps) {
      // A timeout that comes too early does not say that anybody hangs, as judge_step() would.
      if (Verdict verdict = judge_timeout(step); !verdict.ok()) return verdict;
      if (Verdict verdict = judge_step(step); !verdict.ok()) return verdict;
    }
    if (Verdict verdict = judge_end_join(seen.joining); !verdict.ok()) return verdict;
    if (!seen.finished && !seen.exited)
      return wrong("progress", "left before the end of its program");
    const auto has_failed = [](const ObservedStep& step) { return !step.status.ok(); };
    if (!seen.joining.ok() || !seen.failed_joins.empty() ||
        std::any_of(seen.steps.begin(), seen.steps.end(), has_failed))
      return {};
    if (const char* why = outcomes_.must_fail()) return wrong("error", why);
    return {};
  }

  // The code of the attempt's own error is not recorded.
  Verdict judge_failed_attempt(const FailedCall& attempt) {
    const Failure unknown;
    const Membership found =
        membership_of(raised_in_join(program_, unknown), outcomes_.of_failed_attempt(attempt));
    found.open.note_in(counts_);
    if (found.is_member) return {};
    return wrong("reuse",
                 "the reducer could be constructed or reset only at a further attempt; "
                 "the one before raised: " +
                     attempt.error);
  }

  Verdict judge_end_join(const Status& joining) {
    if (joining.ok()) return {};
    const AllowedOutcomes allowed = outcomes_.of_end_join();
    const Membership found = membership_of(raised_in_join(program_, joining.failure()), allowed);
    found.open.note_in(counts_);
    if (found.is_member) return {};
    return wrong("error", describe(joining, found, allowed), ", end_join");
  }

  Verdict judge_step(const ObservedStep& step) {
    if (step.is_destroyed) return {};  // by the user, whose error it is
    const AllowedOutcomes success = outcomes_.success_of_step(step.step);
    success.open.note_in(counts_);
    if (success.is_anything || (step.status.ok() && success.may_succeed())) return {};
    const AllowedOutcomes allowed = outcomes_.of_step(step.step);
    const std::string where = fmt::format(", step {}", step.step);
    if (step.status.ok()) return wrong("error", describe_success(allowed), where);
    ++counts_.errors;
    counts_.note(Unspecified::kDetails);
    const RaisedError error = raised_in(program_, step);
    const Membership found = membership_of(error, allowed);
    found.open.note_in(counts_);
    if (found.is_member) return {};
    const std::string what = describe(step.status, found, allowed);
    const bool is_of_all = found.closest == &allowed.of_all_errors;
    const bool has_hung = !is_of_all && step.status.code() == Code::kTimeout &&
                          allowed.may_succeed() && allowed.open == Reasons() &&
                          !explains_code(allowed, error);
    Verdict verdict = has_hung ? wrong("progress", what, where, Failing::kDeadlock)
                               : wrong(is_of_all ? oracle_of(found.unmet) : "error", what, where);
    verdict.might_succeed = allowed.may_succeed();
    return verdict;
  }

  // Nobody but a user who gives up says that time is up before a timeout has passed since the first
  // step in this group began (F1).
  Verdict judge_timeout(const ObservedStep& step) const {
    if (step.status.code() != Code::kTimeout) return {};
    if (step.status.failure().detail.find(kAbortText) != std::string::npos) return {};
    // A peer may have waited since the group was made.
    const auto& plan = case_.faults.faults;
    if (std::any_of(plan.begin(), plan.end(), [](const auto& fault) { return fault.in_reset; }))
      return {};
    const std::uint64_t took_ms = (step.end_us - first_begin_us(step.generation)) / 1000;
    const std::uint64_t timeout_ms = gloo_timeout_ms(case_);
    if (took_ms + 1 >= timeout_ms) return {};
    return wrong("error",
                 fmt::format("a timeout {} ms after the first step in this group began, and the "
                             "timeout is {} ms: {}",
                             took_ms, timeout_ms, step.status.to_string()),
                 fmt::format(", step {}", step.step));
  }

  std::uint64_t first_begin_us(std::uint32_t generation) const {
    std::uint64_t first = ~std::uint64_t{0};
    for (const RankObservation& rank : observation_.ranks)
      for (const ObservedStep& step : rank.steps)
        if (step.generation == generation) first = std::min(first, step.begin_us);
    return first;
  }

  static bool explains_code(const AllowedOutcomes& allowed, const RaisedError& error) {
    return std::any_of(allowed.errors.begin(), allowed.errors.end(), [&](const auto& each) {
      const Requirements::Result result = each.requirements.check(error);
      return result.is_met || result.unmet != Must::kCode;
    });
  }

  const Case& case_;
  const reference::Program& program_;
  const Observation& observation_;
  Outcomes outcomes_;
  std::size_t rank_ = 0;
  UnspecifiedCounts counts_;
};

}  // namespace

Verdict judge_errors(const Case& c, const reference::Expectation& expectation,
                     const Observation& observation) {
  return ErrorOracle(c, expectation, observation).judge();
}

}  // namespace lockstep::properties
