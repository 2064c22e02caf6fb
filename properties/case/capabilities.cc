#include "properties/case/capabilities.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "properties/case/fields.h"
#include "properties/case/switched.h"
#include "reference/model.h"

namespace lockstep::properties {
namespace {

struct Description {
  const char* name;
  const char* meaning;
};

#define LOCKSTEP_DESCRIPTION(enumerator, name, meaning) {name, meaning},
constexpr std::array<Description, kCapabilities> kDescriptions{
    {LOCKSTEP_CAPABILITIES(LOCKSTEP_DESCRIPTION)}};
#undef LOCKSTEP_DESCRIPTION

Capabilities with_if(Capabilities all, bool condition, Capability capability) {
  return condition ? all.with(capability) : all;
}

// Returns what the rows of the fields name.
Capabilities needed_by_fields(const Case& value) {
  Capabilities out;
  fields::visit_fields(value, [&](const auto& field, const auto& record) {
    const fields::Row& row = field.row;
    if (row.needs_nothing) return;
    if (row.needs && fields::is_set(field, record)) out = out.with(*row.needs);
    using T = std::remove_cvref_t<decltype(field.get(record))>;
    if constexpr (std::is_enum_v<T>) {
      const fields::Value& each = fields::value_of(field.get(record));
      if (each.needs) out = out.with(*each.needs);
    }
  });
  return out;
}

// Returns whether an average over the ranks can be rounded although the values are exact
// (values.h). What a rank accumulates after a synced pass need not be a multiple of the number of
// ranks.
bool may_round(std::uint32_t world) { return !std::has_single_bit(world); }

// Returns what the pass needs because of several fields together. An absent rank that trains is
// under no_sync.
Capabilities needed_by_pass(const reference::RankPass& pass) {
  const auto kept = std::count_if(pass.forwards.begin(), pass.forwards.end(),
                                  [](const auto& forward) { return !forward.discard; });
  Capabilities out = with_if({}, kept > 1, Capability::kSeveralForwards);
  out = with_if(out, pass.absent && !pass.skip && kept > 0, Capability::kNoSync);
  return with_if(out, pass.backwards.size() > 1, Capability::kSeveralBackwards);
}

// Returns whether a rank raises by itself, and not because another one is absent (P8).
bool raises_by_itself(const reference::ExpectedStep& step) {
  return std::any_of(step.ranks.begin(), step.ranks.end(), [](const auto& rank) {
    return rank.outcome == reference::Outcome::kOwnError;
  });
}

}  // namespace

const char* name_of(Capability capability) {
  return kDescriptions[static_cast<std::size_t>(capability) % kDescriptions.size()].name;
}

std::vector<std::string> names(Capabilities capabilities) {
  std::vector<std::string> out;
  for (int i = 0; i < kCapabilities; ++i)
    if (capabilities.has(static_cast<Capability>(i)))
      out.emplace_back(kDescriptions[static_cast<std::size_t>(i)].name);
  return out;
}

std::vector<std::string> described(Capabilities capabilities) {
  std::vector<std::string> out;
  for (const Description& each : kDescriptions)
    if (capabilities.has(static_cast<Capability>(&each - kDescriptions.data())))
      out.push_back(fmt::format("{} ({})", each.name, each.meaning));
  return out;
}

Capabilities needed(const Case& value) {
  Case normal = value;
  normalize(normal);
  const reference::Program& program = normal.program;
  Capabilities out = needed_by_fields(normal);
  out = with_if(out, may_round(program.world), Capability::kRounding);
  out = with_if(out, !normal.faults.faults.empty(), Capability::kFaults);
  out = with_if(out, program.parameters.size() > 64, Capability::kManyParameters);
  for (const reference::Parameter& parameter : program.parameters)
    out = with_if(out, reference::element_count(parameter) == 0, Capability::kZeroSize);
  for (const reference::Step& step : program.steps) {
    if (step.kind == reference::PassKind::kNoGrad) continue;
    for (const reference::RankPass& pass : step.variants)
      out = Capabilities::from_bits(out.bits() | needed_by_pass(pass).bits());
  }
  for (const faults::Fault& fault : normal.faults.faults)
    out = with_if(out, !faults::is_benign(fault.kind), Capability::kRecovery);
  const reference::Expectation expectation =
      reference::run(program, reference::Contract::lockstep());
  for (const reference::ExpectedStep& step : expectation.steps)
    out = with_if(out, raises_by_itself(step), Capability::kErrors);
  if (const std::optional<Case> other = switched(normal))
    out = Capabilities::from_bits(out.bits() | needed(*other).bits());
  return out;
}

Capabilities missing(const Case& value, Capabilities capabilities) {
  return needed(value).without(capabilities);
}

std::string missing_message(const Case& value, Capabilities capabilities,
                            std::string_view subject) {
  const std::vector<std::string> lacks = described(missing(value, capabilities));
  if (lacks.empty()) return {};
  return fmt::format("the case needs {}, which the subject '{}' does not support",
                     fmt::join(lacks, ", "), subject);
}

}  // namespace lockstep::properties
