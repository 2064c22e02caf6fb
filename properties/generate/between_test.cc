#include "properties/generate/between.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "reference/model.h"

namespace lockstep::properties {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr std::uint64_t kSampled = 3000;

std::set<std::string> drawn(const GenerateOptions& options) {
  std::set<std::string> found;
  for (std::uint64_t index = 0; index < kSampled; ++index)
    for (const std::string& name : between_features(generate(kSeed, index, options)))
      found.insert(name);
  return found;
}

TEST(Between, EachOfItsFeaturesIsDrawn) {
  GenerateOptions options;
  options.capabilities = Capabilities::lockstep();
  EXPECT_EQ(drawn(options).size(), 8U);
}

TEST(Between, NothingIsDrawnForASubjectThatLacksIt) {
  GenerateOptions options;
  options.capabilities =
      Capabilities::lockstep().without(Capability::kBetween).without(Capability::kLaterBackward);
  EXPECT_EQ(drawn(options), std::set<std::string>());
  options.capabilities = options.capabilities.with(Capability::kBetween);
  for (const std::string& name : drawn(options))
    EXPECT_TRUE(name.find("of the step before") == std::string::npos &&
                name.find("in the step after") == std::string::npos)
        << name;
}

TEST(Between, CasesForASubjectWithoutErrorsSucceed) {
  GenerateOptions options;
  options.capabilities = Capabilities::lockstep().without_errors();
  std::size_t seen = 0;
  for (std::uint64_t index = 0; index < kSampled; ++index) {
    const Case value = generate(kSeed, index, options);
    if (between_features(value).empty()) continue;
    ++seen;
    const auto expected = reference::run(value.program, reference::Contract::lockstep());
    for (const reference::ExpectedStep& step : expected.steps) EXPECT_FALSE(step.any_error);
  }
  EXPECT_GT(seen, kSampled / 50);
}

}  // namespace
}  // namespace lockstep::properties
