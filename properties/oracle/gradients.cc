// The oracles on values: equal bits on all ranks, bits against the model, defined or undefined
// gradients, and untouched storage.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "properties/oracle/explain_gradients.h"
#include "properties/oracle/oracles.h"
#include "reference/arithmetic.h"
#include "reference/model.h"

namespace lockstep::properties {

std::string show_word(const reference::Parameter& parameter, std::uint64_t bits, std::uint64_t e) {
  if (e >= reference::value_count(parameter)) return bits == 0 ? "absent" : "present";
  static constexpr int kDigits[] = {8, 16, 4, 4, 8};
  return fmt::format("0x{:0{}x} ({})", bits, kDigits[static_cast<std::size_t>(parameter.dtype)],
                     reference::to_double(parameter.dtype, bits));
}

std::string name_of_word(const reference::Parameter& parameter, std::uint64_t e) {
  const std::uint64_t values = reference::value_count(parameter);
  if (e >= values) return fmt::format("row {}", e - values);
  const std::uint32_t parts = reference::parts_of(parameter.dtype);
  const char* part = parts == 1 ? "" : e % parts == 0 ? ", real part" : ", imaginary part";
  return fmt::format("element {} of {}{}", e / parts, values / parts, part);
}

namespace {

using reference::ExpectedGradient;

// Which elements differ, as ranges: "3 of 96 elements differ: 0, 5 to 6". Nothing where there is
// one.
template <class Differs>
std::string ranges_of(const reference::Parameter& parameter, const Differs& differs) {
  constexpr std::size_t kMostRanges = 6;
  const std::uint32_t parts = reference::parts_of(parameter.dtype);
  const std::uint64_t elements = reference::value_count(parameter) / parts;
  std::vector<std::string> ranges;
  std::uint64_t count = 0;
  for (std::uint64_t e = 0; e < elements; ++e) {
    const auto differs_at = [&](std::uint64_t element) {
      for (std::uint32_t part = 0; part < parts; ++part)
        if (differs(element * parts + part)) return true;
      return false;
    };
    if (!differs_at(e)) continue;
    const std::uint64_t first = e;
    while (e + 1 < elements && differs_at(e + 1)) ++e;
    count += e - first + 1;
    ranges.push_back(first == e ? fmt::format("{}", e) : fmt::format("{} to {}", first, e));
  }
  if (elements < 2 || count == 0) return {};
  if (count == elements) return fmt::format("\n  all {} elements differ", elements);
  const std::size_t more = ranges.size() - std::min(ranges.size(), kMostRanges);
  ranges.resize(ranges.size() - more);
  return fmt::format("\n  {} of {} elements {}: {}{}", count, elements,
                     count == 1 ? "differs" : "differ", fmt::join(ranges, ", "),
                     more > 0 ? fmt::format(", and {} more ranges", more) : "");
}

Verdict compare_bits(const Case& c, const reference::Expectation& expectation,
                     const Observation& observation, const GradientPlace& place,
                     const std::uint64_t* expected, const std::uint64_t* seen) {
  const reference::Parameter& parameter = c.program.parameters[place.parameter];
  const std::uint64_t count = reference::gradient_words(parameter);
  const auto differs = [&](std::uint64_t e) {
    return expected[e] != seen[e] && !reference::same_bits(parameter.dtype, expected[e], seen[e]);
  };
  for (std::uint64_t e = 0; e < count; ++e) {
    if (!differs(e)) continue;
    return {Failing::kWrongBits, "bits",
            fmt::format("{}, {}:\n  expected {}\n  got      {}{}{}{}", place.text(),
                        name_of_word(parameter, e), show_word(parameter, expected[e], e),
                        show_word(parameter, seen[e], e),
                        contributions(c, observation, place.step.step, place.parameter, e),
                        ranges_of(parameter, differs),
                        likely_mistake(c, expectation, observation, place, seen))};
  }
  return {};
}

Verdict compare_gradient(const Case& c, const reference::Expectation& expectation,
                         const Observation& observation, const GradientPlace& place,
                         const ExpectedGradient& expected, const ObservedGradient& seen) {
  if (expected.defined != seen.defined) {
    return {
        Failing::kWrongBits, "definedness",
        expected.defined
            ? fmt::format("{}: the gradient must be defined, and is undefined (`.grad` is None)",
                          place.text())
            : fmt::format("{}: the gradient must be undefined (`.grad` is None), and is defined",
                          place.text())};
  }
  if (!expected.defined) return {};
  Verdict verdict;
  if (expected.known)
    verdict =
        compare_bits(c, expectation, observation, place, expectation.bits.data() + expected.offset,
                     observation.ranks[place.rank].bits.data() + seen.offset);
  if (verdict.ok() && expected.untouched && !seen.same_storage) {
    return {
        Failing::kWrongBits, "untouched",
        fmt::format("{}: nobody used it, so its gradient must stay as it is; it has a new storage",
                    place.text())};
  }
  return verdict;
}

// The gradient must be the bucket's view (B7). All gradients of one bucket share one storage, which
// belongs to no other bucket, and each lies at the offset of the layout.
Verdict compare_places(const Case& c, const reference::Expectation& whole,
                       const GradientPlace& place) {
  const reference::Expectation& expectation = reference::share_of(
      c.program, whole, place.rank, c.program.parameters[place.parameter].reducer);
  const auto& expected = expectation.steps[place.step.step].ranks[place.rank].gradients;
  const ObservedGradient& gradient = place.step.gradients[place.parameter];
  if (!expected[place.parameter].in_bucket || !gradient.defined) return {};
  const auto wrong = [&](const std::string& what) {
    return Verdict{Failing::kWrongBits, "view", fmt::format("{}: {}", place.text(), what)};
  };
  const auto& buckets = buckets_of(expectation, expectation.steps[place.step.step]);
  for (const reference::ExpectedBucket& bucket : buckets) {
    const auto member =
        std::find(bucket.parameters.begin(), bucket.parameters.end(), place.parameter);
    if (member == bucket.parameters.end()) continue;
    const std::uint64_t offset =
        bucket.offsets[static_cast<std::size_t>(member - bucket.parameters.begin())];
    const std::uint64_t byte = offset * reference::size_of(bucket.dtype);
    if (gradient.byte_in_storage != byte)
      return wrong(fmt::format("lies at byte {} of its storage, not at {}, its place in the bucket",
                               gradient.byte_in_storage, byte));
    for (const reference::ExpectedBucket& other_bucket : buckets) {
      const bool together = &other_bucket == &bucket;
      for (const std::uint32_t other : other_bucket.parameters) {
        if (!expected[other].in_bucket || !place.step.gradients[other].defined) continue;
        if (together == (place.step.gradients[other].shares_with == gradient.shares_with)) continue;
        return wrong(fmt::format("{} a storage with p{}, which lies in {} bucket",
                                 together ? "does not share" : "shares", other,
                                 together ? "the same" : "another"));
      }
    }
  }
  return {};
}

// Ranks that completed the step must hold the same bits, whatever the model says.
Verdict compare_ranks(const Case& c, const Observation& observation, const GradientPlace& place,
                      const ObservedStep& other, std::size_t other_rank) {
  const ObservedGradient& a = place.step.gradients[place.parameter];
  const ObservedGradient& b = other.gradients[place.parameter];
  const reference::Parameter& parameter = c.program.parameters[place.parameter];
  const auto differ = [&](const std::string& how) {
    return Verdict{Failing::kWrongBits, "equal",
                   fmt::format("{} differs from rank {}: {}", place.text(), other_rank, how)};
  };
  if (a.defined != b.defined) return differ("defined on one of them only");
  if (!a.defined) return {};
  const std::uint64_t* const mine = observation.ranks[place.rank].bits.data() + a.offset;
  const std::uint64_t* const theirs = observation.ranks[other_rank].bits.data() + b.offset;
  const auto differs = [&](std::uint64_t e) {
    return mine[e] != theirs[e] && !reference::same_bits(parameter.dtype, mine[e], theirs[e]);
  };
  for (std::uint64_t e = 0; e < reference::gradient_words(parameter); ++e)
    if (differs(e))
      return differ(fmt::format("{} is {} here and {} there{}{}", name_of_word(parameter, e),
                                show_word(parameter, mine[e], e),
                                show_word(parameter, theirs[e], e),
                                contributions(c, observation, place.step.step, place.parameter, e),
                                ranges_of(parameter, differs)));
  return {};
}

bool is_each_ranks_own(const reference::Program& program, std::uint32_t parameter) {
  return program.options.hook_result == reference::HookResult::kLocal &&
         !program.parameters[parameter].sparse;
}

const ObservedStep* find_step(const RankObservation& rank, std::uint32_t step, std::size_t hint) {
  if (hint < rank.steps.size() && rank.steps[hint].step == step) return &rank.steps[hint];
  for (const ObservedStep& observed : rank.steps)
    if (observed.step == step) return &observed;
  return nullptr;
}

// The step of the first rank of its group with which this one must agree on the parameter, or null.
// A gradient that nobody used may differ, or be defined on one rank only, because it was never
// reduced (G5). A hook may leave each rank its own (S4).
const ObservedStep* must_equal(const Case& c, const reference::Expectation& expectation,
                               const Observation& observation, const GradientPlace& place,
                               std::size_t hint) {
  const reference::ExpectedStep& expected = expectation.steps[place.step.step];
  const std::uint32_t peer = reference::group_of(c.program, static_cast<std::uint32_t>(place.rank));
  const std::uint32_t owner = reference::owner_of(c.program, place.parameter);
  const bool is_shared =
      !c.program.parameters[owner].frozen && !is_each_ranks_own(c.program, place.parameter) &&
      expected.ranks[place.rank].gradients[place.parameter].reduced &&
      (expected.ranks[peer].gradients[place.parameter].reduced || !expected.ranks[peer].present);
  if (place.rank <= peer || !is_shared) return nullptr;
  const ObservedStep* first = find_step(observation.ranks[peer], place.step.step, hint);
  const bool has_ended_well = first != nullptr && first->status.ok() && !first->gradients.empty();
  return has_ended_well ? first : nullptr;
}

// Returns whether gradients after the step are judged. A rank that has exited owes nothing in its
// last step, and may have been ahead of those who recovered without it.
bool is_judged(const reference::Expectation& expectation, const RankObservation& seen,
               std::size_t rank, const ObservedStep& step) {
  const bool is_last_of_exited = seen.exited && &step == &seen.steps.back();
  return step.status.ok() && !is_last_of_exited && expectation.steps[step.step].ranks[rank].present;
}

}  // namespace

Verdict judge_equal_ranks(const Case& c, const reference::Expectation& expectation,
                          const Observation& observation) {
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    const RankObservation& seen = observation.ranks[rank];
    const std::uint32_t peer = reference::group_of(c.program, static_cast<std::uint32_t>(rank));
    for (std::size_t s = 0; s < seen.steps.size(); ++s) {
      const ObservedStep& step = seen.steps[s];
      if (!is_judged(expectation, seen, rank, step)) continue;
      for (std::uint32_t p = 0; p < step.gradients.size(); ++p) {
        const GradientPlace place{rank, step, p};
        const ObservedStep* first = must_equal(c, expectation, observation, place, s);
        if (first == nullptr) continue;
        if (Verdict v = compare_ranks(c, observation, place, *first, peer); !v.ok()) return v;
      }
    }
  }
  return {};
}

Verdict judge_gradients(const Case& c, const reference::Expectation& expectation,
                        const Observation& observation, UnspecifiedCounts& counts) {
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    const RankObservation& seen = observation.ranks[rank];
    const std::uint32_t peer = reference::group_of(c.program, static_cast<std::uint32_t>(rank));
    for (std::size_t s = 0; s < seen.steps.size(); ++s) {
      const ObservedStep& step = seen.steps[s];
      if (!is_judged(expectation, seen, rank, step)) continue;
      const reference::ExpectedStep& expected = expectation.steps[step.step];
      if (step.gradients.size() != c.program.parameters.size())
        return {Failing::kWrongBits, "definedness",
                fmt::format("rank {}, step {}: {} gradients of {} parameters", rank, step.step,
                            step.gradients.size(), c.program.parameters.size())};
      for (std::uint32_t p = 0; p < step.gradients.size(); ++p) {
        const GradientPlace place{rank, step, p};
        if (const ObservedStep* first = must_equal(c, expectation, observation, place, s))
          if (Verdict v = compare_ranks(c, observation, place, *first, peer); !v.ok()) return v;
        if (Verdict v = compare_places(c, expectation, place); !v.ok()) return v;
        if (!expected.ranks[rank].gradients[p].known) counts.note(Unspecified::kBits);
        Verdict verdict = compare_gradient(c, expectation, observation, place,
                                           expected.ranks[rank].gradients[p], step.gradients[p]);
        if (!verdict.ok()) return verdict;
      }
    }
    // A rank without inputs has the results of the others' passes (S2).
    for (const ObservedStep& step : seen.ending) {
      for (std::uint32_t p = 0; p < step.gradients.size(); ++p) {
        Verdict verdict =
            compare_gradient(c, expectation, observation, {rank, step, p},
                             expectation.ending[rank].gradients[p], step.gradients[p]);
        if (!verdict.ok()) return verdict;
      }
    }
  }
  return {};
}

}  // namespace lockstep::properties
