// The oracle on the times of a pass (T3): what a reducer says of its last pass must agree with when
// the harness saw the same events, and with itself. It needs a clock that stands still while
// anything can run, as that of the simulator does: on such a clock the times agree exactly, unless
// somebody waits in between, such as a rank that is paused.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "properties/oracle/oracles.h"
#include "reference/model/engine.h"
#include "reference/outcome.h"

namespace lockstep::properties {
namespace {

// Judges one reducer of one rank in one step.
class PassTimesOracle {
 public:
  PassTimesOracle(const Case& c, const ObservedStep& step, const ObservedPassTimes& times)
      : program_(c.program),
        seen_(step.seen_times),
        step_(step),
        times_(times),
        is_paused_(may_pause(c)) {}

  // Returns what is wrong, or an empty text.
  std::string judge() const {
    for (std::uint32_t p = 0; p < times_.gradients_ns.size(); ++p)
      if (std::string wrong = judge_gradient(p); !wrong.empty()) return wrong;
    for (std::size_t b = 0; b < times_.buckets.size(); ++b)
      if (std::string wrong = judge_bucket(b); !wrong.empty()) return wrong;
    return judge_ends();
  }

 private:
  // Times count from when the pass was armed, which lies between two moments.
  std::int64_t earliest(std::int64_t clock_ns) const { return clock_ns - seen_.armed_to_ns; }
  std::int64_t latest(std::int64_t clock_ns) const { return clock_ns - seen_.armed_from_ns; }

  bool has_replicas(std::uint32_t parameter) const {
    for (std::uint32_t p = 0; p < program_.parameters.size(); ++p)
      if (p != parameter && reference::owner_of(program_, p) == p &&
          reference::original_of(program_, p) == reference::original_of(program_, parameter))
        return true;
    return false;
  }

  // A gradient is ready in the last hook of its parameter. In static mode the first pass ends only
  // with its backward, and replicas have one time.
  std::string judge_gradient(std::uint32_t p) const {
    const SeenPassTimes::Hook& hook = seen_.hooks[p];
    if (!reference::is_reduced(program_.parameters[p]) || has_replicas(p)) return "";
    if (hook.begin_ns == kNone || hook.end_ns == kNone) return "";
    const bool is_counted = program_.options.mode == reference::Mode::kStatic;
    const std::int64_t low = earliest(hook.begin_ns);
    const std::int64_t high = latest(is_counted ? seen_.backward_ended_ns : hook.end_ns);
    const std::int64_t recorded = times_.gradients_ns[p];
    if (low <= recorded && recorded <= high) return "";
    return fmt::format(
        "the gradient of p{} is said to be ready after {} ns, and its hook ran "
        "between {} and {} ns",
        p, recorded, low, high);
  }

  std::string judge_bucket(std::size_t b) const {
    const ObservedPassTimes::Bucket& bucket = times_.buckets[b];
    std::int64_t last = 0;
    for (const std::uint32_t p : bucket.parameters) last = std::max(last, times_.gradients_ns[p]);
    if (bucket.ready_ns < last || (bucket.ready_ns > last && !is_paused_))
      return fmt::format("bucket {} is said to be ready after {} ns, and its last member after {}",
                         b, bucket.ready_ns, last);
    if (bucket.launched_ns < bucket.ready_ns || bucket.completed_ns < bucket.launched_ns)
      return fmt::format(
          "bucket {} is said to be ready, launched and complete after {}, {} and {} "
          "ns",
          b, bucket.ready_ns, bucket.launched_ns, bucket.completed_ns);
    return judge_collective(b);
  }

  // A communication hook sends whatever it wants.
  std::string judge_collective(std::size_t b) const {
    if (program_.options.hook != reference::Hook::kNone) return "";
    const auto found = std::find_if(
        step_.collectives.begin(), step_.collectives.end(), [&](const ObservedCollective& each) {
          return each.reducer == times_.reducer && each.bucket == static_cast<std::int32_t>(b) &&
                 each.op == ObservedCollective::Op::kAllReduceBucket;
        });
    if (found == step_.collectives.end()) return "";
    // The reducer notes the launch before it starts the collective, and the trace after that.
    const auto in_trace_ns = static_cast<std::int64_t>(found->launched_us) * 1000;
    if (times_.buckets[b].launched_ns >= latest(in_trace_ns) + 1000)
      return fmt::format(
          "bucket {} is said to be launched after {} ns, and the trace has its "
          "collective at {} us of the clock, with the pass armed at {} ns",
          b, times_.buckets[b].launched_ns, found->launched_us, seen_.armed_to_ns);
    if (earliest(static_cast<std::int64_t>(found->completed_us) * 1000) + 1000 <=
        times_.buckets[b].completed_ns - 1000)
      return fmt::format(
          "bucket {} is said to be complete after {} ns, and the trace has its "
          "collective complete at {} us of the clock, with the pass armed at {} ns",
          b, times_.buckets[b].completed_ns, found->completed_us, seen_.armed_to_ns);
    return "";
  }

  // The last backward ends after the last hook, and the pass after everything else.
  std::string judge_ends() const {
    const std::int64_t ended = times_.backward_ended_ns;
    std::int64_t last = earliest(seen_.backward_begun_ns);
    for (const SeenPassTimes::Hook& hook : seen_.hooks)
      if (hook.begin_ns != kNone) last = std::max(last, earliest(hook.begin_ns));
    const std::int64_t end = latest(seen_.backward_ended_ns);
    if (ended < last || ended > end)
      return fmt::format(
          "the backward is said to have ended after {} ns, and ended between {} and "
          "{}",
          ended, last, end);
    std::int64_t completed = ended;
    for (const auto& bucket : times_.buckets) completed = std::max(completed, bucket.completed_ns);
    if (times_.finished_ns < completed || times_.finished_ns > end)
      return fmt::format(
          "the pass is said to have finished after {} ns, and finished between {} "
          "and {}",
          times_.finished_ns, completed, end);
    return "";
  }

  const reference::Program& program_;
  const SeenPassTimes& seen_;
  const ObservedStep& step_;
  const ObservedPassTimes& times_;
  const bool is_paused_;  // whether time may pass while a gradient is copied
};

}  // namespace

bool may_pause(const Case& c) {
  return std::any_of(c.faults.faults.begin(), c.faults.faults.end(), [&](const auto& fault) {
    // A communication hook may run nodes that sleep while another worker waits for the reducer.
    const bool is_hooked = c.program.options.hook != reference::Hook::kNone;
    return fault.kind == faults::Kind::kRankPause ||
           (is_hooked && fault.kind == faults::Kind::kSlowThread);
  });
}

Verdict judge_pass_times(const Case& c, const reference::Expectation& expectation,
                         const Observation& observation) {
  // Two reducers arm their passes one after the other, within one call.
  if (reference::reducer_count(c.program) != 1) return {};
  const reference::ModelledRun run{c.program, expectation, observation.recoveries};
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    std::optional<std::uint32_t> completed_in;  // the group of the rank's last pass
    for (const ObservedStep& step : observation.ranks[rank].steps) {
      if (!step.status.ok() || !expectation.steps[step.step].ranks[rank].present) continue;
      for (const ObservedPassTimes& times : step.pass_times) {
        const auto& share = reference::share_of(c.program, expectation, rank, times.reducer);
        const reference::RankPass& made =
            reference::pass_of(c.program.steps[step.step], static_cast<std::uint32_t>(rank));
        const bool is_reduced = share.steps[step.step].is_reduced && !made.absent;
        const bool has_pass = is_reduced || completed_in == step.generation;
        if (!has_pass && times.pass != kNone)
          return {Failing::kWrongBits, "times",
                  fmt::format("rank {}, step {}: the times are said to be those of pass {}, and no "
                              "pass was completed in this group",
                              rank, step.step, times.pass)};
        if (!is_reduced) continue;
        completed_in = step.generation;
        const std::int64_t pass =
            reference::pass_number(share, step.step, reference::begin_of_group(run, step.step));
        const std::string wrong =
            times.pass != pass
                ? fmt::format("the times are said to be those of pass {}, and the pass is {}",
                              times.pass, pass)
                : PassTimesOracle(c, step, times).judge();
        if (!wrong.empty())
          return {Failing::kWrongBits, "times",
                  fmt::format("rank {}, step {}: {}", rank, step.step, wrong)};
      }
    }
  }
  return {};
}

}  // namespace lockstep::properties
