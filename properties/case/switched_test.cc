// Claim: a switch changes one option that must not change what comes out, and nothing else; where
// another value would change the results, there is no second run.
#include "properties/case/switched.h"

#include <gtest/gtest.h>

#include <set>

#include "properties/case/capabilities.h"
#include "properties/case/case_json.h"
#include "properties/case/describe.h"
#include "properties/case/keeps.h"
#include "properties/generate/generate.h"
#include "properties/shrink/shrink.h"

namespace lockstep::properties {
namespace {

// Three ranks, one parameter of four elements, a step.
Case of_three_ranks() {
  Case value;
  value.program.world = 3;
  value.program.parameters.resize(1);
  value.program.parameters[0].sizes = {4};
  value.program.steps.resize(1);
  normalize(value);
  return value;
}

Case with(Case value, const char* option, std::uint32_t to = 0) {
  value.switched = {*switchable_option(option), to};
  return value;
}

TEST(Switched, ViewsAreSwitchedInEveryProgram) {
  const auto on = switched(with(of_three_ranks(), "views"));
  ASSERT_TRUE(on);
  EXPECT_TRUE(on->program.options.views);
  EXPECT_EQ(on->switched.option, SwitchedOption::kNone);
  const auto off = switched(with(*on, "views"));
  ASSERT_TRUE(off);
  EXPECT_TRUE(equal(*off, of_three_ranks()));
}

TEST(Switched, AnOptionWithoutAMeaningInTheProgramIsNot) {
  for (const char* option :
       {"own_group", "chunk_bytes", "hook_completion", "hook_backward", "group_each", "verify"})
    EXPECT_FALSE(switched(with(of_three_ranks(), option))) << option;
  EXPECT_FALSE(switched(of_three_ranks()));
  EXPECT_FALSE(switchable_option("hook_result"));
  EXPECT_FALSE(switchable_option("none"));
}

TEST(Switched, BucketsAreSwitchedWhereSumsHaveTheSameBitsInAnyOrder) {
  Case value = of_three_ranks();
  for (const char* option : {"first_bucket_bytes", "bucket_bytes", "rebuild", "pinned", "launch"})
    EXPECT_FALSE(switched(with(value, option))) << option << ": means of three are rounded";
  value.program.options.order = reference::Order::kRankOrder;
  EXPECT_TRUE(switched(with(value, "bucket_bytes")));
  EXPECT_FALSE(switched(with(value, "order"))) << "another order than that of the ranks";
  value.program.options.order = reference::Order::kRing;
  value.program.world = 4;
  EXPECT_TRUE(switched(with(value, "rebuild"))) << "quarters of multiples of four";
  EXPECT_TRUE(switched(with(value, "order")));
  value.program.values = reference::Values::kGeneral;
  EXPECT_FALSE(switched(with(value, "rebuild")));
  value.program.world = 2;
  EXPECT_TRUE(switched(with(value, "rebuild"))) << "a sum of two has one order";
}

TEST(Switched, SumsAreExactUpToThePrecisionOfTheirDtype) {
  Case value = of_three_ranks();
  reference::Program& program = value.program;
  program.world = 4;
  EXPECT_TRUE(keeps::has_sums_in_any_order(program));
  program.parameters[0].dtype = reference::DType::kBFloat16;
  EXPECT_FALSE(keeps::has_sums_in_any_order(program)) << "four times 32 times 4 has 10 bits";
  program.parameters[0].dtype = reference::DType::kFloat32;
  program.steps.resize(12, program.steps[0]);
  EXPECT_TRUE(keeps::has_sums_in_any_order(program)) << "every step begins without gradients";
  for (reference::Step& step : program.steps) step.zero_grad = reference::ZeroGrad::kKeep;
  EXPECT_FALSE(keeps::has_sums_in_any_order(program)) << "each mean has two bits more";
}

TEST(Switched, PlainModeIsLeftWhereEveryUseGetsAGradientOnce) {
  Case value = of_three_ranks();
  EXPECT_EQ(switched(with(value, "mode", 0))->program.options.mode, reference::Mode::kDynamic);
  EXPECT_EQ(switched(with(value, "mode", 1))->program.options.mode, reference::Mode::kStatic);
  reference::RankPass& pass = value.program.steps[0].variants[0];
  pass.backwards.resize(2);
  EXPECT_FALSE(switched(with(value, "mode"))) << "dynamic mode ends with the first backward";
  value = of_three_ranks();
  value.program.options.mode = reference::Mode::kDynamic;
  EXPECT_FALSE(switched(with(value, "mode")));
}

// A shrunk case is judged as the one that was found, and a saved one as the one that was shrunk.
TEST(Switched, TheOptionIsSavedAndSurvivesShrinking) {
  Case value = with(of_three_ranks(), "rebuild", 5);
  value.program.world = 2;
  const std::string text = to_json(value);
  EXPECT_NE(text.find(R"("switched": {"option": "rebuild", "to": 5})"), std::string::npos) << text;
  EXPECT_TRUE(equal(*from_json(text, "x"), value));
  EXPECT_FALSE(from_json(R"({"schema": 1, "switched": {"option": "hook_result"}})", "x"));
  const ShrinkResult small = shrink(value, [](const Case&) { return true; });
  EXPECT_EQ(small.value.switched.option, value.switched.option);
  EXPECT_EQ(small.value.switched.to, 0u);
  EXPECT_NE(describe(value).find("second run: with rebuild = true; the same must come out"),
            std::string::npos)
      << describe(value);
}

TEST(Switched, ASubjectMustSupportBothRuns) {
  const Case value = with(of_three_ranks(), "views");
  EXPECT_TRUE(missing(value, Capabilities::all()).empty());
  EXPECT_TRUE(
      missing(value, Capabilities::all().without(Capability::kViews)).has(Capability::kViews));
}

// The options have random numbers of their own.
TEST(GeneratedSwitch, LeavesTheCaseAsItIsAndUsesEveryOption) {
  GenerateOptions options;
  options.faults = GenerateOptions::Faults::kNone;
  options.capabilities = Capabilities::all();
  GenerateOptions switching = options;
  switching.switched = switchable_options();
  std::set<SwitchedOption> seen;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    Case value = generate(5, i, switching);
    if (value.switched.option == SwitchedOption::kNone) continue;
    EXPECT_TRUE(switched(value)) << i;
    seen.insert(value.switched.option);
    value.switched = {};
    EXPECT_TRUE(equal(value, generate(5, i, options))) << i;
  }
  EXPECT_EQ(seen.size(), switchable_options().size());
}

// Options that only PyTorch's reducer has leave the cases of all other subjects as they were.
TEST(GeneratedSwitch, OptionsThatTheSubjectLacksLeaveTheDrawAsItWas) {
  GenerateOptions every;
  every.switched = switchable_options();
  GenerateOptions own = every;
  std::erase_if(own.switched, [](SwitchedOption option) {
    const std::optional<Capability> needs = needed_for(option);
    return needs && !Capabilities::lockstep().has(*needs);
  });
  EXPECT_EQ(every.switched.size() - own.switched.size(), 5u);
  for (std::uint64_t i = 0; i < 300; ++i)
    EXPECT_TRUE(equal(generate(7, i, every), generate(7, i, own))) << i;
}

TEST(Switched, UnusedParametersAreSkippedWhereRanksAreAlikeAndNothingIsLocal) {
  Case value = of_three_ranks();
  const char* const option = "skip_all_reduce_unused_params";
  EXPECT_FALSE(switched(with(value, option))) << "plain mode";
  value.program.options.mode = reference::Mode::kDynamic;
  EXPECT_TRUE(switched(with(value, option)));
  value.program.steps.resize(2, value.program.steps[0]);
  value.program.steps[1].variants.resize(2, value.program.steps[1].variants[0]);
  EXPECT_FALSE(switched(with(value, option))) << "ranks differ";
  value.program.steps[1].variants.resize(1);
  value.program.steps[0].kind = reference::PassKind::kNoSync;
  EXPECT_FALSE(switched(with(value, option))) << "a parameter may have a local use";
}

TEST(GeneratedSwitch, StaysWithinTheCapabilities) {
  GenerateOptions options;
  options.switched = switchable_options();
  options.capabilities =
      Capabilities::all().without(Capability::kViews).without(Capability::kRebuild);
  for (std::uint64_t i = 0; i < 300; ++i)
    EXPECT_TRUE(missing(generate(6, i, options), options.capabilities).empty()) << i;
}

}  // namespace
}  // namespace lockstep::properties
