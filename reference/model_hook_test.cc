// The model against CONTRACT.md, communication hooks (clauses S4, G3, T2), on programs small enough
// to compute by hand.
#include <gtest/gtest.h>

#include <utility>

#include "reference/arithmetic.h"
#include "reference/model.h"
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
