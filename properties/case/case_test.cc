#include "properties/case/case.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>

#include "properties/case/exclusions.h"
#include "properties/case/fields.h"
#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {
namespace {

// Any bits at all in every field, and lists of any small length: what normalize() has to cope with.
class Scrambler {
 public:
  explicit Scrambler(std::uint64_t seed) : random_(seed, 0) {}

  template <typename T>
  void scramble(T& value, int depth = 0) {
    if constexpr (fields::IsVector<T>::value) {
      value.resize(depth > 6 ? 0 : random_.below(depth == 0 ? 3 : 4));
      for (auto& element : value) scramble(element, depth + 1);
    } else if constexpr (fields::IsRecord<T>) {
      fields::for_each<T>([&](const auto& field) { scramble(field.get(value), depth + 1); });
    } else if constexpr (std::is_same_v<T, bool>) {
      value = random_.percent(50);
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(random_.below(12));
    } else {
      value = static_cast<T>(random_.percent(50) ? random_.bits() : random_.below(6));
    }
  }

 private:
  Random random_;
};

TEST(Normalize, IsIdempotentOnAnyBits) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Case value;
    Scrambler(seed).scramble(value);
    normalize(value);
    Case again = value;
    normalize(again);
    ASSERT_TRUE(equal(value, again)) << "seed " << seed;
    ASSERT_GE(value.program.world, 1u);
    for (const faults::Fault& fault : value.faults.faults) {
      ASSERT_LT(fault.rank, value.program.world);
      ASSERT_LE(fault.duration_us, faults::kMaxDurationUs);
      ASSERT_TRUE(fault.step == 0 || fault.step < value.program.steps.size());
    }
    for (std::size_t i = 1; i < value.schedule.deviations.size(); ++i)
      ASSERT_LT(value.schedule.deviations[i - 1].choice, value.schedule.deviations[i].choice);
    ASSERT_LE(value.timeout_ms, kMaxTimeoutMs);
  }
}

TEST(Normalize, F3ChecksAreOfTheOrderOfRanksAndChangesOfAnotherRank) {
  Case value;
  value.program.options.verify = true;
  faults::Fault fault;
  fault.peer = 7;
  fault.at = 5;
  value.faults.faults = {fault, fault};
  value.faults.faults[1].kind = faults::Kind::kPayloadSwap;
  value.faults.faults[1].rank = 1;
  normalize(value);
  EXPECT_FALSE(value.program.options.verify);
  EXPECT_EQ(value.faults.faults[0].peer, 0u);  // of a message that is late
  EXPECT_EQ(value.faults.faults[0].at, 0u);
  EXPECT_EQ(value.faults.faults[1].peer, 0u);
  EXPECT_EQ(value.faults.faults[1].at, 5u);
  value.program.options.order = reference::Order::kRankOrder;
  value.program.options.verify = true;
  normalize(value);
  EXPECT_TRUE(value.program.options.verify);
}

TEST(Case, TwoReducersWaitForEachOtherForAShortTime) {
  Case value;
  EXPECT_EQ(gloo_timeout_ms(value), kDefaultTimeoutMs);
  value.program.world = 2;
  value.program.parameters.resize(2);
  value.program.parameters[1].reducer = 1;
  ASSERT_EQ(reference::reducer_count(value.program), 2u);
  EXPECT_EQ(gloo_timeout_ms(value), kShortTimeoutMs);
  value.timeout_ms = 7;
  EXPECT_EQ(gloo_timeout_ms(value), 7u);
}

TEST(Case, RanksWaitForAnAbsentOneForAShortTime) {
  Case value;
  value.program.world = 2;
  value.program.steps.resize(1);
  value.program.steps[0].variants.resize(2);
  normalize(value);
  EXPECT_TRUE(never_times_out(value));
  value.program.steps[0].variants[1].absent = true;
  normalize(value);
  EXPECT_FALSE(never_times_out(value));
  EXPECT_EQ(gloo_timeout_ms(value), kShortTimeoutMs);
}

TEST(Normalize, DropsDeviationsOfOtherPolicies) {
  Case value;
  value.schedule = {Schedule::Policy::kRandomWalk, 7, {{1, 2}}};
  normalize(value);
  EXPECT_TRUE(value.schedule.deviations.empty());
  value.schedule = {Schedule::Policy::kDefault, 7, {{5, 1}, {1, 2}, {5, 3}}};
  normalize(value);
  ASSERT_EQ(value.schedule.deviations.size(), 2u);
  EXPECT_EQ(value.schedule.deviations[0].choice, 1u);
  EXPECT_EQ(value.schedule.deviations[1].fiber, 1u);
}

// Changes the number-th simple field of a record; false when there are fewer.
class Toucher {
 public:
  explicit Toucher(std::size_t number) : left_(number + 1) {}
  template <typename T>
  void touch(T& value) {
    if constexpr (fields::IsVector<T>::value) {
      for (auto& element : value) touch(element);
      if (take()) value.emplace_back();
    } else if constexpr (fields::IsRecord<T>) {
      fields::for_each<T>([&](const auto& field) { touch(field.get(value)); });
    } else if (take()) {
      if constexpr (std::is_same_v<T, bool>)
        value = !value;
      else
        value = static_cast<T>(static_cast<std::int64_t>(value) + 1);
    }
  }
  bool done() const { return left_ == 0; }

 private:
  bool take() { return left_ > 0 && --left_ == 0; }
  std::size_t left_;
};

TEST(Case, EqualityAndHashSeeEveryField) {
  const Case original = generate(1, 1);
  EXPECT_TRUE(equal(original, Case(original)));
  std::size_t number = 0;
  for (;; ++number) {
    Case changed = original;
    Toucher toucher(number);
    toucher.touch(changed);
    if (!toucher.done()) break;
    ASSERT_FALSE(equal(original, changed)) << "field " << number;
    ASSERT_NE(hash_of(original), hash_of(changed)) << "field " << number;
  }
  EXPECT_GT(number, 100u);
}

TEST(Fields, NamesOfFaultsAreThoseOfThePlan) {
  for (int i = 0; i < faults::kKinds; ++i) {
    const auto kind = static_cast<faults::Kind>(i);
    EXPECT_EQ(std::string_view(fields::name_of(kind)), faults::name_of(kind));
  }
}

// Counts the members of an aggregate: it can be made of so many values of any type, and not of
// more.
struct Any {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
template <typename Record, typename... Some>
constexpr std::size_t members_of() {
  if constexpr (requires { Record{Some()..., Any()}; })
    return members_of<Record, Some..., Any>();
  else
    return sizeof...(Some);
}

// A program is a job, which stands first in it, and more.
template <typename Record>
constexpr std::size_t all_members_of() {
  if constexpr (std::is_same_v<Record, reference::Program>)
    return members_of<Record>() - 1 + members_of<reference::Job>();
  else
    return members_of<Record>();
}

template <typename... Records>
void check_tables(const std::tuple<Records...>*) {
  (static_cast<void>([] {
     static_assert(fields::size_of_table<Records> == all_members_of<Records>(),
                   "a member of a struct has no row in fields.h");
   }),
   ...);
  EXPECT_EQ(sizeof...(Records), 19u);
}

// A struct that gets a member without a row in its table would be saved without it. Here it does
// not compile.
TEST(Fields, TablesHaveAsManyFieldsAsTheStructs) {
  check_tables(static_cast<const fields::Records*>(nullptr));
}

// Every clause that a row names is one of the contract, and every option has one.
TEST(Fields, RowsNameClausesOfTheContract) {
  std::ifstream contract(LOCKSTEP_CONTRACT);
  const std::string text{std::istreambuf_iterator<char>(contract), {}};
  ASSERT_FALSE(text.empty()) << LOCKSTEP_CONTRACT;
  const auto has = [&](const std::string& clause) {
    return text.find("- **" + clause + " ") != std::string::npos;
  };
  EXPECT_FALSE(has("Z9"));
  fields::for_each<reference::Replicated>(
      [&](const auto& field) { EXPECT_TRUE(has(field.row.clause)) << field.name; });
  const auto check = [&](const auto& field) {
    const std::string clause = field.row.clause;
    EXPECT_TRUE(clause.empty() || has(clause)) << field.name << " names " << clause;
  };
  std::apply(
      [&](const auto&... record) {
        (fields::for_each<std::remove_cvref_t<decltype(record)>>(check), ...);
      },
      fields::Records());
  const auto check_row = [&](const auto& row, const auto&) {
    EXPECT_TRUE(row.clause[0] == '\0' || has(row.clause)) << row.clause;
  };
  reference::for_each_excluded(reference::kExclusions, check_row);
  reference::for_each_excluded(kExclusionsAround, check_row);
}

}  // namespace
}  // namespace lockstep::properties
