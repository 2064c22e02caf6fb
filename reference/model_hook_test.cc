// The model against CONTRACT.md, communication hooks (clauses S4, G3, T2), on programs small enough
// to compute by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/model/power_sgd.h"
#include "reference/order.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;

Case hooked(Hook hook, std::uint32_t world, DType dtype) {
  Case made(world, Mode::kPlain, 1);
  made.program.options.hook = hook;
  made.program.parameters[0].dtype = dtype;
  made.step({uses({0})}).step({uses({0})});
  made.run();
  return made;
}

double mean_of(const Case& t, DType wire, std::uint32_t step) {
  const DType dtype = t.program.parameters[0].dtype;
  const std::uint32_t world = t.program.world;
  const double factor = scale_factor(dtype, world);
  double sum = 0;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    const std::uint64_t bits =
        value_of(t.program, t.program.parameters[0], rank, t.program.steps[step].key, 100, 0);
    const double sent = nearest(wire, scaled(dtype, to_double(dtype, bits), factor));
    sum = rank == 0 ? sent : nearest(wire, sum + sent);
  }
  return sum;
}

TEST(ModelS4, AllReduceAndAResultElsewhereChangeNothing) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    const Case plain = hooked(Hook::kNone, 3, dtype);
    for (const Hook hook : {Hook::kAllReduce, Hook::kElsewhere}) {
      const Case t = hooked(hook, 3, dtype);
      EXPECT_EQ(t.expectation.bits, plain.expectation.bits);
      EXPECT_EQ(t.expectation.steps[0].collectives[0].dtype, dtype);
    }
  }
}

TEST(ModelS4, CompressionRoundsWhatIsScaledToSixteenBitsAndSumsThere) {
  for (const auto& [hook, wire] :
       {std::pair{Hook::kFloat16, DType::kFloat16}, std::pair{Hook::kBFloat16, DType::kBFloat16}}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const std::uint32_t world : {1U, 2U}) {
        const Case t = hooked(hook, world, dtype);
        const auto& collective = t.expectation.steps[0].collectives[0];
        EXPECT_EQ(collective.dtype, wire);
        EXPECT_EQ(collective.count, 1U);
        EXPECT_EQ(to_double(dtype, t.bits(0, 0, 0)), mean_of(t, wire, 0));
        EXPECT_EQ(t.bits(0, 0, 0), t.bits(0, world - 1, 0));
      }
    }
  }
}

TEST(ModelS4, SixteenBitBucketsAreLeftAlone) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Case plain = hooked(Hook::kNone, 3, dtype);
    for (const Hook hook : {Hook::kFloat16, Hook::kBFloat16}) {
      const Case t = hooked(hook, 3, dtype);
      EXPECT_EQ(t.expectation.bits, plain.expectation.bits);
      EXPECT_EQ(t.expectation.steps[0].collectives[0].dtype, dtype);
    }
  }
}

// G3: the ring cuts a bucket by its bytes on the wire.
TEST(ModelS4, TheOrderOfAdditionsIsThatOfTheWire) {
  Case t(3, Mode::kPlain, 1);
  t.program.parameters[0].sizes = {1000};
  t.program.options.hook = Hook::kFloat16;
  t.step({uses({0})});
  t.run();
  Contract contract = Contract::lockstep();
  contract.max_segment_bytes = 64;
  const auto order = gloo_ring(3, 1000, 2, contract.max_segment_bytes);
  ASSERT_NE(order[0].end, gloo_ring(3, 1000, 4, contract.max_segment_bytes)[0].end);
  t.expectation = reference::run(t.program, contract);
  const double factor = scale_factor(DType::kFloat32, 3);
  std::uint64_t begin = 0;
  for (const OrderRun& run : order) {
    for (std::uint64_t e = begin; e < run.end; ++e) {
      double x[3];
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        const auto bits = value_of(t.program, t.program.parameters[0], rank, 1, 100, e);
        x[rank] = nearest(DType::kFloat16,
                          scaled(DType::kFloat32, to_double(DType::kFloat32, bits), factor));
      }
      for (std::size_t i = 0; i < 2; ++i) {
        const Addition& add = run.additions[i];
        x[add.into] = nearest(DType::kFloat16, x[add.into] + x[add.from]);
      }
      ASSERT_EQ(t.value(0, 0, 0, e), static_cast<float>(x[run.result])) << e;
    }
    begin = run.end;
  }
}

Case power_sgd(std::vector<std::uint32_t> sizes) {
  Case made(2, Mode::kPlain, 2);
  made.program.options.hook = Hook::kPowerSgd;
  made.program.options.power_sgd_rank = 2;
  made.program.parameters[0].sizes = std::move(sizes);
  made.step({uses({0, 1})}).step({uses({0, 1})});
  made.run();
  return made;
}

TEST(ModelS4, PowerSgdCompressesWhatGetsSmaller) {
  const auto factors_of = [](std::vector<std::uint32_t> sizes) {
    Parameter parameter;
    parameter.sizes = std::move(sizes);
    return power_matrix(parameter, 2).factors;
  };
  EXPECT_EQ(factors_of({4, 5}), 2U);  // 18 of 20
  EXPECT_EQ(factors_of({4, 4}), 0U);  // 16 of 16
  EXPECT_EQ(factors_of({1, 4, 1, 5}), 2U);
  EXPECT_EQ(factors_of({40}), 0U);
  EXPECT_EQ(factors_of({0, 40}), 0U);
  Parameter wide;
  wide.sizes = {4, 5};
  wide.column_major = true;
  EXPECT_EQ(power_matrix(wide, 2).rows, 5U);
  wide.dtype = DType::kFloat64;
  EXPECT_EQ(power_matrix(wide, 2).factors, 0U);
}

TEST(ModelS4, PowerSgdSumsTwiceAndTheSecondTimeAfterAllBuckets) {
  const Case t = power_sgd({6, 7});
  ASSERT_EQ(t.expectation.buckets.size(), 1U);
  const auto& collectives = t.expectation.steps[0].collectives;
  ASSERT_EQ(collectives.size(), 2U);
  EXPECT_EQ(collectives[0].count, 1U + 6 * 2);  // the other parameter, then P
  EXPECT_EQ(collectives[1].count, 7U * 2);
  EXPECT_EQ(power_sgd({4, 4}).expectation.steps[0].collectives.size(), 1U);
}

// The hook on one bucket, from pass to pass.
struct PowerSgdHook {
  Setting setting;
  ExpectedBucket bucket;
  PowerState state;

  PowerSgdHook(const Program& program, const Contract& contract, ExpectedBucket of)
      : setting(make_setting(program, contract, 0)),
        bucket(std::move(of)),
        state(program.parameters.size()) {}

  // `gradients` are by member and rank, the results by member.
  std::vector<Floats> reduce(const std::vector<std::vector<Floats>>& gradients) {
    const auto sum = [](std::vector<Floats> parts) {
      for (std::size_t r = 1; r < parts.size(); ++r)
        add_values(DType::kFloat32, parts[0].data(), parts[r].data(), parts[0].size());
      return parts[0];
    };
    const auto ranks = static_cast<std::uint32_t>(gradients[0].size());
    return run_power_sgd(setting, bucket, ranks, gradients, sum, state);
  }
};

Program program_of_one_matrix(std::vector<std::uint32_t> sizes) {
  Program program;
  program.options.hook = Hook::kPowerSgd;
  program.parameters.resize(1);
  program.parameters[0].sizes = std::move(sizes);
  return program;
}

ExpectedBucket bucket_of_one() {
  ExpectedBucket bucket;
  bucket.parameters = {0};
  return bucket;
}

// A matrix of rank one gets through whole: all that is lost is rounding.
TEST(ModelS4, PowerSgdLosesNothingOfAMatrixOfItsRank) {
  const Program program = program_of_one_matrix({5, 6});
  const Contract contract;
  PowerSgdHook hook(program, contract, bucket_of_one());
  std::vector<Floats> given(2);
  for (std::size_t rank = 0; rank < 2; ++rank)
    for (std::size_t i = 0; i < 5; ++i)
      for (std::size_t j = 0; j < 6; ++j)
        given[rank].push_back(static_cast<double>((i + 1) * (j + 2) * (rank + 1)));
  const std::vector<Floats> results = hook.reduce({given});
  for (std::size_t e = 0; e < 30; ++e)
    EXPECT_NEAR(results[0][e], (given[0][e] + given[1][e]) / 2, 1e-4);
}

// What a pass loses, a later one brings: of equal gradients the sums of the results stay close to
// the sums of the gradients, and would not without the error.
TEST(ModelS4, PowerSgdBringsInTheNextPassesWhatItLost) {
  const Program program = program_of_one_matrix({8, 9});
  const Contract contract;
  Floats given(72);
  for (std::size_t e = 0; e < 72; ++e) given[e] = static_cast<double>(e * e % 17) - 8;
  const auto distance_after = [&](int passes, bool forgets) {
    PowerSgdHook hook(program, contract, bucket_of_one());
    Floats total(72, 0.0);
    for (int pass = 0; pass < passes; ++pass) {
      const std::vector<Floats> results = hook.reduce({{given}});
      for (std::size_t e = 0; e < 72; ++e) total[e] += results[0][e];
      if (forgets) hook.state.assign(1, {});
    }
    double distance = 0;
    for (std::size_t e = 0; e < 72; ++e) distance += std::abs(total[e] / passes - given[e]) / 72;
    return distance;
  };
  EXPECT_LT(distance_after(64, false), distance_after(64, true) / 8);
}

TEST(ModelS4, PowerSgdStartsAnewAfterWhatIsNotFinite) {
  const Case t = power_sgd({6, 7});
  const Contract contract;
  PowerSgdHook hook(t.program, contract, t.expectation.buckets[0]);
  const auto& members = hook.bucket.parameters;
  const auto matrix_at =
      static_cast<std::size_t>(std::find(members.begin(), members.end(), 0U) - members.begin());
  std::vector<std::vector<Floats>> given;
  for (const std::uint32_t parameter : members)
    given.push_back({Floats(parameter == 0 ? 42 : 1, 1.0)});
  given[matrix_at][0][3] = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(std::isfinite(hook.reduce(given)[matrix_at][3]));
  given[matrix_at][0][3] = 1;
  const std::vector<Floats> results = hook.reduce(given);
  for (const double value : results[matrix_at]) EXPECT_NEAR(value, 1, 1e-5);
}

// Two steps on two ranks, with a hook of the user's own that returns `result`.
Case returning(HookResult result, Mode mode = Mode::kPlain) {
  Case t(2, mode, 2);
  t.program.options.hook = Hook::kElsewhere;
  t.program.options.hook_result = result;
  t.step({uses({0, 1}), uses({0, 1})}).step({uses({0, 1})}, PassKind::kSynced, ZeroGrad::kKeep);
  t.run();
  return t;
}

TEST(ModelS4, AHookThatSumsLeavesTheSum) {
  const Case t = returning(HookResult::kSum);
  const float sum = t.c(0, 0, 0) + t.c(0, 1, 0);
  for (const std::uint32_t rank : {0U, 1U}) {
    EXPECT_EQ(t.value(0, rank, 0), sum);
    EXPECT_EQ(t.value(1, rank, 0), sum + t.c(1, 0, 0) + sum + t.c(1, 1, 0));
  }
  EXPECT_EQ(t.expectation.steps[0].collectives.size(), 1U);
}

TEST(ModelS4, AHookThatReturnsTheBucketLeavesEachRankItsOwnAndStartsNothing) {
  const Case t = returning(HookResult::kLocal);
  for (const std::uint32_t rank : {0U, 1U}) {
    EXPECT_EQ(t.value(0, rank, 1), t.c(0, rank, 1));
    EXPECT_EQ(t.value(1, rank, 1), t.c(0, rank, 1) + t.c(1, rank, 1));
    EXPECT_TRUE(t.gradient(0, rank, 1).reduced);
  }
  for (const ExpectedStep& step : t.expectation.steps) EXPECT_TRUE(step.collectives.empty());
}

// The usage map does not pass through a hook, and G5 (untouched gradients) holds with any hook.
TEST(ModelS4, AHookThatReturnsTheBucketKeepsTheUsageMap) {
  Case t(2, Mode::kDynamic, 2);
  t.program.options.hook = Hook::kElsewhere;
  t.program.options.hook_result = HookResult::kLocal;
  t.step({uses({0}), uses({0})}).run();
  ASSERT_EQ(t.expectation.steps[0].collectives.size(), 1U);
  EXPECT_EQ(t.expectation.steps[0].collectives[0].op, ExpectedCollective::Op::kAllReduceUsage);
  EXPECT_FALSE(t.gradient(0, 0, 1).defined);
}

TEST(ModelS4, AHookThatReturnsZerosLeavesZeros) {
  const Case t = returning(HookResult::kZeros);
  for (const std::uint32_t rank : {0U, 1U}) {
    EXPECT_EQ(t.bits(0, rank, 0), 0U);
    EXPECT_EQ(t.bits(1, rank, 1), 0U);
  }
  EXPECT_EQ(t.expectation.steps[0].collectives.size(), 1U);
}

// Where no collective is started, no rank waits for a rank that fails (P5, P12).
TEST(ModelS4, ARankThatFailsHoldsUpNobodyWhereTheHookStartsNothing) {
  for (const HookResult result : {HookResult::kMean, HookResult::kLocal}) {
    Case t(2, Mode::kPlain, 2);
    t.program.options.hook = Hook::kElsewhere;
    t.program.options.hook_result = result;
    t.step({uses({0}), uses({0, 1})}).run();
    EXPECT_EQ(t.at(0, 0).error, Error::kIncomplete);
    EXPECT_EQ(t.at(0, 1).outcome,
              result == HookResult::kMean ? Outcome::kPeerError : Outcome::kSuccessOrPeerError);
  }
}

TEST(ModelS4, OnlyAHookOfTheUsersOwnHasOptions) {
  Program program;
  program.options.hook = Hook::kAllReduce;
  program.options.hook_result = HookResult::kZeros;
  program.options.hook_completion = HookCompletion::kReversed;
  program.options.hook_backward = HookBackward::kTaken;
  normalize(program);
  EXPECT_EQ(program.options.hook_result, HookResult::kMean);
  EXPECT_EQ(program.options.hook_completion, HookCompletion::kImmediate);
  EXPECT_EQ(program.options.hook_backward, HookBackward::kNone);
}

TEST(ModelS4, NothingButTheBitsDependsOnTheHook) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic, Mode::kStatic}) {
    Case t = Case(2, mode, 2)
                 .step({uses({0, 1})})
                 .step({uses({0, 1})}, PassKind::kSynced, ZeroGrad::kKeep);
    t.program.options.views = true;
    t.program.options.rebuild = true;
    t.run();
    const Expectation plain = t.expectation;
    t.program.options.hook = Hook::kBFloat16;
    t.run();
    for (std::size_t s = 0; s < 2; ++s) {
      EXPECT_FALSE(t.expectation.steps[s].any_error);
      EXPECT_EQ(t.expectation.steps[s].layout, plain.steps[s].layout);
      EXPECT_EQ(t.expectation.steps[s].collectives.size(), plain.steps[s].collectives.size());
      EXPECT_TRUE(t.gradient(static_cast<std::uint32_t>(s), 0, 1).in_bucket);
    }
  }
}

}  // namespace
}  // namespace lockstep::reference
