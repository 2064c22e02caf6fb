// The results, bit for bit: clauses G1 to G10.
#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using ReducerGradient = ReducerTest;

constexpr DType kDTypes[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

Shape vector_shape(std::size_t elements) {
  return Shape::row_major({static_cast<std::int64_t>(elements)});
}

// Returns a value rounded to the dtype, whose products and sums need rounding: neither an integer
// nor a power of two.
double value_of(DType dtype, int rank, std::size_t i) {
  const double x = std::sin(static_cast<double>(i * 7 + static_cast<std::size_t>(rank) * 13 + 1));
  return rounded(dtype, x * std::exp2(static_cast<double>(i % 8)));
}

struct Mean {
  DType dtype;
  int ranks;
};
class ReducerMean : public ::testing::TestWithParam<Mean> {};

TEST_P(ReducerMean, G1G2IsTheSumInRankOrderOfGradientsScaledByAMultiplication) {
  const auto [dtype, ranks] = GetParam();
  constexpr std::size_t kElements = 300;
  const double factor = factor_of(dtype, ranks);
  Values expected;
  for (std::size_t i = 0; i < kElements; ++i) {
    double sum = rounded(dtype, value_of(dtype, 0, i) * factor);
    for (int r = 1; r < ranks; ++r)
      sum = rounded(dtype, sum + rounded(dtype, value_of(dtype, r, i) * factor));
    expected.push_back(sum);
  }
  const auto memberships = local_memberships(ranks);
  on_ranks(ranks, [&, type = dtype](int r) {
    TestRank rank;
    ParameterSpec spec;
    spec.dtype = type;
    spec.shape = vector_shape(kElements);
    const auto p = rank.add("p", spec);
    ASSERT_TRUE(rank.create(memberships[static_cast<std::size_t>(r)], quick_options(false)).ok());
    Values mine;
    for (std::size_t i = 0; i < kElements; ++i) mine.push_back(value_of(type, r, i));
    const auto roots = rank.forward_of({p});
    const std::vector<Tensor> gradients = {rank.tensor(mine, type)};
    const Status status = rank.engine.backward(roots, gradients, false);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(values_of(p->grad()), expected);
    EXPECT_EQ(p->grad().dtype(), type);
  });
}

std::vector<Mean> means() {
  std::vector<Mean> all;
  for (const DType dtype : kDTypes)
    for (const int ranks : {1, 2, 3, 4}) all.push_back({dtype, ranks});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, ReducerMean, ::testing::ValuesIn(means()), [](const auto& test) {
  return std::string(name_of(test.param.dtype)) + "On" + std::to_string(test.param.ranks);
});

// Runs one rank whose peers contribute nothing, so the result is the scaled gradient itself.
Values scaled_alone(DType dtype, int ranks, const Values& values) {
  TestRank rank;
  ParameterSpec spec;
  spec.dtype = dtype;
  spec.shape = vector_shape(values.size());
  const auto p = rank.add("p", spec);
  auto group = std::make_shared<ScriptedGroup>(ranks);
  group->peers = [](const Collective&) {};
  const Membership membership{group, std::make_shared<HashStore>()};
  EXPECT_TRUE(rank.create(membership, quick_options(false)).ok());
  const std::vector<Tensor> gradients = {rank.tensor(values, dtype)};
  EXPECT_TRUE(rank.engine.backward(rank.forward_of({p}), gradients, false).ok());
  return values_of(p->grad());
}

TEST(ReducerScale, G2AtThreeRanksEveryElementIsMultipliedAndNeverDivided) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Values values;
    for (std::size_t i = 0; i < 300; ++i) values.push_back(value_of(dtype, 0, i));
    const Values result = scaled_alone(dtype, 3, values);
    int telling = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(result[i], rounded(dtype, values[i] * factor_of(dtype, 3)));
      telling += result[i] != rounded(dtype, values[i] / 3);
    }
    // The number of elements in which a division would show.
    EXPECT_GT(telling, 30) << name_of(dtype);
  }
}

TEST(ReducerScale, G2TheFactorOfFloat64IsNotThatOfFloat32) {
  EXPECT_EQ(scaled_alone(DType::kFloat64, 3, {1.0}), Values{1.0 / 3});
  EXPECT_EQ(scaled_alone(DType::kFloat32, 3, {1.0}), Values{static_cast<double>(1.0f / 3)});
}

TEST_F(ReducerGradient, G2ScalingComesBeforeTheSumSoThatAFloat16MeanDoesNotOverflow) {
  ParameterSpec half;
  half.dtype = DType::kFloat16;
  half.shape = vector_shape(1);
  TestRank rank;
  const auto h = rank.add("h", half);
  ASSERT_TRUE(rank.create(membership(), quick_options(false)).ok());
  const std::vector<Tensor> gradients = {rank.tensor({40000}, DType::kFloat16)};
  ASSERT_TRUE(rank.engine.backward(rank.forward_of({h}), gradients, false).ok());
  EXPECT_EQ(values_of(h->grad()), Values{40000});
}

TEST(ReducerOutputs, G1EachOfManyOutputsBringsItsOwnGradient) {
  for (const bool dynamic : {false, true}) {
    TestRank rank;
    constexpr std::size_t kOutputs = 9;
    for (std::size_t k = 0; k < kOutputs; ++k) rank.add("p" + std::to_string(k));
    const Membership membership{std::make_shared<ScriptedGroup>(), std::make_shared<HashStore>()};
    ASSERT_TRUE(rank.create(membership, quick_options(dynamic)).ok());
    for (int pass = 0; pass < 3; ++pass) {
      rank.undefine_grads();
      std::vector<Edge> edges;
      std::vector<Tensor> gradients;
      for (std::size_t k = 0; k < kOutputs; ++k) {
        edges.push_back({rank.fan({{rank.parameters[k], 0}, {rank.parameters[0], 0}}), 0});
        gradients.push_back(rank.tensor({static_cast<double>(k), pass + 0.5}));
      }
      ASSERT_TRUE(rank.engine.backward(rank.forward(edges), gradients, false).ok());
      for (std::size_t k = 1; k < kOutputs; ++k)
        EXPECT_EQ(values_of(rank.parameters[k]->grad()),
                  (Values{static_cast<double>(k), pass + 0.5}));
      EXPECT_EQ(values_of(rank.parameters[0]->grad()), (Values{36, 10 * (pass + 0.5)}));
    }
  }
}

TEST_F(ReducerGradient, G2EveryPassScalesOnce) {
  create(false);
  for (const double expected : {6.0, 12.0, 18.0}) {  // Each pass adds 6, and none is scaled twice.
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 6).ok());
    EXPECT_EQ(first(p_), expected);
  }
}

// Runs two ranks; `body` says what each of them does.
template <class Other>
void with_two_ranks(bool dynamic, const Other& body) {
  const auto memberships = local_memberships(2);
  on_ranks(2, [&](int r) {
    TestRank rank;
    rank.add("p");
    rank.add("q");
    ASSERT_TRUE(rank.create(memberships[static_cast<std::size_t>(r)], quick_options(dynamic)).ok());
    body(r, rank, rank.parameters[0], rank.parameters[1]);
  });
}

TEST(ReducerTwoRanks, G1AnUndefinedGradientCountsAsZero) {
  with_two_ranks(false, [](int r, TestRank& rank, const auto& p, const auto& q) {
    const auto stopped = rank.stop({{p, 0}});
    const auto roots = r == 0 ? rank.forward_of({p, q}) : rank.forward({{stopped, 0}, {q, 0}});
    ASSERT_TRUE(rank.backward(roots, {6, -8}).ok());
    EXPECT_EQ(values_of(p->grad()), (Values{3, -4}));
  });
}

TEST(ReducerTwoRanks, G6ZerosAreUseAndAStaleGradientIsNot) {
  with_two_ranks(true, [](int r, TestRank& rank, const auto& p, const auto& q) {
    q->set_grad(rank.tensor({5, 6}));  // It is stale on both ranks, and neither uses it.
    if (r == 0) {
      const Tensor stale = q->grad();
      ASSERT_TRUE(rank.backward(rank.forward_of({p}), {0, 0}).ok());
      EXPECT_TRUE(q->grad().storage() == stale.storage());
    } else {
      ASSERT_TRUE(rank.backward(rank.forward({{rank.stop(), 0}}), 1).ok());
    }
    EXPECT_EQ(values_of(q->grad()), (Values{5, 6}));
    ASSERT_TRUE(p->grad().defined());  // Rank 0 used it, with zeros.
    EXPECT_EQ(values_of(p->grad()), (Values{0, 0}));
  });
}

TEST(ReducerTwoRanks, G7WhatAnotherRankUsedIsReceivedAndAStaleGradientContributes) {
  for (const bool stale : {false, true}) {
    with_two_ranks(true, [stale](int r, TestRank& rank, const auto& p, const auto& q) {
      if (stale && r == 1) q->set_grad(rank.tensor({100, 200}));
      const auto used = r == 0 ? std::vector{p, q} : std::vector{p};
      ASSERT_TRUE(rank.backward(rank.forward_of(used), {2, 4}).ok());
      EXPECT_EQ(values_of(q->grad()), stale ? (Values{51, 102}) : (Values{1, 2}));
    });
  }
}

TEST_F(ReducerGradient, G5WhatNoRankUsedKeepsItsBitsAndItsStorage) {
  create(true);
  Tensor stale = rank_.tensor({0, 0});
  const std::uint32_t bits[2] = {0x80000000u, 0x7fc12345u};  // -0, and a NaN with a payload.
  std::memcpy(stale.data(), bits, sizeof bits);
  q_->set_grad(stale);
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 3).ok());
  EXPECT_TRUE(q_->grad().storage() == stale.storage());
  EXPECT_EQ(std::memcmp(q_->grad().data(), bits, sizeof bits), 0);
  q_->undefine_grad();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 3).ok());
  EXPECT_FALSE(q_->grad().defined());
}

TEST_F(ReducerGradient, G8InPlainModeAGradientUndefinedEverywhereBecomesZeros) {
  create(false);
  const auto roots = rank_.forward({{p_, 0}, {rank_.stop({{q_, 0}}), 0}});
  ASSERT_TRUE(rank_.backward(roots, 3).ok());
  ASSERT_TRUE(q_->grad().defined());
  for (std::size_t i = 0; i < 2; ++i) {
    std::uint32_t bits = 1;
    std::memcpy(&bits, q_->grad().data() + 4 * i, sizeof bits);
    EXPECT_EQ(bits, 0u);
  }
}

TEST(ReducerTwoRanks, G9SpecialValuesFollowIeee754) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double tiny = static_cast<double>(std::numeric_limits<float>::denorm_min());
  // The gradients of rank 0 and rank 1; the result adds half of each.
  const Values mine[2] = {{nan, kInfinity, kInfinity, 4 * tiny, -0.0, -0.0},
                          {1, 1, -kInfinity, 2 * tiny, -0.0, 0.0}};
  const auto memberships = local_memberships(2);
  on_ranks(2, [&](int r) {
    TestRank rank;
    ParameterSpec spec;
    spec.shape = vector_shape(6);
    const auto p = rank.add("p", spec);
    ASSERT_TRUE(rank.create(memberships[static_cast<std::size_t>(r)], quick_options(false)).ok());
    ASSERT_TRUE(rank.backward(rank.forward_of({p}), mine[r]).ok());
    const Values result = values_of(p->grad());
    EXPECT_TRUE(std::isnan(result[0]));
    EXPECT_EQ(result[1], kInfinity);
    EXPECT_TRUE(std::isnan(result[2]));
    EXPECT_EQ(result[3], 3 * tiny);  // It is not flushed to zero.
    EXPECT_TRUE(result[4] == 0 && std::signbit(result[4]));
    EXPECT_TRUE(result[5] == 0 && !std::signbit(result[5]));
  });
}

// Makes a gradient in the middle of a storage whose other elements must not change.
Tensor guarded(TestRank& rank, const Shape& shape) {
  constexpr std::int64_t kGuard = 16;
  const auto bytes = static_cast<std::size_t>(shape.extent() + 2 * kGuard) * sizeof(float);
  const Ref<Storage> storage = *rank.devices[0].allocate(bytes);
  std::memset(storage->data(), 0x5a, bytes);
  Tensor tensor(storage, kGuard, DType::kFloat32, shape);
  for (std::int64_t i = 0; i < shape.extent(); ++i)
    set_element(DType::kFloat32, tensor.data(), static_cast<std::size_t>(i), 0);
  return tensor;
}

bool guards_hold(const Tensor& tensor) {
  const std::byte* data = tensor.storage()->data();
  const std::byte* inside = tensor.data();
  const auto extent = static_cast<std::size_t>(tensor.shape().extent()) * sizeof(float);
  for (std::size_t i = 0; i < tensor.storage()->bytes(); ++i) {
    const bool is_own = data + i >= inside && data + i < inside + extent;
    if (!is_own && data[i] != std::byte{0x5a}) return false;
  }
  return true;
}

TEST(ReducerSizes, G10EmptyAndSmallParametersAreOrdinaryAndNeighboursAreNotTouched) {
  for (const bool dynamic : {false, true}) {
    TestRank rank;
    const std::size_t sizes[] = {1, 0, 17, 0, 3};
    for (const std::size_t size : sizes) {
      ParameterSpec spec;
      spec.shape = vector_shape(size);
      rank.add("p" + std::to_string(rank.parameters.size()), spec);
    }
    auto group = std::make_shared<ScriptedGroup>();
    // The reducer must not read padding, so what the group writes there must have no effect.
    group->peers = [](const Collective& c) {
      for (std::size_t i = 0; i < c.count; ++i)
        set_element(c.dtype, c.data, i, element(c.dtype, c.data, i) + 100);
    };
    const Membership membership{group, std::make_shared<HashStore>()};
    ASSERT_TRUE(rank.create(membership, quick_options(dynamic, {1u << 20})).ok());
    std::vector<Tensor> gradients;
    for (std::size_t k = 0; k < 5; ++k) {
      const auto& p = rank.parameters[k];
      p->set_grad(guarded(rank, p->shape()));
      gradients.push_back(rank.tensor(Values(sizes[k], 8)));
    }
    const auto roots = rank.forward_of(rank.parameters);
    const Status status = rank.engine.backward(roots, gradients, false);
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (std::size_t k = 0; k < 5; ++k) {
      EXPECT_EQ(values_of(rank.parameters[k]->grad()), Values(sizes[k], 104));
      EXPECT_TRUE(guards_hold(rank.parameters[k]->grad())) << k;
    }
  }
}

TEST(ReducerSizes, G10OnlyEmptyParametersAreReducedToo) {
  TestRank rank;
  ParameterSpec spec;
  spec.shape = vector_shape(0);
  const auto p = rank.add("p", spec);
  auto group = std::make_shared<ScriptedGroup>();
  const Membership membership{group, std::make_shared<HashStore>()};
  ASSERT_TRUE(rank.create(membership, quick_options(true)).ok());
  ASSERT_TRUE(rank.backward(rank.forward_of({p}), Values{}).ok());
  EXPECT_EQ(group->sums(), 2);
  EXPECT_TRUE(p->grad().defined());
}

TEST(ReducerStrides, G1AGradientOfOtherStridesKeepsThemAndItsElements) {
  TestRank rank;
  ParameterSpec spec;
  const std::int64_t sizes[] = {2, 3};
  spec.shape = Shape::column_major(sizes);
  const auto p = rank.add("p", spec);
  auto group = std::make_shared<ScriptedGroup>();
  const Membership membership{group, std::make_shared<HashStore>()};
  ASSERT_TRUE(rank.create(membership, quick_options(false)).ok());
  Tensor held = *Tensor::empty(rank.devices[0], DType::kFloat32, Shape::row_major(sizes));
  rank.devices[0].fill_zero({}, held.data(), held.storage()->bytes());
  // This gradient has rows first, while the parameter and its bucket have columns first.
  p->set_grad(held);
  Tensor arrives = *Tensor::empty(rank.devices[0], DType::kFloat32, Shape::row_major(sizes));
  for (std::size_t i = 0; i < 6; ++i)
    set_element(DType::kFloat32, arrives.data(), i, static_cast<double>(i));
  const std::vector<Tensor> gradients = {arrives};
  ASSERT_TRUE(rank.engine.backward(rank.forward_of({p}), gradients, false).ok());
  EXPECT_EQ(values_of(p->grad()), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(p->grad().storage() == held.storage());
  Values sent;  // The values are in the parameter's own order of memory (B3), and scaled.
  for (std::size_t i = 0; i < 6; ++i)
    sent.push_back(element(DType::kFloat32, group->started.back().sent.data(), i));
  EXPECT_EQ(sent, (Values{0, 1.5, 0.5, 2, 1, 2.5}));
}

// The application makes the thread that trains round up: then 1/3 is another float, and so is its
// product with a gradient.
TEST(ReducerScale, G9TheFactorAndTheScaleAreRoundedToNearestWhateverTheThreadRounds) {
  const auto sent = [](int mode) {
    std::fesetround(mode);
    TestRank rank;
    const auto p = rank.add("p");
    const auto group = std::make_shared<ScriptedGroup>(3);
    Status status = rank.create({group, std::make_shared<HashStore>()}, quick_options(false));
    const Tensor gradient = rank.tensor({5, 7});  // They are exact in every rounding mode.
    if (status.ok())
      status = rank.engine.backward(rank.forward_of({p}), std::span(&gradient, 1), false);
    std::fesetround(FE_TONEAREST);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return status.ok() ? group->started.back().sent : std::vector<std::byte>();
  };
  const auto expected = sent(FE_TONEAREST);
  EXPECT_EQ(element(DType::kFloat32, expected.data(), 1),
            static_cast<double>(7.0f * (1.0f / 3.0f)));
  EXPECT_EQ(sent(FE_UPWARD), expected);
  EXPECT_EQ(sent(FE_DOWNWARD), expected);
}

}  // namespace
}  // namespace lockstep::testing
