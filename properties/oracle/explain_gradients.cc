#include "properties/oracle/explain_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "properties/explain/explain_bits.h"
#include "properties/oracle/oracles.h"
#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/state.h"

namespace lockstep::properties {
namespace {

using reference::ExpectedGradient;

// Returns what each rank contributes to the sums of a step, or would if it were synced. The model
// runs the step as a local one, which leaves the contributions in the gradients.
std::optional<reference::Expectation> contributions_to(const Case& c,
                                                       const Observation& observation,
                                                       std::uint32_t step) {
  reference::Program local = c.program;
  if (step >= local.steps.size()) return std::nullopt;
  local.steps.resize(step + 1);
  if (local.steps[step].kind == reference::PassKind::kNoGrad) return std::nullopt;
  local.steps[step].kind = reference::PassKind::kNoSync;
  return reference::run(local, reference::Contract::lockstep(), observation.recoveries,
                        observation.ready_orders());
}

// Whether the parameter's gradients are dense sums that are listed under its own name.
bool can_explain(const Case& c, std::uint32_t parameter) {
  return !c.program.parameters[parameter].sparse &&
         reference::owner_of(c.program, parameter) == parameter &&
         reference::value_count(c.program.parameters[parameter]) > 0;
}

bool has_means(const Case& c) {
  return c.program.options.hook_result == reference::HookResult::kMean;
}

// Where the parameter lies in its bucket, in values.
void find_in_buckets(const std::vector<reference::ExpectedBucket>& buckets, std::uint32_t parameter,
                     std::uint32_t parts, AverageInputs& inputs) {
  for (const reference::ExpectedBucket& bucket : buckets) {
    const auto member = std::find(bucket.parameters.begin(), bucket.parameters.end(), parameter);
    if (member == bucket.parameters.end()) continue;
    inputs.buffer_count = bucket.count * parts;
    inputs.offset =
        bucket.offsets[static_cast<std::size_t>(member - bucket.parameters.begin())] * parts;
  }
}

// Which computations give all the bits that were seen at this place, if any that is known does.
std::vector<BitsExplanation> explain_place(const Case& c, const reference::Expectation& expectation,
                                           const reference::Expectation& local,
                                           const GradientPlace& place, const std::uint64_t* seen) {
  const reference::Parameter& parameter = c.program.parameters[place.parameter];
  const std::uint32_t s = place.step.step;
  const std::uint64_t count = reference::value_count(parameter);
  const auto bits_of = [&](const reference::Expectation& of, const ExpectedGradient& gradient) {
    if (!gradient.defined) return std::vector<std::uint64_t>(count);
    const auto begin = of.bits.begin() + static_cast<std::ptrdiff_t>(gradient.offset);
    return std::vector<std::uint64_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
  };
  AverageInputs inputs;
  inputs.dtype = parameter.dtype;
  const std::uint32_t group =
      reference::group_of(c.program, static_cast<std::uint32_t>(place.rank));
  for (std::uint32_t rank = 0; rank < c.program.world; ++rank) {
    const auto& of_rank = local.steps[s].ranks[rank];
    if (of_rank.present && reference::group_of(c.program, rank) == group)
      inputs.ranks.push_back(bits_of(local, of_rank.gradients[place.parameter]));
  }
  const reference::Expectation& share =
      reference::share_of(c.program, expectation, place.rank, parameter.reducer);
  find_in_buckets(buckets_of(share, share.steps[s]),
                  reference::owner_of(c.program, place.parameter),
                  reference::parts_of(parameter.dtype), inputs);
  if (s > 0)
    inputs.before =
        bits_of(expectation, expectation.steps[s - 1].ranks[place.rank].gradients[place.parameter]);
  auto found = explain_bits(inputs, {seen, seen + count});
  if (found.empty() || found.front().matches != count) return {};
  return found;
}

// The same, where bits that were seen are wrong; nothing where they are right.
std::vector<BitsExplanation> explain_wrong_place(const Case& c,
                                                 const reference::Expectation& expectation,
                                                 const reference::Expectation& local,
                                                 const GradientPlace& place,
                                                 const std::uint64_t* seen) {
  auto found = explain_place(c, expectation, local, place, seen);
  const bool is_local = c.program.steps[place.step.step].kind == reference::PassKind::kNoSync;
  for (BitsExplanation& each : found)
    if (is_local && each.mistake.empty()) each.mistake = "this step is local (no_sync)";
  if (!found.empty() && found.front().mistake.empty()) found.clear();
  return found;
}

// Leaves those explanations that hold at the other place, too, unless none does.
void keep_common(std::vector<BitsExplanation>& found, const std::vector<BitsExplanation>& other) {
  std::vector<BitsExplanation> both;
  std::copy_if(found.begin(), found.end(), std::back_inserter(both), [&](const auto& each) {
    return std::any_of(other.begin(), other.end(), [&](const BitsExplanation& more) {
      return more.mistake == each.mistake && more.order == each.order;
    });
  });
  if (!both.empty()) found = std::move(both);
}

const ObservedStep* completed_step(const RankObservation& rank, std::uint32_t s) {
  for (const ObservedStep& step : rank.steps)
    if (step.step == s && step.status.ok() && !step.gradients.empty()) return &step;
  return nullptr;
}

// Adds, for each value, how far another order of additions, or another place of the division, can
// leave a step's average from the model's: n ranks make n roundings in either computation, each of
// which is off by half an epsilon of at most the sum of the magnitudes. `local` is not scaled,
// which leaves room. Gradients that are not zeroed carry the errors of earlier steps.
void add_roundings(const Case& c, const reference::Expectation& local, std::uint32_t step,
                   std::uint32_t parameter, std::vector<double>& allowed) {
  const reference::Parameter& record = c.program.parameters[parameter];
  const reference::Format format = reference::format_of(record.dtype);
  const double epsilon = std::ldexp(1.0, -format.mantissa_bits);
  const double smallest = std::ldexp(1.0, format.min_exponent);  // below it roundings are absolute
  allowed.resize(reference::value_count(record));
  for (const auto& rank : local.steps[step].ranks) {
    if (!rank.present || !rank.gradients[parameter].defined) continue;
    const std::uint64_t* const bits = local.bits.data() + rank.gradients[parameter].offset;
    for (std::size_t i = 0; i < allowed.size(); ++i)
      allowed[i] += static_cast<double>(c.program.world) * epsilon *
                    std::max(smallest, std::abs(reference::to_double(record.dtype, bits[i])));
  }
}

bool is_near(const reference::Parameter& parameter, const std::uint64_t* right,
             const std::uint64_t* seen, const std::vector<double>& allowed) {
  for (std::uint64_t i = 0; i < reference::gradient_words(parameter); ++i) {
    if (right[i] == seen[i] || reference::same_bits(parameter.dtype, right[i], seen[i])) continue;
    if (i >= allowed.size()) return false;  // It has other rows.
    const double difference = reference::to_double(parameter.dtype, right[i]) -
                              reference::to_double(parameter.dtype, seen[i]);
    if (!(std::abs(difference) <= allowed[i])) return false;
  }
  return true;
}

}  // namespace

std::string GradientPlace::text() const {
  return fmt::format("rank {}, step {}, parameter p{}", rank, step.step, parameter);
}

std::string contributions(const Case& c, const Observation& observation, std::uint32_t step,
                          std::uint32_t parameter, std::uint64_t element) {
  const auto expectation = contributions_to(c, observation, step);
  if (!expectation) return {};
  std::string out;
  for (std::size_t rank = 0; rank < expectation->steps[step].ranks.size(); ++rank) {
    const auto& expected = expectation->steps[step].ranks[rank];
    if (!expected.present || parameter >= expected.gradients.size()) continue;
    const ExpectedGradient& gradient = expected.gradients[parameter];
    const reference::Parameter& record = c.program.parameters[parameter];
    out += fmt::format(
        "\n  rank {} contributes {}", rank,
        gradient.defined ? show_word(record, expectation->bits[gradient.offset + element], element)
                         : std::string("nothing (undefined)"));
  }
  return out;
}

std::string likely_mistake(const Case& c, const reference::Expectation& expectation,
                           const Observation& observation, const GradientPlace& place,
                           const std::uint64_t* seen) {
  constexpr int kMostPlaces = 24;
  const std::uint32_t s = place.step.step;
  const auto local = contributions_to(c, observation, s);
  if (!local || c.program.parameters[place.parameter].sparse || !has_means(c)) return {};
  auto found = explain_wrong_place(c, expectation, *local, place, seen);
  if (found.empty()) return {};
  int places = 0;
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    const auto& steps = observation.ranks[rank].steps;
    const auto step = std::find_if(steps.begin(), steps.end(),
                                   [s](const ObservedStep& each) { return each.step == s; });
    if (step == steps.end() || !step->status.ok()) continue;
    if (!expectation.steps[s].ranks[rank].present) continue;
    for (std::uint32_t p = 0; p < step->gradients.size(); ++p) {
      const ExpectedGradient& expected = expectation.steps[s].ranks[rank].gradients[p];
      const bool is_comparable =
          can_explain(c, p) && step->gradients[p].defined && expected.defined && expected.known;
      if (found.size() == 1 || !is_comparable || ++places > kMostPlaces) continue;
      keep_common(found, explain_wrong_place(
                             c, expectation, *local, {rank, *step, p},
                             observation.ranks[rank].bits.data() + step->gradients[p].offset));
    }
  }
  return "\n  these bits are " +
         to_text(found, reference::value_count(c.program.parameters[place.parameter]));
}

namespace {

// What is recorded of one parameter after one step. `local` has what the ranks contribute; there is
// none where a step has no backward. `allowed` is add_roundings()'s.
GradientRecord record_of(const Case& c, const reference::Expectation& expectation,
                         const reference::Expectation* local, const Observation& observation,
                         GradientRecord record, const std::vector<double>& allowed) {
  const auto [s, p] = std::pair(record.step, record.parameter);
  std::vector<std::uint64_t> bits;
  bool is_explained = !can_explain(c, p) || !has_means(c);
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    const ObservedStep* const step = completed_step(observation.ranks[rank], s);
    bits.push_back(step != nullptr && step->gradients[p].defined ? 1 : 0);
    if (bits.back() == 0) continue;
    const std::uint64_t* const seen =
        observation.ranks[rank].bits.data() + step->gradients[p].offset;
    bits.insert(bits.end(), seen, seen + reference::gradient_words(c.program.parameters[p]));
    const ExpectedGradient& expected = expectation.steps[s].ranks[rank].gradients[p];
    if (!expected.reduced || local == nullptr) continue;
    const std::uint64_t* const right = expectation.bits.data() + expected.offset;
    if (!is_near(c.program.parameters[p], right, seen, allowed)) record.is_average = false;
    if (std::exchange(is_explained, true)) continue;
    const auto found = explain_place(c, expectation, *local, {rank, *step, p}, seen);
    if (found.empty()) continue;
    record.made_by = to_text(found, reference::value_count(c.program.parameters[p]));
    record.tells_order = found.front().order != kAnyOrder;
  }
  record.hash = reference::hash_of_state(bits);
  return record;
}

}  // namespace

std::vector<GradientRecord> gradient_records(const Case& c,
                                             const reference::Expectation& expectation,
                                             const Observation& observation) {
  std::vector<GradientRecord> records;
  std::vector<std::vector<double>> allowed(c.program.parameters.size());
  for (std::uint32_t s = 0; s < expectation.steps.size(); ++s) {
    const auto local = contributions_to(c, observation, s);
    for (std::uint32_t p = 0; p < c.program.parameters.size(); ++p) {
      GradientRecord record;
      record.step = s;
      record.parameter = p;
      if (local) add_roundings(c, *local, s, p, allowed[p]);
      records.push_back(record_of(c, expectation, local ? &*local : nullptr, observation,
                                  std::move(record), allowed[p]));
    }
  }
  return records;
}

}  // namespace lockstep::properties
