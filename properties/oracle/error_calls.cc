// Oracle on errors of a subject that works hook by hook: each comes in the call where it must, and
// none elsewhere. What errors name is not looked at.
#include <fmt/format.h>

#include <algorithm>

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

Verdict judge_step(std::size_t rank, const ObservedStep& step, const ExpectedRankStep& expected,
                   bool is_excused) {
  if (!expected.present || is_excused) return {};
  const auto wrong = [&](const std::string& what) {
    return Verdict{Failing::kWrongError, "error",
                   fmt::format("rank {}, step {}: {}", rank, step.step, what)};
  };
  const auto call = static_cast<std::int32_t>(expected.error_call);
  const bool must_fail =
      expected.outcome == Outcome::kOwnError || expected.outcome == Outcome::kPeerError;
  if (step.status.ok()) {
    if (!must_fail) return {};
    if (expected.outcome == Outcome::kPeerError)
      return wrong("ended well, but a rank it depends on has left it alone");
    return wrong(fmt::format("ended well, but {} had to fail for {}", name_of_call(call),
                             name_of(expected.error)));
  }
  if (expected.outcome == Outcome::kSuccess)
    return wrong("failed without a reason: " + step.status.to_string());
  if (expected.outcome == Outcome::kOwnError && step.failed_call != call)
    return wrong(fmt::format("{} had to fail for {}, and {} fails: {}", name_of_call(call),
                             name_of(expected.error), name_of_call(step.failed_call),
                             step.status.to_string()));
  return {};
}

}  // namespace

Verdict judge_error_calls(const Case& c, const reference::Expectation& expectation,
                          const Observation& observation) {
  const bool is_excused =
      std::any_of(c.faults.faults.begin(), c.faults.faults.end(), [&](const faults::Fault& fault) {
        return observation.fired.counts[static_cast<std::size_t>(fault.kind)] > 0 &&
               !faults::is_benign(fault.kind);
      });
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    const RankObservation& seen = observation.ranks[rank];
    const auto wrong = [&](const char* oracle, const std::string& what) {
      return Verdict{Failing::kWrongError, oracle, fmt::format("rank {}: {}", rank, what)};
    };
    if (!seen.construction.ok())
      return wrong("construction",
                   "the reducer could not be constructed: " + seen.construction.to_string());
    if (!seen.recovery.ok())
      return wrong("reuse", "a new reducer could not be had: " + seen.recovery.to_string());
    for (const ObservedStep& step : seen.steps) {
      Verdict verdict =
          judge_step(rank, step, expectation.steps[step.step].ranks[rank], is_excused);
      if (!verdict.ok()) return verdict;
    }
    if (!seen.finished && !seen.exited)
      return wrong("progress", "left before the end of its program");
  }
  return {};
}

}  // namespace lockstep::properties
