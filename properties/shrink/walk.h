// walk: visits every simple field of a case that shrinking may move towards its default, in a fixed
// order. It omits fields that have moves of their own (world, sizes, keys, the schedule) and
// deviations, which are not choices. Internal to shrink/.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <tuple>
#include <type_traits>

#include "properties/case/fields.h"

namespace lockstep::properties {

// Calls visit(field number, reference, default). The number is the same for the same field of all
// records of one type, and below kFieldNumbers.
constexpr std::uint32_t kFieldNumbers = 256;

namespace walk_detail {

// The number of a record's first field: the fields of the records before it come first.
template <typename Record, typename... Records>
constexpr std::uint32_t fields_before(const std::tuple<Records...>*) {
  std::uint32_t count = 0;
  bool is_found = false;
  ((is_found = is_found || std::is_same_v<Record, Records>,
    count += is_found ? 0 : static_cast<std::uint32_t>(fields::size_of_table<Records>)),
   ...);
  return count;
}
template <typename Record>
constexpr std::uint32_t first_number =
    fields_before<Record>(static_cast<const fields::Records*>(nullptr));

template <typename Record, typename Visit>
void walk(Record& record, Visit& visit);

template <typename T, typename Default, typename Visit>
void walk_value(T& value, const Default& simplest, std::uint32_t number, Visit& visit) {
  using Plain = std::remove_const_t<T>;
  if constexpr (fields::IsRecord<Plain>) {
    walk(value, visit);
  } else if constexpr (fields::IsVector<Plain>::value) {
    using Element = typename Plain::value_type;
    for (auto& element : value) walk_value(element, Element{}, number, visit);
  } else {
    visit(number, value, simplest);
  }
}

template <typename Record, typename Visit>
void walk(Record& record, Visit& visit) {
  using Plain = std::remove_const_t<Record>;
  static_assert(first_number<Plain> + fields::size_of_table<Plain> <= kFieldNumbers);
  [[maybe_unused]] static const Plain simplest{};
  std::uint32_t number = first_number<Plain>;
  fields::for_each<Plain>([&](const auto& field) {
    if (!field.row.has_own_moves) walk_value(field.get(record), field.get(simplest), number, visit);
    ++number;
  });
}

}  // namespace walk_detail

template <typename AnyCase, typename Visit>
void walk_fields(AnyCase& value, Visit&& visit) {
  walk_detail::walk(value, visit);
}

// Returns how far a value is from its default: 0 at the default, and more the further away it is.
template <typename T>
std::uint64_t distance(const T& value, const T& simplest) {
  if (value == simplest) return 0;
  if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
    return static_cast<std::uint64_t>(value);
  } else if constexpr (std::is_signed_v<T>) {
    return 2 * static_cast<std::uint64_t>(std::abs(value)) + (value < 0 ? 1 : 0);
  } else {
    constexpr std::uint64_t kSmall = 16;
    const auto number = static_cast<std::uint64_t>(value);
    if (number <= kSmall) return 1 + number;
    return kSmall + static_cast<std::uint64_t>(std::bit_width(number));
  }
}

}  // namespace lockstep::properties
