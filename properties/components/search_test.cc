// Claim: a search finds the first situation that fails, makes it as small as it can become, and
// takes a crash and a hang for failures, too.
#include "properties/components/search.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::components {
namespace {

using properties::Failing;
using properties::Verdict;
using Numbers = std::vector<std::uint32_t>;

Verdict fails(const char* what) { return {Failing::kWrongError, "component", what}; }

// Fails if one of up to twenty numbers is 30 or more.
Verdict judge_large(Choices& choices) {
  for (std::uint32_t left = choices.below(20); left > 0; --left)
    if (choices.below(1000) >= 30) return fails("a number is too large");
  return {};
}

Verdict judge_crash(Choices& choices) {
  if (choices.below(8) >= 5) std::abort();
  return {};
}

Verdict judge_fine(Choices& choices) {
  choices.word();
  return {};
}

Verdict judge_late(Choices& choices) {
  return choices.word() % 512 == 7 ? fails("it is that one") : Verdict();
}

SearchResult found_in(const Component& component, std::uint64_t most = 100'000) {
  SearchOptions options;
  options.most = most;
  const Result<SearchResult> result = search(component, options);
  EXPECT_TRUE(result.has_value());
  return result.value_or(SearchResult());
}

TEST(Choices, AListIsTakenAndThenZeros) {
  Choices choices(Numbers{3, 1, 9});
  EXPECT_EQ(choices.below(10), 3U);
  EXPECT_TRUE(choices.percent(50));
  EXPECT_EQ(choices.below(5), 4U);  // 9 is too large.
  EXPECT_EQ(choices.between(2, 4), 2U);
  EXPECT_FALSE(choices.percent(99));
  EXPECT_EQ(choices.made(), (Numbers{3, 1, 4, 0, 0}));
}

TEST(Choices, WhatWasDrawnMakesTheSameSituation) {
  for (std::uint64_t index = 0; index < 100; ++index) {
    Choices drawn(7, index, "a component");
    const auto draw = [](Choices& from) {
      return Numbers{from.below(17), from.percent(50) ? 1U : 0U, from.word(), from.between(3, 9)};
    };
    const Numbers first = draw(drawn);
    Choices again(drawn.made());
    EXPECT_EQ(draw(again), first);
  }
}

TEST(Search, MakesTheSituationAsSmallAsItCanBecome) {
  const SearchResult result = found_in({"large", "", judge_large});
  ASSERT_TRUE(result.failed.has_value());
  EXPECT_EQ(result.failed->choices, (Numbers{1, 30}));
  EXPECT_EQ(result.failed->verdict.message, "a number is too large");
  EXPECT_GE(result.failed->first_count, 2U);
  EXPECT_EQ(result.situations, result.failed->index + 1);
}

TEST(Search, ACrashIsAFailureThatIsMadeSmaller) {
  const SearchResult result = found_in({"crash", "", judge_crash});
  ASSERT_TRUE(result.failed.has_value());
  EXPECT_EQ(result.failed->verdict.failing, Failing::kCrash);
  EXPECT_EQ(result.failed->choices, Numbers{5});
}

TEST(Search, TheSituationOfAnIndexIsTheSameAgain) {
  const Component late{"late", "", judge_late};
  const SearchResult result = found_in(late);
  ASSERT_TRUE(result.failed.has_value());
  EXPECT_GT(result.failed->index, 0U);
  Choices choices(1, result.failed->index, late.name);
  EXPECT_FALSE(judge_late(choices).ok());
  EXPECT_EQ(found_in(late).failed->index, result.failed->index);
}

TEST(Search, WithoutAFailureItRunsAsManyAsItMay) {
  const SearchResult result = found_in({"fine", "", judge_fine}, 1000);
  EXPECT_FALSE(result.failed.has_value());
  EXPECT_EQ(result.situations, 1000U);
}

TEST(Search, ItEndsWhenItsTimeIsOver) {
  SearchOptions options;
  options.seconds = 0.2;
  const Result<SearchResult> result = search({"fine", "", judge_fine}, options);
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->failed.has_value());
  EXPECT_GT(result->situations, 1000U);
}

TEST(Search, ItEndsWhenItIsInterrupted) {
  SearchOptions options;
  options.is_interrupted = [] { return true; };
  const Result<SearchResult> result = search({"fine", "", judge_fine}, options);
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->failed.has_value());
}

}  // namespace
}  // namespace lockstep::components
