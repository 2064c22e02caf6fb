#include "properties/case/capabilities.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "properties/generate/generate.h"

namespace lockstep::properties {
namespace {

TEST(Capabilities, HaveNamesOfTheirOwn) {
  std::set<std::string> seen;
  for (int i = 0; i < kCapabilities; ++i) {
    const auto capability = static_cast<Capability>(i);
    EXPECT_TRUE(seen.insert(name_of(capability)).second) << name_of(capability);
    EXPECT_FALSE(described(Capabilities::of({capability})).at(0).ends_with("()"));
  }
  EXPECT_EQ(names(Capabilities::all()).size(), static_cast<std::size_t>(kCapabilities));
  EXPECT_TRUE(names({}).empty());
}

TEST(Capabilities, AreASet) {
  const Capabilities none;
  const Capabilities one = none.with(Capability::kBcube);
  EXPECT_TRUE(one.has(Capability::kBcube));
  EXPECT_FALSE(one.has(Capability::kDynamic));
  EXPECT_EQ(one.without(Capability::kBcube), none);
  EXPECT_EQ(Capabilities::from_bits(~std::uint64_t{0}), Capabilities::all());
  EXPECT_EQ(Capabilities::from_bits(one.bits()), one);
}

TEST(Capabilities, ThePlainestCaseNeedsNone) {
  Case value;
  value.program.steps.resize(1);
  EXPECT_TRUE(needed(value).empty());
  EXPECT_EQ(missing_message(value, {}, "mine"), "");
}

TEST(Capabilities, WhatIsMissingIsNamed) {
  Case value;
  value.program.steps.resize(1);
  value.program.options.mode = reference::Mode::kDynamic;
  value.program.parameters.resize(2);
  value.program.parameters[1].dtype = reference::DType::kFloat16;
  value.faults.faults = {{faults::Kind::kRankExit, 0, 0, 0, 0}};
  const Capabilities able =
      Capabilities::all().without(Capability::kDynamic).without(Capability::kRecovery);
  EXPECT_EQ(missing_message(value, able, "mine"),
            "the case needs dynamic (unused detection), recovery (reset after an error), which the "
            "subject 'mine' does not support");
}

// Claim: the generator stays within what a subject can do, and without a capability missing it uses
// it.
TEST(Capabilities, TheGeneratorStaysWithinThem) {
  GenerateOptions options;
  options.capabilities = Capabilities::all();
  std::array<int, kCapabilities> with{};
  for (std::uint64_t index = 0; index < 300; ++index) {
    const Capabilities found = needed(generate(11, index, options));
    for (int i = 0; i < kCapabilities; ++i)
      with[static_cast<std::size_t>(i)] += found.has(static_cast<Capability>(i)) ? 1 : 0;
  }
  for (int i = 0; i < kCapabilities; ++i) {
    const auto capability = static_cast<Capability>(i);
    const int least = capability == Capability::kManyParameters ? 0 : 10;  // rare: see below
    EXPECT_GE(with[static_cast<std::size_t>(i)], least) << name_of(capability);
    options.capabilities = Capabilities::all().without(capability);
    for (std::uint64_t index = 0; index < 300; ++index)
      ASSERT_FALSE(needed(generate(11, index, options)).has(capability))
          << name_of(capability) << " in case " << index;
  }
}

TEST(Capabilities, ManyParametersAreDrawnForThoseThatCanHaveThem) {
  int with = 0;
  GenerateOptions lacking;
  lacking.capabilities = Capabilities::lockstep().without(Capability::kManyParameters);
  for (std::uint64_t index = 0; index < 3000; ++index) {
    const Case value = generate(13, index);
    const bool has_many = value.program.parameters.size() > 64;
    EXPECT_EQ(needed(value).has(Capability::kManyParameters), has_many) << index;
    with += has_many ? 1 : 0;
    EXPECT_LE(generate(13, index, lacking).program.parameters.size(), 64u) << index;
  }
  EXPECT_GE(with, 5);
}

TEST(Capabilities, WithNoneTheGeneratorMakesPlainCases) {
  GenerateOptions options;
  options.capabilities = {};
  for (std::uint64_t index = 0; index < 1000; ++index)
    ASSERT_TRUE(needed(generate(12, index, options)).empty()) << index;
}

}  // namespace
}  // namespace lockstep::properties
