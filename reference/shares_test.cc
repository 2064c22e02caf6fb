// The model against CONTRACT.md: several reducers of one program, groups of ranks that train apart
// (F7), a reducer after another one, and one join after another (S2).

#include <gtest/gtest.h>

#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;

// p goes to one reducer, q to another one.
Case two_reducers(std::uint32_t world, Mode mode) {
  Case made(world, mode, 2);
  made.program.parameters[1].reducer = 1;
  made.program.options.order = Order::kRankOrder;
  return made;
}

float mean_of(const Case& t, std::uint32_t step, std::uint32_t parameter, const Indices& ranks) {
  const float factor = 1.0f / static_cast<float>(ranks.size());
  float sum = t.c(step, ranks[0], parameter) * factor;
  for (std::size_t i = 1; i < ranks.size(); ++i) sum += t.c(step, ranks[i], parameter) * factor;
  return sum;
}

TEST(ModelReducers, F7EachHasBucketsAndCollectivesOfItsOwn) {
  Case t = two_reducers(3, Mode::kDynamic);
  t.step({uses({0, 1})}).run();
  ASSERT_EQ(t.expectation.shares.size(), 2u);
  for (const std::uint32_t reducer : {0u, 1u}) {
    const Expectation& share = share_of(t.program, t.expectation, 2, reducer);
    ASSERT_EQ(share.buckets.size(), 1u);
    EXPECT_EQ(share.buckets[0].parameters, Indices{reducer});
    ASSERT_EQ(share.steps[0].collectives.size(), 2u);
    EXPECT_EQ(share.steps[0].collectives[1].count, 1u);  // usage of one parameter
  }
  for (const std::uint32_t rank : {0u, 1u, 2u})
    for (const std::uint32_t p : {0u, 1u})
      EXPECT_EQ(t.value(0, rank, p), mean_of(t, 0, p, {0, 1, 2}));
}

TEST(ModelReducers, F7OneOfThemIsNotUsedAndTheOtherIs) {
  Case t = two_reducers(2, Mode::kDynamic);
  t.step({uses({0, 1})}, PassKind::kNoSync).step({uses({0})}, PassKind::kSynced).run();
  EXPECT_TRUE(t.gradient(1, 0, 1).reduced);  // P9: of the local pass
  t = two_reducers(2, Mode::kDynamic);
  t.step({uses({0})}).run();
  EXPECT_TRUE(t.gradient(0, 0, 0).reduced);
  EXPECT_FALSE(t.gradient(0, 0, 1).defined);
}

TEST(ModelReducers, P5AnErrorOfOneEndsTheStepForBoth) {
  Case t = two_reducers(2, Mode::kPlain);
  t.step({uses({0}), uses({0, 1})}).step({uses({0, 1})}).run();
  EXPECT_TRUE(t.expectation.steps[0].any_error);
  EXPECT_EQ(t.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(t.at(0, 0).parameters, Indices{1});
  EXPECT_EQ(t.at(0, 1).outcome, Outcome::kPeerError);
  // Both recover: what the first one had reduced is gone, too.
  EXPECT_EQ(t.value(1, 0, 0), mean_of(t, 1, 0, {0, 1}));
}

TEST(ModelReducers, S3BuffersAreTheFirstOnesAndValuesThoseOfTheirOwn) {
  Case t = two_reducers(2, Mode::kPlain);
  t.program.options.with_values = true;
  t.program.buffers.resize(1);
  t.step({uses({0, 1})}).run();
  EXPECT_EQ(share_of(t.program, t.expectation, 0, 0).steps[0].collectives.size(), 2u);
  EXPECT_EQ(share_of(t.program, t.expectation, 0, 1).steps[0].collectives.size(), 1u);
  ASSERT_EQ(t.at(0, 0).state.size(), 3u);
  EXPECT_EQ(t.at(0, 0).state[0], t.at(0, 1).state[0]);
  EXPECT_EQ(t.at(0, 0).state[1], t.at(0, 1).state[1]);  // broadcast, by one of them
}

TEST(ModelGroups, G1RanksOfTheOtherGroupDoNotCount) {
  Case t(5, Mode::kPlain, 1);
  t.program.options.two_groups = true;
  t.program.options.order = Order::kRankOrder;
  t.step({uses({0})}).run();
  for (const std::uint32_t rank : {0u, 2u, 4u})
    EXPECT_EQ(t.value(0, rank, 0), mean_of(t, 0, 0, {0, 2, 4}));
  for (const std::uint32_t rank : {1u, 3u})
    EXPECT_EQ(t.value(0, rank, 0), mean_of(t, 0, 0, {1, 3}));
}

TEST(ModelGroups, F2AnErrorInOneLeavesTheOtherAloneUntilAllRecover) {
  Case t(4, Mode::kPlain, 1);
  t.program.options.two_groups = true;
  t.program.options.order = Order::kRankOrder;
  t.step({nothing(), uses({0}), uses({0}), uses({0})}).step({uses({0})}).run();
  EXPECT_EQ(t.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(t.at(0, 2).outcome, Outcome::kPeerError);
  for (const std::uint32_t rank : {1u, 3u}) {
    EXPECT_EQ(t.at(0, rank).outcome, Outcome::kSuccess);
    EXPECT_EQ(t.value(0, rank, 0), mean_of(t, 0, 0, {1, 3}));
    EXPECT_EQ(t.value(1, rank, 0), mean_of(t, 1, 0, {1, 3}));  // nothing is left of step 0
  }
}

TEST(ModelGroups, F4SurvivorsStayInTheirGroups) {
  Case t(4, Mode::kPlain, 1);
  t.program.options.two_groups = true;
  t.program.options.order = Order::kRankOrder;
  t.step({uses({0})}).step({uses({0})}).run({{1, {0, 1, 3}}});
  EXPECT_EQ(t.value(1, 0, 0), mean_of(t, 1, 0, {0}));
  EXPECT_EQ(t.value(1, 3, 0), mean_of(t, 1, 0, {1, 3}));
  EXPECT_FALSE(t.at(1, 2).present);
}

TEST(ModelRenewal, GradientsAndTheirUseOutliveTheReducer) {
  Case t(2, Mode::kDynamic, 1);
  t.program.options.order = Order::kRankOrder;
  t.program.recreate_before_step = 1;
  t.step({uses({0})}, PassKind::kNoSync).step({nothing()}).run();
  EXPECT_EQ(t.value(1, 0, 0), mean_of(t, 0, 0, {0, 1}));
}

TEST(ModelRenewal, P11TheNewOneCountsAnew) {
  Case t(2, Mode::kStatic, 2);
  t.step({uses({0})}).step({uses({0, 1})}).run();
  EXPECT_EQ(t.at(1, 0).error, Error::kReadyTwice);  // a hook that the first pass had not
  t = Case(2, Mode::kStatic, 2);
  t.program.recreate_before_step = 1;
  t.step({uses({0})}).step({uses({0, 1})}).run();
  EXPECT_FALSE(t.expectation.steps[1].any_error);
}

TEST(ModelSecondJoin, S2InputsCountFromItsFirstStep) {
  Case t(2, Mode::kPlain, 1);
  t.program.options.order = Order::kRankOrder;
  t.program.options.join = Join::kByActive;
  t.program.steps_per_rank = {1, 9};
  t.program.rejoin_step = 2;
  for (int s = 0; s < 4; ++s) t.step({uses({0})}, PassKind::kSynced, ZeroGrad::kUndefine);
  t.run();
  for (const std::uint32_t s : {0u, 2u}) EXPECT_EQ(t.value(s, 1, 0), mean_of(t, s, 0, {0, 1}));
  for (const std::uint32_t s : {1u, 3u}) EXPECT_EQ(t.value(s, 1, 0), t.c(s, 1, 0));
}

TEST(ProgramF7, JoinsHaveOneReducerAndTheFirstReducerHasAParameter) {
  Case t = two_reducers(2, Mode::kPlain);
  t.program.options.join = Join::kByAll;
  normalize(t.program);
  EXPECT_EQ(reducer_count(t.program), 1u);
  t = two_reducers(1, Mode::kPlain);
  t.program.parameters[0].reducer = 3;
  t.program.options.two_groups = true;
  normalize(t.program);
  EXPECT_EQ(reducer_count(t.program), 1u);
  EXPECT_FALSE(t.program.options.two_groups);
}

}  // namespace
}  // namespace lockstep::reference
