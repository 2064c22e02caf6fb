#include "properties/run/case_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "faults/seeded/seeded.h"
#include "properties/case/switched.h"
#include "properties/oracle/agreement.h"
#include "properties/oracle/judge.h"
#include "properties/oracle/metamorphic.h"
#include "properties/oracle/oracles.h"
#include "properties/run/live_heap.h"
#include "properties/run/rerun.h"

namespace lockstep::properties {

constexpr std::uint32_t kHurriedTimeoutMs = 1500;
constexpr std::uint32_t kCasesForGrowth = 8;  // one of so many
constexpr int kRunsForGrowth = 3;

namespace {

// Returns the case as the nccl lane runs it, whatever transport the case names.
Case on_gpu(Case c) {
  c.program.options.transport = reference::Transport::kNccl;
  normalize(c);
  return c;
}

bool any_error(const reference::Expectation& expectation) {
  return std::any_of(expectation.steps.begin(), expectation.steps.end(),
                     [](const auto& step) { return step.any_error; });
}

Verdict refuse(const std::string& why) {
  return Verdict{Failing::kInconclusive, "comparable", why};
}

}  // namespace

CaseRunner::CaseRunner(LaneKind kind, const Subject& subject)
    : CaseRunner(kind, subject, make_lane(kind, subject)) {}

CaseRunner::CaseRunner(LaneKind kind, const Subject& subject, std::unique_ptr<Lane> lane)
    : kind_(kind),
      subject_(subject),
      attaches_(subject.kind != Subject::Kind::kHosted),
      lane_(std::move(lane)) {
  if (subject.against) other_ = std::make_unique<CaseRunner>(kind, *subject.against);
}

Verdict CaseRunner::run(const Case& c) {
  if (kind_ == LaneKind::kNccl && c.program.options.transport != reference::Transport::kNccl)
    return run(on_gpu(c));
  compared_steps_ = 0;
  reruns_ = 0;
  const bool is_switched = c.switched.option != SwitchedOption::kNone;
  if (other_ && is_switched) return refuse("two subjects are compared without a switched option");
  if (other_) return run_beside(c);
  std::uint32_t steps = modelled_steps(c, subject_.profile);
  if (is_switched) {
    if (const auto why = not_comparable(c))
      return refuse(fmt::format("the two runs of the case are not comparable: {}", name_of(*why)));
    steps = std::min(steps, modelled_steps(*switched(c), subject_.profile));
  }
  if (steps == c.program.steps.size()) return run_modelled(c);
  Case shorter = c;
  reference::keep_first_steps(shorter.program, steps);
  return run_modelled(shorter);
}

// Ranks of torch that end in the middle of collectives wait for each other until the timeout.
// Therefore a program that must fail, or a plan that can make it fail, gets a short timeout.
// Failures that only a busy machine causes do not count; wrong bits never depend on time.
Verdict CaseRunner::run_modelled(const Case& c) {
  expectation_ = expectation_of(c, subject_.profile);
  bool fails = any_error(expectation_);
  if (const std::optional<Case> other = switched(c))
    fails = fails || any_error(expectation_of(*other, subject_.profile));
  const auto& faults = c.faults.faults;
  const bool may_fail = fails || std::any_of(faults.begin(), faults.end(), [](const auto& fault) {
                          return !faults::is_benign(fault.kind);
                        });
  if (!subject_.profile.judges_calls_alone() || !may_fail) return run_until_judged(c);
  Case timed = c;
  if (c.timeout_ms == 0) timed.timeout_ms = kHurriedTimeoutMs;
  Verdict verdict = run_once(timed);
  if (verdict.ok() || verdict.failing == Failing::kWrongBits) return verdict;
  expectation_ = expectation_of(c, subject_.profile);
  timed.timeout_ms = std::max(c.timeout_ms, kDefaultTimeoutMs);
  return run_once(timed);
}

Verdict CaseRunner::run_until_judged(const Case& c) {
  RunOfCase run;
  run.timeout = std::chrono::milliseconds(c.timeout_ms == 0 ? kDefaultTimeoutMs : c.timeout_ms);
  for (;; ++run.runs) {
    waited_s_ = 0;
    was_starved_ = false;
    Verdict verdict = run_once(c);
    run.failing = verdict.failing;
    run.waited_s = waited_s_;
    run.least_wait_s = run.runs == 1 ? waited_s_ : std::min(run.least_wait_s, waited_s_);
    run.was_starved = was_starved_;
    const Next next = next_after(run);
    if (next == Next::kAccept) {
      verdict.message += note_of_wait(run);
      return verdict;
    }
    if (next == Next::kInconclusive) break;
    ++reruns_;
    if (on_rerun_) on_rerun_();
    expectation_ = expectation_of(c, subject_.profile);
  }
  return {Failing::kInconclusive, "environment",
          fmt::format("the machine let a rank wait for a processor for {:.0f} s, with a timeout of "
                      "{:.1f} s, and the case failed {} times: run less beside it, or fewer jobs "
                      "(--jobs)",
                      run.waited_s, std::chrono::duration<double>(run.timeout).count(), run.runs)};
}

// `expectation` is the model's, without recoveries, and becomes that with recoveries.
void CaseRunner::observe(const Case& c, Expected& expectation, Observation& observation) {
  observation.clear();
  const PlantedBug before{seeded::reached(), seeded::triggered()};
  lane_->run(c, expectation, observation);
  waited_s_ = std::max(waited_s_, observation.waited_s);
  was_starved_ = was_starved_ || lane_->was_starved();
  observation.planted +=
      {seeded::reached() - before.reached, seeded::triggered() - before.triggered};
  observation.attaches = attaches_;
  observation.recovers = subject_.capabilities.has(Capability::kRecovery);
  const std::vector<reference::ReadyOrder> ready_orders = observation.ready_orders();
  if (!observation.recoveries.empty() || !ready_orders.empty())
    expectation = expectation_of(c, subject_.profile, observation.recoveries, ready_orders);
}

Verdict CaseRunner::run_once(const Case& c) {
  const std::int64_t heap_before = live_heap_bytes();
  observe(c, expectation_, observation_);
  const bool has_grown = live_heap_bytes() > heap_before;
  Verdict verdict = c.switched.option == SwitchedOption::kNone
                        ? judge(c, subject_.profile, expectation_, observation_)
                        : run_switched(c);
  for (const std::string& each : observation_.unfired)
    verdict.message += (verdict.message.empty() ? "" : "\n") + each;
  if (verdict.ok() && has_grown && is_due_for_growth(c)) {
    Verdict leak = judge_growth(c);
    if (!leak.ok()) return leak;
  }
  return verdict;
}

// Only a subject's library is judged by the memory that it keeps: the reducer's is counted as it is
// handed out. Where a rank ends in the middle nobody destroys what it had. As it takes further
// runs, a part of the cases will do, until one has leaked.
bool CaseRunner::is_due_for_growth(const Case& c) {
  if (kind_ != LaneKind::kSim || subject_.table == nullptr || !c.faults.faults.empty() ||
      c.switched.option != SwitchedOption::kNone || any_error(expectation_))
    return false;
  return leaks_ || judged_growth_++ % kCasesForGrowth == 0;
}

// All later runs may use the memory that a first run keeps. Memory that each of several runs of one
// case adds is lost.
Verdict CaseRunner::judge_growth(const Case& c) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int run = 0; run <= kRunsForGrowth; ++run) {
    const std::int64_t before = live_heap_bytes();
    Expected expectation = expectation_of(c, subject_.profile);
    observe(c, expectation, second_);
    expectation = {};
    if (run == 0) continue;  // second_ has grown to what this case takes
    least = std::min(least, live_heap_bytes() - before);
    if (least <= 0) return {};
  }
  leaks_ = true;
  return {Failing::kLeak, "leak",
          fmt::format("each run of this case leaves {} bytes or more that nobody frees, although "
                      "destroy() was called on every rank",
                      least)};
}

// The first run is over. What is wrong in it without regard to the second one is told first.
Verdict CaseRunner::run_switched(const Case& c) {
  if (Verdict verdict = judge_without_model(observation_); !verdict.ok()) return verdict;
  const std::optional<Case> other = switched(c);
  if (!other) return refuse("another number of steps leaves nothing to switch");
  Expected expectation = expectation_of(*other, subject_.profile);
  observe(*other, expectation, second_);
  observation_.planted += second_.planted;
  if (Verdict verdict = judge_without_model(second_); !verdict.ok()) {
    if (verdict.failing != Failing::kInconclusive) verdict.oracle = oracle_of_switch(c);
    verdict.message = fmt::format("{}: {}", name_of_second_run(c), verdict.message);
    return verdict;
  }
  SwitchVerdict compared = judge_switch(
      {c, expectation_, expectation, observation_, second_, subject_.profile.judges_calls_alone()});
  compared_steps_ = compared.compared_steps;
  if (!compared.verdict.ok()) return std::move(compared.verdict);
  // A mistake that both runs make alike may still leave the ranks with different bits.
  if (Verdict v = judge_equal_ranks(c, expectation_, observation_); !v.ok()) return v;
  if (Verdict v = judge_equal_ranks(*other, expectation, second_); !v.ok()) {
    v.message = fmt::format("{}: {}", name_of_second_run(c), v.message);
    return v;
  }
  return std::move(compared.verdict);
}

Verdict CaseRunner::run_beside(const Case& c) {
  compared_steps_ = 0;
  if (!c.faults.faults.empty())
    return refuse("faults meet two subjects at different times: such a case is not compared");
  Case shorter = c;
  reference::Program& program = shorter.program;
  reference::keep_first_steps(program, std::min(modelled_steps(shorter, subject_.profile),
                                                modelled_steps(shorter, other_->subject_.profile)));
  expectation_ = expectation_of(shorter, subject_.profile);
  other_->expectation_ = expectation_of(shorter, other_->subject_.profile);
  const Comparable found = comparable_steps(program, expectation_, other_->expectation_);
  if (!found.has_synced_pass)
    return refuse(fmt::format(
        "the contracts of the two subjects expect the same of no synced pass ({})",
        found.why.empty() ? "the program has none of which both say what comes out" : found.why));
  reference::keep_first_steps(program, found.steps);
  Verdict mine = run_modelled(shorter);
  Verdict theirs = other_->run_modelled(shorter);
  observation_.planted += other_->observation_.planted;
  return compare(shorter, std::move(mine), std::move(theirs));
}

// First compares the two subjects with each other, then judges each by its own contract.
Verdict CaseRunner::compare(const Case& c, Verdict mine, Verdict theirs) {
  const auto told_of = [](const std::string& name, Verdict verdict) {
    if (!verdict.ok()) verdict.message = fmt::format("subject {}: {}", name, verdict.message);
    return verdict;
  };
  mine = told_of(subject_.name(), std::move(mine));
  theirs = told_of(other_->subject_.name(), std::move(theirs));
  using End = Observation::End;
  if (observation_.end != End::kFinished) return mine;
  if (other_->observation_.end != End::kFinished) return theirs;
  // This is computed again, because buckets follow the order that the runs observed.
  const std::uint32_t steps = comparable_steps(c.program, expectation_, other_->expectation_).steps;
  compared_steps_ = steps;
  Verdict verdict =
      judge_agreement(c, steps, {subject_.name(), expectation_, observation_},
                      {other_->subject_.name(), other_->expectation_, other_->observation_});
  if (!verdict.ok()) return verdict;
  return mine.ok() ? theirs : mine;
}

Verdict CaseRunner::run_twice(const Case& c) {
  Verdict first = run(c);
  const std::uint64_t hash = observation_.trace_hash;
  const std::uint64_t choices = observation_.choices;
  if (kind_ != LaneKind::kSim || other_ || !first.ok()) return first;
  Verdict second = run(c);
  if (!second.ok()) return second;
  if (hash == observation_.trace_hash) return first;
  return {
      Failing::kNotDeterministic, "determinism",
      fmt::format(
          "two runs of the case took different ways: trace {:016x} after {} choices, then {:016x} "
          "after {}",
          hash, choices, observation_.trace_hash, observation_.choices)};
}

}  // namespace lockstep::properties
