// The oracle on overlap: a bucket is launched by the hook that makes it ready, if all buckets
// before it are ready then (P3). A reducer that launches later has the right bits, and hides less
// of its communication behind the backward.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "properties/oracle/oracles.h"
#include "reference/model/engine.h"

namespace lockstep::properties {
namespace {

// Judges one reducer of one rank in one step.
class OverlapOracle {
 public:
  OverlapOracle(const Case& c, const reference::Expectation& share, std::size_t rank,
                std::uint32_t reducer, const ObservedStep& step)
      : program_(c.program), share_(share), rank_(rank), reducer_(reducer), step_(step) {}

  // Returns what is late, or an empty text.
  std::string judge(UnspecifiedCounts& counts) const {
    const auto& expected = share_.steps[step_.step];
    if (!expected.is_reduced || is_first_static_pass()) return "";
    // Each rank has a first pass of its own, for which there need not be a usage map (S2, P11).
    if (program_.options.mode == reference::Mode::kStatic &&
        program_.options.join != reference::Join::kNone) {
      counts.note(Unspecified::kUnlaunchedBucket);
      return "";
    }
    const std::vector<std::size_t> ready_at = ready_hooks();
    std::size_t number = 0;
    std::size_t launched_by = 0;  // the hook by which the bucket must be launched
    for (const reference::ExpectedBucket& bucket : buckets_of(share_, expected)) {
      for (const std::uint32_t p : bucket.parameters)
        launched_by = std::max(launched_by, ready_at[p]);
      if (launched_by == kNever) {
        counts.note(Unspecified::kUnlaunchedBucket);
        return "";
      }
      const ObservedHook& hook = step_.hooks[launched_by];
      if (hook.launched <= number)
        return fmt::format(
            "bucket {} is ready with the hook of p{} (number {} of {}), and is not launched then: "
            "only {} buckets are",
            number, hook.parameter, launched_by + 1, step_.hooks.size(), hook.launched);
      ++number;
    }
    return "";
  }

 private:
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  bool has_one_forward() const {
    const auto& variants = program_.steps[step_.step].variants;
    return variants[rank_ % variants.size()].forwards.size() == 1;
  }

  // The first pass of static mode exchanges the usage map first, and launches everything when its
  // backward ends (P11).
  bool is_first_static_pass() const {
    if (program_.options.mode != reference::Mode::kStatic) return false;
    return std::any_of(step_.collectives.begin(), step_.collectives.end(), [&](const auto& each) {
      return each.reducer == reducer_ && each.op == ObservedCollective::Op::kAllReduceUsage;
    });
  }

  bool is_own(std::uint32_t parameter) const {
    return program_.parameters[parameter].reducer == reducer_;
  }

  // Returns, for each parameter, the index of the hook with which it is ready: the last one of its
  // replicas. One without a hook is ready at the first hook of the pass, but not in plain mode, and
  // in dynamic mode only if no output of another forward can still lead to it (P5).
  std::vector<std::size_t> ready_hooks() const {
    const auto& hooks = step_.hooks;
    const auto first = std::find_if(hooks.begin(), hooks.end(), [&](const ObservedHook& hook) {
      return is_own(hook.parameter);
    });
    const bool is_static = program_.options.mode == reference::Mode::kStatic;
    const bool is_dynamic = program_.options.mode == reference::Mode::kDynamic;
    const bool marks_unused =
        (is_static || (is_dynamic && has_one_forward())) && first != hooks.end();
    const std::size_t unused =
        marks_unused ? static_cast<std::size_t>(first - hooks.begin()) : kNever;
    std::vector<std::size_t> ready(program_.parameters.size(), 0);
    for (std::uint32_t p = 0; p < ready.size(); ++p) {
      const std::uint32_t part = reference::owner_of(program_, p);
      std::size_t last = unused;
      for (std::size_t h = 0; h < hooks.size(); ++h)
        if (hooks[h].parameter == part) last = h;
      const std::uint32_t original = reference::original_of(program_, p);
      ready[original] = std::max(ready[original], last);
    }
    return ready;
  }

  const reference::Program& program_;
  const reference::Expectation& share_;
  const std::size_t rank_;
  const std::uint32_t reducer_;
  const ObservedStep& step_;
};

// Hooks of several devices run at once, and one of them launches for all.
bool has_one_worker(const reference::Program& program) {
  if (program.options.transport != reference::Transport::kHost) return true;
  return std::all_of(program.parameters.begin(), program.parameters.end(),
                     [&](const auto& each) { return each.device == program.parameters[0].device; });
}

// A communication hook that runs a backward runs it on the thread that it was called on, also one
// that is refused at a gradient that the pass has taken. That thread takes whatever is ready for it
// and is as deep: of a checkpoint's nested backward, the hooks of parameters. They end before the
// communication hook launches its bucket.
bool runs_hooks_in_hook(const reference::Program& program, std::size_t rank, std::uint32_t step) {
  if (program.options.hook != reference::Hook::kElsewhere ||
      program.options.hook_backward == reference::HookBackward::kNone)
    return false;
  const auto& variants = program.steps[step].variants;
  const reference::RankPass& pass = variants[rank % variants.size()];
  if (pass.recompute != reference::Recompute::kNone) return true;
  return std::any_of(pass.forwards.begin(), pass.forwards.end(), [](const auto& forward) {
    return std::any_of(forward.nodes.begin(), forward.nodes.end(), [](const auto& node) {
      return node.kind == reference::Node::Kind::kCheckpoint;
    });
  });
}

}  // namespace

Verdict judge_overlap(const Case& c, const reference::Expectation& expectation,
                      const Observation& observation, UnspecifiedCounts& counts) {
  const reference::Replicated& options = c.program.options;
  if (options.launch == reference::Launch::kAfterBackward) return {};  // P14
  const bool is_local = options.hook == reference::Hook::kElsewhere &&
                        options.hook_result == reference::HookResult::kLocal;
  if (is_local) {  // the buckets go nowhere
    counts.note(Unspecified::kNoCollective);
    return {};
  }
  const bool is_nested = options.hook == reference::Hook::kElsewhere &&
                         options.hook_backward == reference::HookBackward::kAll;
  if (is_nested) {  // the parameters' hooks run within the communication hook, before it launches
    counts.note(Unspecified::kConcurrentHooks);
    return {};
  }
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    for (const ObservedStep& step : observation.ranks[rank].steps) {
      const reference::ExpectedStep& expected = expectation.steps[step.step];
      if (!step.status.ok() || step.hooks.empty() || !expected.ranks[rank].present) continue;
      if (reference::pass_of(c.program.steps[step.step], static_cast<std::uint32_t>(rank)).absent)
        continue;
      if (!has_one_worker(c.program) || runs_hooks_in_hook(c.program, rank, step.step)) {
        counts.note(Unspecified::kConcurrentHooks);
        continue;
      }
      for (std::uint32_t r = 0; r < reference::reducer_count(c.program); ++r) {
        const auto& share = reference::share_of(c.program, expectation, rank, r);
        const std::string late = OverlapOracle(c, share, rank, r, step).judge(counts);
        if (!late.empty())
          return {Failing::kWrongBits, "overlap",
                  fmt::format("rank {}, step {}: {}", rank, step.step, late)};
      }
    }
  }
  return {};
}

// Padding between members may reach a neighbour by any mistake in an offset, and a hook by its flat
// tensor (B3).
Verdict judge_padding(const Observation& observation) {
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank)
    if (const std::string& what = observation.ranks[rank].wrong_padding; !what.empty())
      return {Failing::kWrongBits, "padding", fmt::format("rank {}: {}", rank, what)};
  return {};
}

}  // namespace lockstep::properties
