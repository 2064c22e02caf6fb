#include "properties/case/switched.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "properties/case/fields.h"

namespace lockstep::properties {
namespace {

static_assert(fields::kSwitchable <= kMaxSwitchable);

// Calls f(field, get) for the row of the option: get(case) is the record of the option.
template <typename F>
void with_field(SwitchedOption option, const F& f) {
  std::size_t number = 0;
  fields::for_each_option([&](const auto& field, const auto& get) {
    if (field.row.keeps.is_set && ++number == static_cast<std::size_t>(option)) f(field, get);
  });
}

// A number goes to its default, to 1, or to one of its choices.
template <typename T>
std::vector<T> other_numbers(const fields::Row& row, T simplest, T now) {
  std::vector<T> others = {simplest, T{1}};
  others.insert(others.end(), row.choices.begin(), row.choices.end());
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  std::erase(others, now);
  return others;
}

template <typename T>
T other_value(const fields::Row& row, T simplest, T now, std::uint32_t to) {
  if constexpr (std::is_same_v<T, bool>) {
    return !now;
  } else if constexpr (std::is_enum_v<T>) {
    constexpr auto count = static_cast<std::uint32_t>(fields::Names<T>::list.size());
    return static_cast<T>((static_cast<std::uint32_t>(now) + 1 + to % (count - 1)) % count);
  } else {
    const std::vector<T> others = other_numbers(row, simplest, now);
    return others[to % others.size()];
  }
}

// Returns whether all that differs are options that keep what comes out: normalize() may change
// some that mean nothing without the switched one.
bool differ_in_options_that_keep(const Case& one, const Case& other) {
  Case with_options_of_other = one;
  with_options_of_other.program.options = other.program.options;
  with_options_of_other.torch = other.torch;
  with_options_of_other.switched = other.switched;
  if (!equal(with_options_of_other, other)) return false;
  bool all = true;
  fields::for_each_option([&](const auto& field, const auto& get) {
    if (field.get(get(one)) != field.get(get(other)))
      all = all && field.row.keeps.is_set && field.row.keeps.holds(one, other);
  });
  return all;
}

}  // namespace

std::optional<Case> switched(const Case& value) {
  if (value.switched.option == SwitchedOption::kNone) return std::nullopt;
  Case one = value;
  normalize(one);
  Case other = one;
  other.switched = {};
  bool is_switched = false;
  with_field(value.switched.option, [&](const auto& field, const auto& get) {
    static const Case simplest{};
    const auto now = field.get(get(one));
    const auto then = other_value(field.row, field.get(get(simplest)), now, value.switched.to);
    field.get(get(other)) = then;
    normalize(other);
    is_switched = field.get(get(other)) == then;
  });
  if (!is_switched || !differ_in_options_that_keep(one, other)) return std::nullopt;
  return other;
}

std::vector<SwitchedOption> switchable_options() {
  std::vector<SwitchedOption> options;
  for (std::size_t i = 1; i <= fields::kSwitchable; ++i)
    options.push_back(static_cast<SwitchedOption>(i));
  return options;
}

std::string name_of(SwitchedOption option) { return fields::name_of(option); }

std::optional<SwitchedOption> switchable_option(std::string_view name) {
  for (const SwitchedOption option : switchable_options())
    if (name_of(option) == name) return option;
  return std::nullopt;
}

std::string switchable_names() {
  std::string names;
  for (const SwitchedOption option : switchable_options())
    names += (names.empty() ? "" : " ") + name_of(option);
  return names;
}

std::optional<Capability> needed_for(SwitchedOption option) {
  std::optional<Capability> needs;
  with_field(option, [&needs](const auto& field, const auto&) { needs = field.row.needs; });
  return needs;
}

bool keeps_errors(SwitchedOption option) {
  bool keeps = false;
  with_field(option, [&keeps](const auto& field, const auto&) { keeps = field.row.keeps_errors; });
  return keeps;
}

std::string describe_switch(const Case& value) {
  const std::optional<Case> other = switched(value);
  std::string text;
  if (!other) return text;
  with_field(value.switched.option, [&](const auto& field, const auto& get) {
    const auto then = field.get(get(*other));
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(then)>>)
      text = fmt::format("{} = {}", field.name, fields::name_of(then));
    else
      text = fmt::format("{} = {}", field.name, then);
  });
  return text;
}

}  // namespace lockstep::properties
