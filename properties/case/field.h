// Field: one row of the table of a record (fields.h), and what all users of the tables need: the
// walk over fields, comparison, and the rows by name. A row says everything about an option that
// does not depend on other options; what follows from the row is derived:
//
//   the JSON form            case/case_json.cc, from the name and the limits
//   what a subject needs     case/capabilities.cc
//   the description          case/describe.cc
//   the draw                 generate/, from the weights
//   coverage                 generate/features.cc, single values and pairs
//   the moves to defaults    shrink/walk.h
//   "does not matter: ..."   cli/shrink_failure.cc
//   the second run           case/switched.cc, of a case in which the option is switched
//
// This header is not for general use: only .cc files of properties/ that treat cases as data
// include it, by way of fields.h. Plain constant values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "properties/case/capabilities.h"
#include "properties/case/case.h"

namespace lockstep::properties::fields {

// Where the description of a record has the phrase of a field. kApart: the description asks for the
// phrase by the name of the field.
enum class Place : std::uint8_t { kFirst, kSecond, kThird, kFourth, kUsual, kLast, kApart };

constexpr const char* kByHand = "";

// A set of features with which coverage counts another feature in pairs: see pairs.h.
using Pairs = std::uint32_t;

// A function of keeps.h, or none. The flag stands beside the pointer because GCC's sanitizers make
// no constant expression of a comparison of a function's address.
struct Keeps {
  using Function = bool (*)(const Case&, const Case&);
  constexpr Keeps() = default;
  constexpr Keeps(Function function) : holds(function), is_set(true) {}  // NOLINT: a row names it
  Function holds = nullptr;
  bool is_set = false;
};

// One row, beside the name and the member of the field. All entries but `clause` concern any value
// other than the default, which is the simplest value of a field: shrinking goes there.
struct Row {
  const char* clause = "";  // of reference/CONTRACT.md
  std::optional<Capability> needs = {};
  const char* phrase = "";  // in a description; {} stands for the value
  Place place = Place::kUsual;
  const char* feature = nullptr;  // its name in coverage
  const char* each = nullptr;     // coverage counts every value: this text, and the value's name
  Pairs pairs = 0;                // with these the feature is counted in pairs
  // The share of cases that draw another value than the default, whatever else they have: one of
  // `choices`, by the weights of an enum's values, or else any. Without it, code in generate/ draws
  // the field together with others.
  std::uint16_t percent = 0;
  std::span<const std::uint16_t> choices = {};
  // What seeds the draw, if it is not the name of the field: so that a seed means what it has
  // always meant. kByHand: code in generate/ draws it from random numbers that it shares.
  const char* stream = nullptr;
  const char* change = nullptr;  // after a failure: the name of a change of this field
  bool has_own_moves = false;    // the shrinker has special moves for the field
  bool needs_nothing = false;    // whatever the value is, although values elsewhere need something
  // An option that must not change what comes out: whether that is so for two programs that differ
  // in it (keeps.h). If it is, all gradients and the state are the same after each step that no
  // rank fails.
  Keeps keeps = {};
  bool keeps_errors = false;  // and ranks raise the same errors
};

// The limits of a field in a case file: the most elements of a list, and the range of a number (or
// of the numbers in a list) from `least` to `most`. An index has no such range, because it is taken
// modulo.
struct Limits {
  std::size_t elements = 0;
  std::int64_t least = 0;
  std::int64_t most = -1;  // if it is below `least`, any number of the type is allowed
  constexpr bool is_bounded() const { return least <= most; }
};

// One field: get(record) returns a reference to it.
template <typename Record, typename T>
struct Field {
  const char* name;
  T Record::*member;
  Limits limits;
  Row row;
  template <typename R>
  constexpr auto& get(R& record) const {
    return record.*member;
  }
};

template <typename Record, typename T>
constexpr Field<Record, T> field(const char* name, T Record::*member, Row row = {}) {
  return {name, member, {}, row};
}

template <typename Record, typename T>
constexpr Field<Record, T> list_of(const char* name, T Record::*member, std::size_t elements,
                                   Row row = {}) {
  return {name, member, {elements, 0, -1}, row};
}

template <typename Record, typename T>
constexpr Field<Record, T> bounded(const char* name, T Record::*member, Limits limits,
                                   Row row = {}) {
  return {name, member, limits, row};
}

// One value of an enum. What a row says of any value other than the default, a value may say of
// itself.
struct Value {
  const char* name;  // in case files
  std::uint16_t weight = 0;
  std::optional<Capability> needs = {};
  const char* phrase = "";
  const char* feature = nullptr;
};

// The fields of a record, as the tuple `list`.
template <typename Record>
struct Table;
// The values of an enum from 0 on, as the array `list`.
template <typename Enum>
struct Values;

template <typename T>
concept IsRecord = requires {
  Table<T>::list;
};

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

// Calls f(field) for each field of the record, in the order of the table.
template <typename Record, typename F>
constexpr void for_each(F&& f) {
  std::apply([&f](const auto&... each) { (f(each), ...); }, Table<Record>::list);
}

template <typename Record>
constexpr std::size_t size_of_table = std::tuple_size_v<decltype(Table<Record>::list)>;

// Compares field by field.
template <typename T>
bool same(const T& a, const T& b) {
  if constexpr (IsVector<T>::value) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!same(a[i], b[i])) return false;
    return true;
  } else if constexpr (IsRecord<T>) {
    bool all = true;
    for_each<T>([&](const auto& each) { all = all && same(each.get(a), each.get(b)); });
    return all;
  } else {
    return a == b;
  }
}

template <typename Enum>
requires std::is_enum_v<Enum>
constexpr const Value& value_of(Enum value) {
  const auto index = static_cast<std::size_t>(value);
  constexpr std::size_t count = std::size(Values<Enum>::list);
  return Values<Enum>::list[index < count ? index : 0];
}

template <typename Enum>
requires std::is_enum_v<Enum>
constexpr const char* name_of(Enum value) {
  return static_cast<std::size_t>(value) < std::size(Values<Enum>::list) ? value_of(value).name
                                                                         : "unknown";
}

// The names of an enum's values.
template <typename Enum>
struct Names {
  static constexpr auto list = [] {
    std::array<const char*, std::size(Values<Enum>::list)> out{};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = Values<Enum>::list[i].name;
    return out;
  }();
};

// For Random::weighted().
template <typename Enum>
constexpr auto weights() {
  std::array<std::uint16_t, std::size(Values<Enum>::list)> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = Values<Enum>::list[i].weight;
  return out;
}

template <typename Record, typename T>
Record record_of(T Record::*);

// The record whose table has the fields of a record: those of a job are the program's.
template <typename Record>
struct TableOf {
  using type = Record;
};
template <>
struct TableOf<reference::Job> {
  using type = reference::Program;
};

// The field of a member, such as field_of<&reference::Replicated::views>().
template <auto member>
constexpr auto field_of() {
  using Record = decltype(record_of(member));
  using Found = Field<Record, std::remove_cvref_t<decltype(std::declval<Record&>().*member)>>;
  Found found{};
  for_each<typename TableOf<Record>::type>([&found](const auto& each) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(each)>, Found>)
      if (each.member == member) found = each;
  });
  return found;
}

// The row of a member.
template <auto member>
constexpr Row row_of() {
  constexpr Row row = field_of<member>().row;
  return row;
}

// Whether the field has another value than its default. A list has one if it is not empty.
template <typename Record, typename AnyField>
bool is_set(const AnyField& field, const Record& record) {
  if constexpr (IsVector<std::remove_cvref_t<decltype(field.get(record))>>::value) {
    return !field.get(record).empty();
  } else {
    static const Record simplest{};
    return field.get(record) != field.get(simplest);
  }
}

// Calls visit(field, record) for each field of the record, and of the records in it, that takes
// part in training: passes without gradients have no graph, and only a use has a gradient.
template <typename Record, typename Visit>
void visit_fields(const Record& record, const Visit& visit) {
  bool has_graph = true;
  if constexpr (std::is_same_v<Record, reference::Step>)
    has_graph = record.kind != reference::PassKind::kNoGrad;
  bool is_use = true;
  if constexpr (std::is_same_v<Record, reference::Node>)
    is_use = record.kind == reference::Node::Kind::kUse;
  for_each<Record>([&](const auto& field) {
    const auto& value = field.get(record);
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (IsRecord<T>) {
      visit_fields(value, visit);
    } else {
      if constexpr (IsVector<T>::value) {
        if constexpr (IsRecord<typename T::value_type>)
          if (has_graph)
            for (const auto& element : value) visit_fields(element, visit);
      }
      if (is_use || std::is_enum_v<T>) visit(field, record);
    }
  });
}

}  // namespace lockstep::properties::fields
