#include "properties/generate/neighbour.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "properties/case/fields.h"
#include "properties/generate/random.h"

namespace lockstep::properties {
namespace {

// Visits the numbers, bools and enums of a record, in the order of the table of fields.
template <typename T, typename Visit>
void visit_scalars(T& value, fields::Limits limits, const Visit& visit) {
  if constexpr (fields::IsVector<T>::value) {
    for (auto& element : value) visit_scalars(element, limits, visit);
  } else if constexpr (fields::IsRecord<T>) {
    fields::for_each<T>(
        [&](const auto& field) { visit_scalars(field.get(value), field.limits, visit); });
  } else {
    visit(value, limits);
  }
}

template <typename T>
void change(T& value, fields::Limits limits, Random& random) {
  if constexpr (std::is_same_v<T, bool>) {
    value = !value;
  } else if constexpr (std::is_enum_v<T>) {
    constexpr auto kValues = static_cast<std::uint32_t>(fields::Names<T>::list.size());
    const std::uint32_t further = 1 + random.below(kValues - 1);
    value = static_cast<T>((static_cast<std::uint32_t>(value) + further) % kValues);
  } else {
    // A step of one or two, up or down, within the limits of the field and of its type.
    const std::int64_t step = random.between(1, 2);
    const bool is_up = value == 0 || random.percent(50);
    const std::int64_t least = limits.is_bounded() ? limits.least : 0;
    const std::int64_t most =
        limits.is_bounded() ? limits.most : std::numeric_limits<std::int32_t>::max();
    const auto now = static_cast<std::int64_t>(value);
    if (now > most) return;  // a hash
    value = static_cast<T>(std::clamp(is_up ? now + step : now - step, least, most));
  }
}

template <typename T>
void change_one(T& record, Random& random) {
  std::uint32_t count = 0;
  visit_scalars(record, {}, [&](auto&, fields::Limits) { ++count; });
  const std::uint32_t chosen = random.below(count);
  std::uint32_t at = 0;
  visit_scalars(record, {}, [&](auto& value, fields::Limits limits) {
    if (at++ == chosen) change(value, limits, random);
  });
}

void draw_schedule(Random& random, Schedule& schedule) {
  constexpr auto kPolicies =
      static_cast<std::uint32_t>(fields::Names<Schedule::Policy>::list.size());
  schedule.policy = static_cast<Schedule::Policy>(random.below(kPolicies));
  schedule.seed = random.word();
  schedule.deviations.clear();
}

// Moves one of the faults to another rank, step or place. Its kind and duration stay, because the
// timeout of the case was chosen for them.
void move_fault(Random& random, std::vector<faults::Fault>& faults) {
  faults::Fault& fault = faults[random.below(static_cast<std::uint32_t>(faults.size()))];
  switch (random.below(3)) {
    case 0:
      return change(fault.rank, {}, random);
    case 1:
      return change(fault.step, {}, random);
    default:
      return change(fault.at, {}, random);
  }
}

void draw_values(Random& random, reference::Program& program) {
  program.key = random.word();
  for (reference::Step& step : program.steps) step.key = random.word();
}

}  // namespace

Case neighbour(const Case& base, std::uint64_t seed, std::uint64_t index, Capabilities able) {
  Case out = base;
  if (index == 0) return out;
  Random random(seed, index, "neighbour");
  const std::uint32_t kind = random.below(100);
  if (kind < 70) draw_schedule(random, out.schedule);
  if (kind >= 50) draw_values(random, out.program);
  if (kind < 30) return out;
  const Case with_fields_of_base = out;
  const std::uint32_t changes = random.between(1, 3);
  for (std::uint32_t i = 0; i < changes; ++i) {
    // Most of the changes concern the options and the environment, whose fields are few beside the
    // nodes of graphs.
    const std::uint32_t what = random.below(100);
    if (what < 45)
      change_one(out.program.options, random);
    else if (what < 60)
      change_one(out.environment, random);
    else if (what < 90 || out.faults.faults.empty())
      change_one(out.program, random);
    else
      move_fault(random, out.faults.faults);
  }
  normalize(out);
  return missing(out, able).empty() ? out : with_fields_of_base;
}

}  // namespace lockstep::properties
