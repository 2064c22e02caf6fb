#include "properties/oracle/metamorphic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "properties/case/keeps.h"
#include "properties/case/switched.h"
#include "properties/oracle/oracles.h"
#include "properties/oracle/program_errors.h"
#include "properties/oracle/two_runs.h"
#include "reference/outcome.h"

namespace lockstep::properties {
namespace {

using reference::Outcome;
using reference::Program;

constexpr const char* kFirstRun = "as the case is";

bool rebuilds(const Program& program) {
  const reference::Replicated& options = program.options;
  return options.rebuild && options.pinned == 0 && options.launch == reference::Launch::kOverlapped;
}

const ObservedStep* find_step(const RankObservation& rank, std::uint32_t step) {
  const auto found = std::find_if(rank.steps.begin(), rank.steps.end(),
                                  [step](const ObservedStep& each) { return each.step == step; });
  return found == rank.steps.end() ? nullptr : &*found;
}

class Comparison {
 public:
  explicit Comparison(const TwoRuns& runs)
      : runs_(runs),
        program_(runs.value.program),
        expected_(runs.expectation),
        modelled_{program_, expected_, runs.first.recoveries},
        second_run_(name_of_second_run(runs.value)) {}

  SwitchVerdict judge() {
    SwitchVerdict out;
    out.verdict = judge_constructions();
    find_end();
    for (std::uint32_t step = 0; step < end_ && out.verdict.ok(); ++step)
      for (rank_ = 0; rank_ < program_.world && out.verdict.ok(); ++rank_)
        out.verdict = judge_step(step);
    const bool is_whole = end_ == program_.steps.size();
    for (rank_ = 0; rank_ < program_.world && is_whole && out.verdict.ok(); ++rank_)
      out.verdict = judge_ending();
    if (out.verdict.ok()) out.verdict.unspecified = counts_;
    out.compared_steps = end_;
    return out;
  }

 private:
  // What a rank must do in a step in both runs, as far as time does not decide it.
  enum class Decided : std::uint8_t {
    kSuccess,
    kError,    // with this code, naming this rank, in this call
    kFailure,  // an error of some kind
    kNothing,
  };

  Decided decided_in(std::uint32_t step) const {
    const reference::ExpectedRankStep& expected = expected_.steps[step].ranks[rank_];
    if (!expected.present) return Decided::kNothing;
    const std::size_t reportable = reference::reportable_errors(modelled_, rank_, step).size();
    switch (expected.outcome) {
      case Outcome::kSuccess:
        return reportable == 0 ? Decided::kSuccess : Decided::kNothing;
      case Outcome::kOwnError: {
        // Of two reducers whose ranks wait for each other, either may fail first.
        const bool is_one = reportable == 1 && reference::reducer_count(program_) == 1;
        return is_one ? Decided::kError : Decided::kFailure;
      }
      case Outcome::kPeerError:
        return Decided::kFailure;
      case Outcome::kSuccessOrPeerError:
        break;
    }
    return Decided::kNothing;
  }

  Verdict differ(Failing failing, const std::string& where, const std::string& how) const {
    return {failing, oracle_of_switch(runs_.value), fmt::format("rank {}{}{}", rank_, where, how)};
  }
  Verdict differ(Failing failing, std::uint32_t step, const std::string& how) const {
    return differ(failing, fmt::format(", step {}", step), how);
  }
  Verdict errors_differ(const std::string& where, const std::string& a,
                        const std::string& b) const {
    return differ(Failing::kWrongError, where, side_by_side(kFirstRun, a, second_run_, b));
  }

  Verdict judge_constructions() {
    for (rank_ = 0; rank_ < program_.world; ++rank_) {
      const RankObservation& a = runs_.first.ranks[rank_];
      const RankObservation& b = runs_.second.ranks[rank_];
      if (a.construction.code() != b.construction.code())
        return errors_differ(", construction", a.construction.to_string(),
                             b.construction.to_string());
      // What is refused first may depend on an option that is wrong with one of its values alone.
      const std::size_t refusals = keeps_errors(runs_.value.switched.option)
                                       ? std::min(a.refusals.size(), b.refusals.size())
                                       : 0;
      for (std::size_t i = 0; i < refusals; ++i)
        if (a.refusals[i].status.code() != b.refusals[i].status.code())
          return errors_differ(", refused construction or reset", a.refusals[i].status.to_string(),
                               b.refusals[i].status.to_string());
      if (a.recovery.code() != b.recovery.code())
        return errors_differ(", reset", a.recovery.to_string(), b.recovery.to_string());
    }
    return {};
  }

  // The first step in which a rank fails although nothing in the program leads to that.
  std::uint32_t first_surprise(const Observation& run, std::uint32_t end) {
    for (std::uint32_t step = 0; step < end; ++step)
      for (rank_ = 0; rank_ < program_.world; ++rank_) {
        const ObservedStep* seen = find_step(run.ranks[rank_], step);
        if (seen != nullptr && !seen->status.ok() && decided_in(step) == Decided::kSuccess)
          return step;
      }
    return end;
  }

  // Sets the number of steps that are compared.
  void find_end() {
    end_ = static_cast<std::uint32_t>(program_.steps.size());
    const auto stop_at = [this](std::uint32_t step) {
      if (step < end_) counts_.note(Unspecified::kSwitch);
      end_ = std::min(end_, step);
    };
    const bool has_errors = keeps_errors(runs_.value.switched.option) && !runs_.knows_calls_alone &&
                            runs_.value.faults.faults.empty() &&
                            program_.options.join == reference::Join::kNone;
    for (std::uint32_t step = 0; step < end_ && !has_errors; ++step)
      if (expected_.steps[step].any_error || runs_.second_expectation.steps[step].any_error)
        stop_at(step);
    if (const auto step = first_other_recovery()) stop_at(*step);
    const std::uint32_t one = first_surprise(runs_.first, end_);
    const std::uint32_t other = first_surprise(runs_.second, end_);
    if (one != end_ && other != end_) stop_at(std::min(one, other));
  }

  // The step from which on the ranks may have recovered in different places in the two runs.
  std::optional<std::uint32_t> first_other_recovery() const {
    const auto& a = runs_.first.recoveries;
    const auto& b = runs_.second.recoveries;
    for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      if (i >= a.size()) return b[i].before_step;
      if (i >= b.size()) return a[i].before_step;
      if (a[i].before_step != b[i].before_step || a[i].survivors != b[i].survivors)
        return std::min(a[i].before_step, b[i].before_step);
    }
    return std::nullopt;
  }

  // Ranks that recover together continue with the step of the one that is ahead.
  bool may_lack(const Observation& run, std::uint32_t step) const {
    const auto& steps = run.ranks[rank_].steps;
    return std::any_of(steps.begin(), steps.end(), [step](const ObservedStep& each) {
      return each.step < step && !each.status.ok();
    });
  }

  Verdict judge_step(std::uint32_t step) {
    const ObservedStep* a = find_step(runs_.first.ranks[rank_], step);
    const ObservedStep* b = find_step(runs_.second.ranks[rank_], step);
    const bool is_fine = a != nullptr && a->status.ok();
    const bool is_fine_again = b != nullptr && b->status.ok();
    const Decided decided = decided_in(step);
    if (decided == Decided::kNothing) counts_.note(Unspecified::kOutcomeByTime);
    const bool may_be_left_out = (a == nullptr && may_lack(runs_.first, step)) ||
                                 (b == nullptr && may_lack(runs_.second, step));
    if (may_be_left_out) counts_.note(Unspecified::kSwitch);
    const bool is_decided = decided != Decided::kNothing && !may_be_left_out;
    if (is_decided && is_fine != is_fine_again)
      return differ(Failing::kWrongError, step,
                    side_by_side(kFirstRun, outcome_of_step(a), second_run_, outcome_of_step(b)));
    if (is_fine && is_fine_again) return judge_results(step, *a, *b);
    if (a == nullptr || b == nullptr || is_fine || is_fine_again) return {};
    return judge_error(step, decided, *a, *b);
  }

  Verdict judge_error(std::uint32_t step, Decided decided, const ObservedStep& a,
                      const ObservedStep& b) {
    ++counts_.errors;
    if (decided != Decided::kError) {
      counts_.note(Unspecified::kCode);
      return {};
    }
    const Failure& x = a.status.failure();
    const Failure& y = b.status.failure();
    if (x.code == y.code && x.rank == y.rank && a.failed_call == b.failed_call) return {};
    return differ(Failing::kWrongError, step,
                  side_by_side(kFirstRun, outcome_of_step(&a), second_run_, outcome_of_step(&b)));
  }

  Verdict judge_results(std::uint32_t step, const ObservedStep& a, const ObservedStep& b) {
    const std::size_t count = std::min(a.gradients.size(), b.gradients.size());
    for (std::uint32_t p = 0; p < count; ++p) {
      if (!expected_.steps[step].ranks[rank_].gradients[p].known) {
        counts_.note(Unspecified::kBits);
        continue;
      }
      if (Verdict v =
              judge_gradient(fmt::format(", step {}", step), p, a.gradients[p], b.gradients[p]);
          !v.ok())
        return v;
    }
    return judge_state_of(fmt::format(", step {}", step), a, b);
  }

  Verdict judge_gradient(const std::string& where, std::uint32_t p, const ObservedGradient& a,
                         const ObservedGradient& b) const {
    static const std::string first_run = kFirstRun;
    const GradientsDiffer found =
        compare_gradients(program_.parameters[p], {first_run, runs_.first.ranks[rank_].bits, a},
                          {second_run_, runs_.second.ranks[rank_].bits, b});
    if (found.text.empty()) return {};
    return differ(Failing::kWrongBits, where, fmt::format(", parameter p{}{}", p, found.text));
  }

  Verdict judge_state_of(const std::string& where, const ObservedStep& a,
                         const ObservedStep& b) const {
    if (a.state == b.state) return {};
    std::size_t t = 0;
    while (t < std::min(a.state.size(), b.state.size()) && a.state[t] == b.state[t]) ++t;
    return differ(Failing::kWrongBits, where,
                  fmt::format(": tensor {} of the values of parameters and buffers is another one "
                              "{} than {}",
                              t, second_run_, kFirstRun));
  }

  // After the end of a join, if both runs had one.
  Verdict judge_ending() {
    const auto& a = runs_.first.ranks[rank_].ending;
    const auto& b = runs_.second.ranks[rank_].ending;
    if (a.empty() || b.empty()) return {};
    const std::string where = ", after the join";
    const auto& expected = expected_.ending[rank_].gradients;
    for (std::uint32_t p = 0; p < a.back().gradients.size(); ++p)
      if (expected[p].known)
        if (Verdict v = judge_gradient(where, p, a.back().gradients[p], b.back().gradients[p]);
            !v.ok())
          return v;
    return judge_state_of(where, a.back(), b.back());
  }

  const TwoRuns& runs_;
  const Program& program_;
  const reference::Expectation& expected_;
  const reference::ModelledRun modelled_;
  const std::string second_run_;
  std::uint32_t end_ = 0;
  std::size_t rank_ = 0;
  UnspecifiedCounts counts_;
};

}  // namespace

const char* name_of(NotComparable reason) {
  switch (reason) {
    case NotComparable::kNoOption:
      return "no option to switch";
    case NotComparable::kHarmfulFault:
      return "a fault that may fail a step";
    case NotComparable::kSharedReducer:
      return "two reducers on one group, which may mismatch";
    case NotComparable::kLayoutByTime:
      return "rebuilt buckets whose order time may decide";
  }
  return "unknown";
}

std::optional<NotComparable> not_comparable(const Case& c) {
  const std::optional<Case> other = switched(c);
  if (!other) return NotComparable::kNoOption;
  const auto& faults = c.faults.faults;
  if (std::any_of(faults.begin(), faults.end(),
                  [](const auto& fault) { return !faults::is_benign(fault.kind); }))
    return NotComparable::kHarmfulFault;
  if (may_mismatch(c.program) || may_mismatch(other->program)) return NotComparable::kSharedReducer;
  if ((rebuilds(c.program) || rebuilds(other->program)) && !keeps::layout(c, *other))
    return NotComparable::kLayoutByTime;
  return std::nullopt;
}

Verdict judge_without_model(const Observation& observation) {
  if (Verdict verdict = judge_proof(observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_end(observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_races(observation); !verdict.ok()) return verdict;
  return judge_leaks(observation);
}

std::string oracle_of_switch(const Case& c) {
  return fmt::format("same with {}", name_of(c.switched.option));
}

std::string name_of_second_run(const Case& c) { return "with " + describe_switch(c); }

SwitchVerdict judge_switch(const TwoRuns& runs) { return Comparison(runs).judge(); }

}  // namespace lockstep::properties
