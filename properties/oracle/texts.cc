// The oracle on the texts of errors (F2): a person who reads one must learn from it what happened,
// and must not be misled. It judges what the contract, the program and the faults decide: which of
// two texts fits, and which ranks, passes and collectives a text is about.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "properties/case/abort_text.h"
#include "properties/oracle/allowed_outcomes.h"
#include "properties/oracle/fault_reach.h"
#include "properties/oracle/oracles.h"
#include "reducer/diagnosis/diagnosis.h"
#include "reference/outcome.h"

namespace lockstep::properties {
namespace {

// The errors whose cause is known, and not inferred from the silence of a peer.
constexpr Among kDefinite =
    Among::of({Code::kIncomplete, Code::kReadyTwice, Code::kSecondBackward, Code::kUsageChanged,
               Code::kRequiresGrad, Code::kUnevenInputs, Code::kMismatch, Code::kCorrupted,
               Code::kUserFailure, Code::kOutOfMemory, Code::kInvalidArgument});

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

// The text of an error in one step of one rank.
class TextOracle {
 public:
  TextOracle(const Case& c, const reference::Expectation& expectation,
             const Observation& observation)
      : case_(c),
        expectation_(expectation),
        observation_(observation),
        fatal_(fatal_faults(c, observation)),
        is_static_(c.program.options.mode == reference::Mode::kStatic) {}

  // Returns what is wrong, or an empty text.
  std::string judge(std::size_t rank, const ObservedStep& step) const {
    const Failure& failure = step.status.failure();
    if (failure.detail.empty()) return "says nothing";
    if (!is_possible(failure, static_cast<int>(observation_.ranks.size())))
      return "has numbers that no error can have";
    if (failure.detail[0] == ';' || failure.detail[0] == ',') return "begins inside of a sentence";
    if (std::any_of(failure.later.begin(), failure.later.end(),
                    [](const std::string& line) { return line.empty(); }))
      return "has an empty line of what followed";
    if (kDefinite.has(failure.code) && !failure.definite)
      return "does not say that its cause is known";
    const bool is_inferred = !failure.definite && failure.suspect != kNone;
    if (is_inferred && observation_.closes_silently && failure.rank != failure.suspect)
      return fmt::format("names rank {}, and suspects rank {}", failure.rank, failure.suspect);
    if (is_of_failed_call(rank, step.step, failure) && !has_words_of_call(case_, failure))
      return "does not say which call failed, and how";
    switch (failure.code) {
      case Code::kSecondBackward:
        return judge_second_backward(rank, step);
      case Code::kIncomplete:
        return judge_mode(failure);
      case Code::kReadyTwice:
        return judge_ready_twice(failure);
      case Code::kUnevenInputs:
        return judge_inputs(rank, step.step, failure);
      case Code::kMismatch:
        return judge_mismatch(failure);
      case Code::kCorrupted:
        return judge_change(failure);
      case Code::kTimeout:
        return judge_timeout(failure);
      case Code::kAborted:
        // What is passed on by several ranks over sockets may have the words of each of them.
        return failure.definite ? flaw_of_abort(failure) : "";
      default:
        return "";
    }
  }

 private:
  // Returns whether the only fault is a call that failed on the rank that the error names. The
  // error of that rank is the first cause, and its text is that of all ranks.
  bool is_of_failed_call(std::size_t rank, std::uint32_t step, const Failure& failure) const {
    if (fatal_.size() != 1 || fatal_[0].kind != faults::Kind::kCallError) return false;
    if (failure.code != Code::kTransport || reference::reducer_count(case_.program) > 1)
      return false;
    return reference::are_peers(case_.program, rank, fatal_[0].rank) &&
           failure.rank == reference::rank_in_group(case_.program, observation_.recoveries, step,
                                                    fatal_[0].rank);
  }

  // The text must say whether the pass was reduced before, or given up.
  std::string judge_second_backward(std::size_t rank, const ObservedStep& step) const {
    const auto& expected = expectation_.steps[step.step].ranks[rank];
    const bool is_second = expected.outcome == reference::Outcome::kOwnError &&
                           expected.error == reference::Error::kSecondBackward;
    // A user who has aborted the reducers has given up the pass before.
    const bool is_aborted = has_aborted_reducers(case_, observation_, rank, step.step);
    if (!is_second || is_aborted || says(step.status.failure().detail, "reduced already"))
      return "";
    return "does not say that the gradients were reduced already";
  }

  std::string judge_mode(const Failure& failure) const {
    if (says(failure.detail, "with static_graph on") == is_static_) return "";
    return is_static_ ? "does not say what static_graph asks for"
                      : "speaks of static_graph, which is off";
  }

  std::string judge_ready_twice(const Failure& failure) const {
    const bool is_own = failure.rank == failure.reported_by;
    if (is_own && !says(failure.detail, fmt::format("pass {}", failure.pass)))
      return fmt::format("does not say that it is about pass {}", failure.pass);
    return says(failure.detail, "a local backward") ? "" : judge_mode(failure);
  }

  // The ranks that have inputs in the step, and those that have none (S2).
  std::string judge_inputs(std::size_t rank, std::uint32_t step, const Failure& failure) const {
    if (!failure.definite) return "";
    std::vector<int> out;
    std::vector<int> in;
    int number = 0;
    for (std::size_t r = 0; r < observation_.ranks.size(); ++r) {
      if (!expectation_.steps[step].ranks[r].present ||
          !reference::are_peers(case_.program, r, rank))
        continue;
      const bool trains = reference::has_input(case_.program, static_cast<std::uint32_t>(r), step);
      (trains ? in : out).push_back(number++);
    }
    const std::string words =
        fmt::format("out of inputs: {}, not yet: {}", rank_list(out), rank_list(in));
    return says(failure.detail, words) ? "" : fmt::format("does not say \"{}\"", words);
  }

  // "rank 0 entered one collective; rank 1 entered another one". Only verified ones are called so.
  std::string judge_mismatch(const Failure& failure) const {
    constexpr std::string_view kEntered = " entered ";
    const std::string& text = failure.detail;
    const std::size_t first = text.find(kEntered);
    const std::size_t end = text.find("; rank ", first == std::string::npos ? 0 : first);
    const std::size_t second = text.find(kEntered, end == std::string::npos ? text.size() : end);
    if (first == std::string::npos || second == std::string::npos) return "";
    const std::size_t begin = first + kEntered.size();
    const std::string one = text.substr(begin, end - begin);
    const std::string other = text.substr(second + kEntered.size());
    if (one == other) return "says that two ranks entered one and the same collective";
    const bool is_verified = case_.program.options.verify;
    const bool is_right =
        says(one, ", verified") == is_verified && says(other, ", verified") == is_verified;
    if (!is_right) return "says wrongly whether the collectives are verified";
    for (const std::string& each : {one, other})
      if (says(each, ", rank-ordered") && !may_be_rank_ordered(each))
        return "calls a collective rank-ordered that is not";
    const std::string bucket = fmt::format("bucket {}, ", failure.bucket);
    const bool is_of_own_bucket = failure.bucket != kNone && failure.rank == failure.reported_by;
    if (is_of_own_bucket && !says(one, bucket) && !says(other, bucket))
      return fmt::format("does not say that it is about bucket {}", failure.bucket);
    return "";
  }

  // Only sums are rank-ordered, and only where the program or the verification asks for it.
  bool may_be_rank_ordered(const std::string& collective) const {
    const reference::Replicated& options = case_.program.options;
    const bool is_asked = options.verify || options.order == reference::Order::kRankOrder;
    return is_asked && collective.starts_with("all_reduce");
  }

  // Only a frame that takes the place of another one is whole.
  std::string judge_change(const Failure& failure) const {
    if (fatal_.size() != 1 || case_.faults.faults.size() != 1) return "";
    const bool may_be_whole = fatal_[0].kind == faults::Kind::kPayloadSwap ||
                              fatal_[0].kind == faults::Kind::kPayloadStale;
    const bool is_whole = says(failure.detail, "it got what rank ");
    return is_whole && !may_be_whole ? "takes a damaged message for another one" : "";
  }

  // A group over NCCL says how far the collective came.
  std::string judge_timeout(const Failure& failure) const {
    if (!says(failure.detail, "not done within ")) return "";
    // Reducer::abort() makes any cause certain, also a timeout of another reducer (F7).
    if (failure.definite && reference::reducer_count(case_.program) == 1)
      return "is certain of what silence says";
    const bool is_new = says(failure.detail, "; NCCL has not taken it yet");
    const bool is_entered = says(failure.detail, "; all ranks have entered it");
    const bool is_open = says(failure.detail, "; not all ranks have entered it");
    if (is_new + is_entered + is_open != 1) return "does not say which ranks have entered it";
    return "";
  }

  const Case& case_;
  const reference::Expectation& expectation_;
  const Observation& observation_;
  const std::vector<faults::Fault> fatal_;
  const bool is_static_;
};

}  // namespace

Verdict judge_texts(const Case& c, const reference::Expectation& expectation,
                    const Observation& observation) {
  if (!observation.attaches) return {};  // errors of other subjects have no text
  const TextOracle oracle(c, expectation, observation);
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    const RankObservation& seen = observation.ranks[rank];
    for (const ObservedStep& step : seen.steps) {
      if (step.status.ok() || step.is_destroyed ||
          !expectation.steps[step.step].ranks[rank].present)
        continue;
      if (seen.exited && &step == &seen.steps.back()) continue;  // it owes no error
      const std::string wrong = oracle.judge(rank, step);
      if (!wrong.empty())
        return {Failing::kWrongError, "text",
                fmt::format("rank {}, step {}: the error {}: {}", rank, step.step, wrong,
                            step.status.to_string())};
    }
  }
  return {};
}

}  // namespace lockstep::properties
