#include "properties/case/case.h"

#include <gtest/gtest.h>

#include <string_view>

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

// A struct that gets a field without an entry in its table would be saved without it. Here it no
// longer compiles: whoever adds the field adds it to fields.h, and then to this list.
TEST(Fields, TablesHaveAsManyFieldsAsTheStructs) {
  const auto count = [](const auto& list) {
    return std::tuple_size_v<std::remove_cvref_t<decltype(list)>>;
  };
  const auto parameter = [](reference::Parameter value) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    return (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j,
           (void)k, (void)l, 12u;
  };
  const auto buffer = [](reference::Buffer value) {
    auto& [a, b, c, d, e, f, g, h] = value;
    return (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, 8u;
  };
  const auto node = [](reference::Node value) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    return (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j,
           10u;
  };
  const auto pass = [](reference::RankPass value) {
    auto& [a, b, c, d, e, f] = value;
    return (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, 6u;
  };
  const auto step = [](reference::Step value) {
    auto& [a, b, c, d] = value;
    return (void)a, (void)b, (void)c, (void)d, 4u;
  };
  const auto options = [](reference::Options value) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x] = value;
    return (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j,
           (void)k, (void)l, (void)m, (void)n, (void)o, (void)p, (void)q, (void)r, (void)s, (void)t,
           (void)u, (void)v, (void)w, (void)x, 24u;
  };
  const auto program = [](reference::Program value) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    return (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j,
           (void)k, (void)l, 12u;
  };
  const auto misfit = [](reference::Misfit value) {
    auto& [a, b, c, d] = value;
    return (void)a, (void)b, (void)c, (void)d, 4u;
  };
  const auto fault = [](faults::Fault value) {
    auto& [a, b, c, d, e, f, g] = value;
    return (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, 7u;
  };
  const auto whole = [](Case value) {
    auto& [a, b, c, d] = value;
    return (void)a, (void)b, (void)c, (void)d, 4u;
  };
  EXPECT_EQ(count(fields::Table<reference::Parameter>::list), parameter({}));
  EXPECT_EQ(count(fields::Table<reference::Buffer>::list), buffer({}));
  EXPECT_EQ(count(fields::Table<reference::Node>::list), node({}));
  EXPECT_EQ(count(fields::Table<reference::RankPass>::list), pass({}));
  EXPECT_EQ(count(fields::Table<reference::Step>::list), step({}));
  EXPECT_EQ(count(fields::Table<reference::Options>::list), options({}));
  EXPECT_EQ(count(fields::Table<reference::Program>::list), program({}));
  EXPECT_EQ(count(fields::Table<reference::Misfit>::list), misfit({}));
  EXPECT_EQ(count(fields::Table<faults::Fault>::list), fault({}));
  EXPECT_EQ(count(fields::Table<Case>::list), whole({}));
}

}  // namespace
}  // namespace lockstep::properties
