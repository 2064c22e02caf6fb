#include "properties/oracle/agreement.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/oracle/oracles.h"
#include "properties/oracle/two_runs.h"

namespace lockstep::properties {
namespace {

using reference::Expectation;
using reference::ExpectedGradient;
using reference::Outcome;
using reference::Program;

// Returns why the contracts differ on a gradient, or nothing.
std::string difference(const reference::Parameter& parameter, const Expectation& one,
                       const ExpectedGradient& a, const Expectation& other,
                       const ExpectedGradient& b) {
  if (!a.known || !b.known) return "what it is depends on time";
  if (a.defined != b.defined) return "one of the contracts has it undefined";
  std::uint64_t element = 0;
  if (a.defined &&
      !same_words(parameter, one.bits.data() + a.offset, other.bits.data() + b.offset, element))
    return "the contracts have other bits";
  return {};
}

std::string difference(const Program& program, std::size_t step, const Expected& one,
                       const Expected& other) {
  const reference::ExpectedStep& a = one.steps[step];
  const reference::ExpectedStep& b = other.steps[step];
  if (!one.knowledge_of(step).is_modelled || !other.knowledge_of(step).is_modelled)
    return "the model does not know what comes out";
  for (std::size_t rank = 0; rank < a.ranks.size(); ++rank) {
    if (a.any_error || b.any_error || a.ranks[rank].outcome != Outcome::kSuccess ||
        b.ranks[rank].outcome != Outcome::kSuccess)
      return "an error is expected";
    for (std::size_t p = 0; p < program.parameters.size(); ++p) {
      const std::string what = difference(program.parameters[p], one, a.ranks[rank].gradients[p],
                                          other, b.ranks[rank].gradients[p]);
      if (!what.empty()) return fmt::format("rank {}, parameter p{}: {}", rank, p, what);
    }
  }
  return {};
}

struct Place {
  std::size_t rank;
  std::uint32_t step;

  Verdict differ(const std::string& what) const {
    return {Failing::kSubjectsDiffer, "agreement",
            fmt::format("rank {}, step {}{}", rank, step, what)};
  }
};

Verdict compare_gradient(const Case& c, const Place& place, std::uint32_t p, const Side& one,
                         const ObservedGradient& a, const Side& other, const ObservedGradient& b) {
  const reference::Parameter& parameter = c.program.parameters[p];
  const GradientsDiffer differ =
      compare_gradients(parameter, {one.name, one.observation.ranks[place.rank].bits, a},
                        {other.name, other.observation.ranks[place.rank].bits, b});
  if (differ.text.empty()) return {};
  std::string text = fmt::format(", parameter p{}{}", p, differ.text);
  const auto& expected = one.expectation.steps[place.step].ranks[place.rank].gradients[p];
  if (differ.element && expected.defined)
    text +=
        fmt::format("\nboth contracts have {}",
                    show_word(parameter, one.expectation.bits[expected.offset + *differ.element],
                              *differ.element));
  return place.differ(text);
}

const ObservedStep* step_of(const Side& side, std::size_t rank, std::size_t at) {
  const auto& steps = side.observation.ranks[rank].steps;
  return at < steps.size() ? &steps[at] : nullptr;
}

Verdict compare_step(const Case& c, const Place& place, const Side& one, const Side& other) {
  const ObservedStep* a = step_of(one, place.rank, place.step);
  const ObservedStep* b = step_of(other, place.rank, place.step);
  const bool is_fine = a != nullptr && a->status.ok();
  if (is_fine != (b != nullptr && b->status.ok()))
    return place.differ(side_by_side(one.name, outcome_of_step(a), other.name, outcome_of_step(b)));
  if (!is_fine) return {};
  const std::size_t count = std::min(a->gradients.size(), b->gradients.size());
  for (std::uint32_t p = 0; p < count; ++p)
    if (Verdict v = compare_gradient(c, place, p, one, a->gradients[p], other, b->gradients[p]);
        !v.ok())
      return v;
  return {};
}

}  // namespace

Comparable comparable_steps(const Program& program, const Expected& one, const Expected& other) {
  Comparable found;
  const std::size_t count = std::min(one.steps.size(), other.steps.size());
  for (std::size_t step = 0; step < count; ++step) {
    const std::string what = difference(program, step, one, other);
    if (!what.empty()) {
      found.why = fmt::format("step {}: {}", step, what);
      return found;
    }
    ++found.steps;
    found.has_synced_pass = found.has_synced_pass || one.steps[step].is_reduced;
  }
  return found;
}

Verdict judge_agreement(const Case& c, std::uint32_t steps, const Side& one, const Side& other) {
  for (std::uint32_t step = 0; step < steps; ++step)
    for (std::size_t rank = 0; rank < c.program.world; ++rank)
      if (Verdict v = compare_step(c, {rank, step}, one, other); !v.ok()) return v;
  return {};
}

}  // namespace lockstep::properties
