// The model against CONTRACT.md, gradients (clauses G and E), on programs small enough to compute
// by hand.
#include "reference/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/arithmetic.h"
#include "reference/test_arithmetic.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;

TEST(ModelG1, AllRanksEndWithTheSumOfTheScaledGradients) {
  const Case t = Case(2, Mode::kPlain, 2).step({uses({0, 1})}).run();
  for (std::uint32_t p = 0; p < 2; ++p) {
    const float expected = t.c(0, 0, p) * 0.5F + t.c(0, 1, p) * 0.5F;
    EXPECT_EQ(t.value(0, 0, p), expected);
    EXPECT_EQ(t.value(0, 1, p), expected);
    EXPECT_EQ(t.at(0, 1).outcome, Outcome::kSuccess);
    EXPECT_FALSE(t.gradient(0, 0, p).untouched);
  }
  EXPECT_FALSE(t.expectation.steps[0].any_error);
}

TEST(ModelG1, AnUndefinedGradientCountsAsZero) {
  const RankPass stopped = graph({use(0, 100), node(Kind::kStop, {{}})});
  const Case t = Case(2, Mode::kPlain, 1).step({uses({0}), stopped}).run();
  EXPECT_EQ(t.value(0, 0, 0), t.c(0, 0, 0) * 0.5F);
  EXPECT_EQ(t.value(0, 1, 0), t.c(0, 0, 0) * 0.5F);
}

TEST(ModelG1, AStaleGradientIsPartOfTheSumWithoutAnIncomingOne) {
  const RankPass stopped = graph({use(0, 100), node(Kind::kStop, {{}})});
  const Case t = Case(2, Mode::kPlain, 1).step({uses({0})}).step({uses({0}), stopped}).run();
  const float old = t.value(0, 0, 0);
  EXPECT_EQ(t.value(1, 1, 0), (old + t.c(1, 0, 0)) * 0.5F + old * 0.5F);
}

TEST(ModelG2, GradientsAreMultipliedByTheRoundedReciprocalBeforeTheSum) {
  Case t(3, Mode::kPlain, 1);
  t.program.parameters[0].sizes = {300};
  t.step({uses({0})}).run();
  const float k = 1.0F / 3.0F;
  int unlike_division = 0;
  for (std::uint64_t e = 0; e < 100; ++e) {  // the first chunk of the ring: 2, then 1, then 0
    const float x[] = {t.c(0, 0, 0, 100, e), t.c(0, 1, 0, 100, e), t.c(0, 2, 0, 100, e)};
    const float expected = (x[2] * k + x[1] * k) + x[0] * k;
    ASSERT_EQ(t.value(0, 2, 0, e), expected);
    unlike_division += expected != (x[2] / 3.0F + x[1] / 3.0F) + x[0] / 3.0F;
  }
  EXPECT_GT(unlike_division, 10);
}

TEST(ModelG2, ScalingFirstKeepsHalvesFromOverflowing) {
  Case t(8, Mode::kPlain, 1);
  t.program.values = Values::kExact;
  t.program.parameters[0].dtype = DType::kFloat16;
  // Nine doublings: 512 * 64 is a half, but the sum of eight of them is not.
  std::vector<Node> nodes = {use(0, 100)};
  for (int i = 0; i < 9; ++i) nodes.push_back(node(Kind::kScale, {{}}, 2));
  t.program.parameters[0].sizes = {200};
  t.step({graph(nodes)}).run();
  int overflow_unscaled = 0;
  for (std::uint64_t e = 0; e < 200; ++e) {
    double sum = 0;
    for (std::uint32_t rank = 0; rank < 8; ++rank) {
      sum += static_cast<double>(t.c(0, rank, 0, 100, e)) * 512 / 8;
    }
    ASSERT_EQ(static_cast<double>(t.value(0, 0, 0, e)), sum);
    overflow_unscaled += std::fabs(sum * 8) > 65504;
  }
  EXPECT_GT(overflow_unscaled, 10);
}

// Two members: element e of the second one lies at 16 + e of 26, so that chunks of 10 (3 ranks, 6
// segments of 5) begin at elements 4 of it.
TEST(ModelG3, TheRingsOrderFollowsThePositionInTheBucket) {
  Case t(3, Mode::kPlain, 2);
  t.program.parameters[0].sizes = {5};
  t.program.parameters[1].sizes = {10};
  t.step({uses({0, 1})}).run();
  const float k = 1.0F / 3.0F;
  const auto x = [&](std::uint32_t rank, std::uint64_t e) { return t.c(0, rank, 1, 101, e) * k; };
  for (std::uint64_t e = 0; e < 4; ++e) {
    EXPECT_EQ(t.value(0, 0, 1, e), (x(0, e) + x(2, e)) + x(1, e));
  }
  for (std::uint64_t e = 4; e < 10; ++e) {
    EXPECT_EQ(t.value(0, 0, 1, e), (x(1, e) + x(0, e)) + x(2, e));
  }
}

// 2 x 6 column-major: row-major element i*6+j lies at j*2+i; chunks of 4 among 3 ranks.
TEST(ModelG3, AColumnMajorParameterLiesInItsBucketInItsOwnMemoryOrder) {
  Case t(3, Mode::kPlain, 1);
  t.program.parameters[0].sizes = {2, 6};
  t.program.parameters[0].column_major = true;
  t.step({uses({0})}).run();
  const float k = 1.0F / 3.0F;
  for (std::uint64_t i = 0; i < 2; ++i) {
    for (std::uint64_t j = 0; j < 6; ++j) {
      const std::uint64_t e = i * 6 + j;
      const auto chunk = static_cast<std::uint32_t>((j * 2 + i) / 4);
      const auto x = [&](std::uint32_t rank) { return t.c(0, rank % 3, 0, 100, e) * k; };
      EXPECT_EQ(t.value(0, 1, 0, e), (x(chunk + 2) + x(chunk + 1)) + x(chunk));
    }
  }
}

TEST(ModelG3, TheBcubesOrderFollowsThePositionInTheBucket) {
  Case t(4, Mode::kPlain, 1);
  t.program.options.order = Order::kBcube;
  t.program.parameters[0].sizes = {8};
  t.step({uses({0})}).run();
  for (std::uint64_t e = 0; e < 8; ++e) {
    const auto x = [&](std::uint32_t rank) { return t.c(0, rank, 0, 100, e) * 0.25F; };
    EXPECT_EQ(t.value(0, 3, 0, e), (x(0) + x(1)) + (x(2) + x(3)));  // only pairs: commutative
  }
}

TEST(ModelG5, WithoutAUserAParameterKeepsItsBitsOnEveryRank) {
  // Step 0 leaves parameter 1 different on both ranks; zero_grad between forgets usage, but not on
  // rank 1, which skips a step without gradients; then nobody uses it.
  const Case t = Case(2, Mode::kDynamic, 2)
                     .step({uses({0, 1})})
                     .step({uses({0})})
                     .step({uses({1})}, PassKind::kNoGrad, ZeroGrad::kUndefine)
                     .step({uses({0})})
                     .run();
  EXPECT_EQ(t.bits(1, 0, 1), t.bits(0, 0, 1));
  EXPECT_TRUE(t.gradient(1, 0, 1).untouched);
  EXPECT_FALSE(t.gradient(1, 0, 0).untouched);
  EXPECT_FALSE(t.gradient(3, 0, 1).defined);  // undefined stays undefined
  EXPECT_FALSE(t.gradient(3, 0, 1).untouched);
}

TEST(ModelG5, UntouchedGradientsMayDifferBetweenRanks) {
  RankPass skipping = uses({1});
  skipping.skip = true;
  const Case t = Case(2, Mode::kDynamic, 2)
                     .step({uses({0, 1})})
                     .step({uses({0}), skipping}, PassKind::kNoGrad, ZeroGrad::kFill)
                     .step({uses({0})})
                     .run();
  EXPECT_EQ(t.value(2, 0, 1), 0.0F);
  EXPECT_EQ(t.value(2, 1, 1), t.value(0, 1, 1));
  EXPECT_TRUE(t.gradient(2, 0, 1).untouched);
  EXPECT_TRUE(t.gradient(2, 1, 1).untouched);
}

TEST(ModelG6, AGradientOfZerosIsUseAndAnUndefinedOneIsNot) {
  const RankPass zeros = graph({use(0, 100), node(Kind::kScale, {{}}, 0)});
  const RankPass stopped = graph({use(0, 100), node(Kind::kStop, {{}})});
  const Case t = Case(2, Mode::kDynamic, 1).step({zeros, stopped}).step({stopped}).run();
  EXPECT_EQ(std::fabs(t.value(0, 1, 0)), 0.0F);
  EXPECT_FALSE(t.gradient(0, 1, 0).untouched);
  EXPECT_TRUE(t.gradient(1, 1, 0).untouched);
}

TEST(ModelG7, ARankThatDoesNotUseAParameterContributesWhatItHas) {
  const Case t = Case(2, Mode::kDynamic, 2)
                     .step({uses({0, 1}), uses({0})})
                     .step({uses({0}), uses({0, 1})})
                     .run();
  const float first = t.c(0, 0, 1) * 0.5F;  // rank 1 had none: +0
  EXPECT_EQ(t.value(0, 0, 1), first);
  EXPECT_EQ(t.value(0, 1, 1), first);
  EXPECT_EQ(t.value(1, 0, 1), first * 0.5F + (first + t.c(1, 1, 1)) * 0.5F);
}

TEST(ModelG8, InPlainModeAGradientUndefinedEverywhereBecomesZeros) {
  const RankPass stopped = graph({use(0, 100), node(Kind::kStop, {{}})});
  const Case plain = Case(2, Mode::kPlain, 1).step({stopped}).run();
  EXPECT_EQ(plain.bits(0, 0, 0), 0U);
  EXPECT_EQ(plain.bits(0, 1, 0), 0U);
  const Case dynamic = Case(2, Mode::kDynamic, 1).step({stopped}).run();
  EXPECT_FALSE(dynamic.gradient(0, 0, 0).defined);
}

TEST(ModelG9, AZeroContributionTurnsMinusZeroToZero) {
  // -2 * 0 makes the scalar -0; times a positive or negative constant it is -0 or +0.
  const RankPass minus =
      graph({use(0, 100), node(Kind::kScale, {{}}, 0), node(Kind::kScale, {{}}, -2)});
  const RankPass stopped = graph({use(0, 100), node(Kind::kStop, {{}})});
  Case t(2, Mode::kPlain, 1);
  t.program.parameters[0].sizes = {40};
  t.step({minus, stopped}).step({minus}, PassKind::kNoSync, ZeroGrad::kUndefine).run();
  int minus_zeros = 0;
  for (std::uint64_t e = 0; e < 40; ++e) {
    EXPECT_EQ(t.bits(0, 0, 0, e), 0U);
    const bool is_minus = t.c(1, 0, 0, 100, e) > 0;
    EXPECT_EQ(t.bits(1, 0, 0, e), is_minus ? 0x80000000U : 0U);
    minus_zeros += is_minus;
  }
  EXPECT_GT(minus_zeros, 5);
}

TEST(ModelG9, SpecialValuesFollowTheStandard) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    Case t(2, Mode::kPlain, 1);
    t.program.values = Values::kSpecial;
    t.program.parameters[0].dtype = dtype;
    t.program.parameters[0].sizes = {2000};
    t.step({uses({0})}).run();
    int nan = 0;
    for (std::uint64_t e = 0; e < 2000; ++e) {
      std::uint64_t x[2];
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        x[rank] = value_of(t.program, t.program.parameters[0], rank, 1, 100, e);
        x[rank] = scale(dtype, x[rank], 2);
      }
      const std::uint64_t expected = add(dtype, x[0], x[1]);
      ASSERT_TRUE(same_bits(dtype, t.bits(0, 1, 0, e), expected));
      nan += std::isnan(to_double(dtype, expected));
    }
    EXPECT_GT(nan, 20);
  }
}

TEST(ModelG10, ParametersWithoutElementsAreOrdinary) {
  Case t(2, Mode::kPlain, 3);
  t.program.parameters[1].sizes = {3, 0};
  t.step({uses({0, 1, 2})}).step({uses({0, 2})}).run();
  EXPECT_TRUE(t.gradient(0, 0, 1).defined);
  EXPECT_EQ(t.value(0, 0, 2), t.c(0, 0, 2) * 0.5F + t.c(0, 1, 2) * 0.5F);
  EXPECT_EQ(t.at(1, 0).error, Error::kIncomplete);
  EXPECT_EQ(t.at(1, 0).parameters, (Indices{1}));
}

TEST(ModelG11, TensorsOfOneCallAddFromTheLastCreatedThenGoIntoTheGradient) {
  const RankPass three = graph({use(0, 1), use(0, 2, {{}}), use(0, 3, {{}})});
  Case t(1, Mode::kPlain, 1);
  t.program.parameters[0].sizes = {200};
  t.step({three}, PassKind::kNoSync).step({three}, PassKind::kNoSync).run();
  int ascending_differs = 0;
  for (std::uint64_t e = 0; e < 200; ++e) {
    const auto x = [&](std::uint32_t step, std::uint32_t key) { return t.c(step, 0, 0, key, e); };
    const float first = (x(0, 3) + x(0, 2)) + x(0, 1);
    const float second = (x(1, 3) + x(1, 2)) + x(1, 1);
    ASSERT_EQ(t.value(0, 0, 0, e), first);
    ASSERT_EQ(t.value(1, 0, 0, e), first + second);
    ascending_differs += first != (x(0, 1) + x(0, 2)) + x(0, 3);
  }
  EXPECT_GT(ascending_differs, 10);
}

TEST(ModelG11, TheProductWithTheScalarIsRoundedOnceToTheType) {
  Case t(1, Mode::kPlain, 1);
  t.program.parameters[0].dtype = DType::kBFloat16;
  t.program.parameters[0].sizes = {50};
  // 1 + 2 = 3 through two consumers.
  t.step({graph({use(0, 100), node(Kind::kScale, {{}}, 2), node(Kind::kSum, {{0, 0}, {1, 0}})})});
  t.run();
  int rounded = 0;
  for (std::uint64_t e = 0; e < 50; ++e) {
    const double product = 3 * static_cast<double>(t.c(0, 0, 0, 100, e));
    ASSERT_EQ(t.bits(0, 0, 0, e), round_from_double(DType::kBFloat16, product));
    rounded += static_cast<double>(t.value(0, 0, 0, e)) != product;
  }
  EXPECT_GT(rounded, 10);
}

// ---- E: order within a call ----

TEST(ModelE, UnderNoSyncACheckpointAddsAfterAccumulatorsThatWereReady) {
  // Parameter 0: used after the checkpoint was created, and in its body. Parameter 1: before.
  const RankPass pass = graph({use(1, 1), checkpoint({use(0, 8), use(1, 9, {{}})}, {{}}),
                               use(0, 3, {{}}), use(1, 4, {{}})});
  const RankPass start = graph({use(0, 5), use(1, 6, {{}})});
  Case t(1, Mode::kPlain, 2);
  t.program.parameters[0].sizes = t.program.parameters[1].sizes = {50};
  t.step({start}, PassKind::kNoSync).step({pass}, PassKind::kNoSync).run();
  for (std::uint64_t e = 0; e < 50; ++e) {
    const float zero = (t.c(0, 0, 0, 5, e) + t.c(1, 0, 0, 3, e)) + t.c(1, 0, 0, 8, e);
    const float one =
        (t.c(0, 0, 1, 6, e) + t.c(1, 0, 1, 9, e)) + (t.c(1, 0, 1, 4, e) + t.c(1, 0, 1, 1, e));
    ASSERT_EQ(t.value(1, 0, 0, e), zero);
    ASSERT_EQ(t.value(1, 0, 1, e), one);
  }
}

// A nested and an outer backward add to one parameter side by side: with something there before,
// the order shows in the bits of rounded sums, and not in exact ones.
TEST(Model, SumsWhoseOrderTimeDecidesAreNotKnown) {
  for (const Values values : {Values::kGeneral, Values::kExact}) {
    Program program;
    program.world = 1;
    program.values = values;
    program.parameters.resize(1);
    Step first;
    first.kind = PassKind::kNoSync;
    first.variants = {uses({0})};
    Step both = first;
    both.zero_grad = ZeroGrad::kKeep;
    both.variants = {graph({checkpoint({use(0, 1)}), use(0, 2, {{0, 0}})})};
    program.steps = {first, both};
    normalize(program);
    const Expectation expectation = run(program, Contract::lockstep());
    EXPECT_TRUE(expectation.steps[0].ranks[0].gradients[0].known);
    EXPECT_EQ(expectation.steps[1].ranks[0].gradients[0].known, values == Values::kExact);
  }
}

}  // namespace
}  // namespace lockstep::reference
