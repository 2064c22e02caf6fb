// The model against CONTRACT.md, sparse gradients (S1) and those that are refused (P16).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/sparse.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;
using Op = ExpectedCollective::Op;

constexpr std::uint32_t kRows = 5;
constexpr std::uint32_t kWidth = 2;

// Parameter 0 is a table of 5 rows of 2; its uses look up at most so many rows.
Case tables(std::uint32_t world, Mode mode, std::uint32_t parameters = 1) {
  Case made(world, mode, parameters);
  made.program.parameters[0].sparse = true;
  made.program.parameters[0].sizes = {kRows, kWidth};
  return made;
}

RankPass looks_up(std::uint32_t entries, std::uint32_t key = 100) {
  Node made = use(0, key);
  made.entries = entries;
  return graph({made});
}

Entries sent(const Case& t, std::uint32_t step, std::uint32_t rank, std::uint32_t entries,
             std::uint32_t key = 100) {
  return entries_of(t.program, t.program.parameters[0], rank,
                    {t.program.steps[step].key, key, entries}, 1);
}

// What float addition makes of some entries, row by row, in their order; each result times k.
std::vector<float> folded(const Entries& entries, float k, std::set<std::uint32_t>& rows) {
  std::vector<float> out(std::size_t{kRows} * kWidth);
  for (std::size_t i = 0; i < entries.rows.size(); ++i) {
    const std::uint32_t row = entries.rows[i];
    const bool is_new = rows.insert(row).second;
    for (std::uint32_t e = 0; e < kWidth; ++e) {
      const auto value = static_cast<float>(entries.values[i * kWidth + e]);
      float& sum = out[row * kWidth + e];
      sum = is_new ? value : sum + value;
    }
  }
  for (float& each : out) each *= k;
  return out;
}

void expect_rows(const Case& t, std::uint32_t step, std::uint32_t rank,
                 const std::vector<float>& values, const std::set<std::uint32_t>& rows) {
  for (std::uint32_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(t.bits(step, rank, 0, kRows * kWidth + row), rows.count(row));
    for (std::uint32_t e = 0; e < kWidth; ++e) {
      const float value = rows.count(row) ? values[row * kWidth + e] : 0;
      EXPECT_EQ(t.value(step, rank, 0, row * kWidth + e), value) << row << " " << e;
    }
  }
}

TEST(ModelS1, AUseLooksUpAFewRowsAndEachRankItsOwn) {
  const Case t = tables(4, Mode::kPlain).step({looks_up(20)}).run();
  std::set<std::vector<std::uint32_t>> seen;
  std::set<std::size_t> counts;
  for (std::uint32_t key = 0; key < 50; ++key) {
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      const Entries entries = sent(t, 0, rank, 20, key);
      ASSERT_LE(entries.rows.size(), 20U);
      ASSERT_EQ(entries.values.size(), entries.rows.size() * kWidth);
      for (const std::uint32_t row : entries.rows) ASSERT_LT(row, kRows);
      seen.insert(entries.rows);
      counts.insert(entries.rows.size());
    }
  }
  EXPECT_GT(seen.size(), 150U);
  EXPECT_EQ(counts.size(), 21U);  // none at all as well
}

TEST(ModelS1, RowsAreFoldedThenScaledThenAddedInRankOrder) {
  const Case t = tables(3, Mode::kPlain).step({looks_up(12)}).run();
  std::vector<float> sum(std::size_t{kRows} * kWidth);
  std::set<std::uint32_t> all;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    std::set<std::uint32_t> rows;
    const std::vector<float> own = folded(sent(t, 0, rank, 12), 1.0F / 3.0F, rows);
    for (const std::uint32_t row : rows) {
      const bool is_new = all.insert(row).second;
      for (std::uint32_t e = row * kWidth; e < (row + 1) * kWidth; ++e)
        sum[e] = is_new ? own[e] : sum[e] + own[e];
    }
  }
  ASSERT_FALSE(all.empty());
  for (std::uint32_t rank = 0; rank < 3; ++rank) expect_rows(t, 0, rank, sum, all);
}

TEST(ModelS1, WhatIsAccumulatedIsFoldedInTheOrderInWhichItCame) {
  const Case t = tables(2, Mode::kPlain)
                     .step({looks_up(9, 1)}, PassKind::kNoSync)
                     .step({looks_up(9, 2)}, PassKind::kNoSync)
                     .run();
  Entries all = sent(t, 0, 1, 9, 1);
  append(all, sent(t, 1, 1, 9, 2));
  std::set<std::uint32_t> rows;
  const std::vector<float> values = folded(all, 1, rows);
  expect_rows(t, 1, 1, values, rows);
  EXPECT_FALSE(t.gradient(1, 1, 0).reduced);
}

TEST(ModelS1, ItSendsHowManyRowsThenThemUnlessNobodyHasAny) {
  const Case t = tables(2, Mode::kDynamic, 2)
                     .step({looks_up(0)})
                     .step({looks_up(8)}, PassKind::kSynced, ZeroGrad::kUndefine)
                     .run();
  const auto& first = t.expectation.steps[0].collectives;  // 2 buckets, the usage map
  ASSERT_EQ(first.size(), 3U);
  EXPECT_EQ(first[1].op, Op::kGatherSparse);
  EXPECT_EQ(first[1].bucket, 1U);
  EXPECT_EQ(first[1].count, 8U);
  EXPECT_TRUE(t.gradient(0, 0, 0).defined);  // a gradient without entries is use
  std::size_t most = 0;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    std::set<std::uint32_t> rows;
    folded(sent(t, 1, rank, 8), 1, rows);
    most = std::max(most, rows.size());
  }
  ASSERT_GT(most, 0U);
  const auto& second = t.expectation.steps[1].collectives;
  ASSERT_EQ(second.size(), 5U);
  EXPECT_EQ(second[2].op, Op::kAllReduceUsage);
  EXPECT_EQ(second[3].count, most * 8);
  EXPECT_EQ(second[4].count, most * kWidth * sizeof(float));
}

TEST(ModelS1, ATableHasABucketOfItsOwnAndNoView) {
  Case t = tables(2, Mode::kPlain, 3);
  t.program.options.views = true;
  Node all = use(0, 1);
  all.entries = 4;
  t.step({graph({all, use(1, 2, {{}}), use(2, 3, {{}})})}).run();
  ASSERT_EQ(t.expectation.buckets.size(), 2U);
  EXPECT_EQ(t.expectation.buckets[0].parameters, (Indices{1, 2}));
  EXPECT_TRUE(t.expectation.buckets[1].sparse);
  EXPECT_FALSE(t.gradient(0, 0, 0).in_bucket);
  EXPECT_TRUE(t.gradient(0, 0, 1).in_bucket);
}

Node refused(std::uint32_t parameter, std::uint32_t key, std::vector<Input> inputs = {}) {
  Node made = use(parameter, key, std::move(inputs));
  made.requires_grad = true;
  return made;
}

TEST(ModelP16, TheRankRaisesAndItsPeersFail) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic, Mode::kStatic}) {
    const Case t =
        Case(2, mode, 2).step({graph({refused(0, 1), use(1, 2, {{}})}), uses({0, 1})}).run();
    EXPECT_EQ(t.at(0, 0).outcome, Outcome::kOwnError);
    EXPECT_EQ(t.at(0, 0).error, Error::kRequiresGrad);
    EXPECT_EQ(t.at(0, 0).parameters, (Indices{0}));
    EXPECT_EQ(t.at(0, 1).outcome, Outcome::kPeerError);
  }
}

TEST(ModelP16, WhatIsAccumulatedIsRefusedInTheSyncedPassUnlessItWasZeroed) {
  const auto run = [](ZeroGrad zero_grad) {
    return Case(2, Mode::kPlain, 1)
        .step({graph({refused(0, 1)})}, PassKind::kNoSync)
        .step({uses({0})}, PassKind::kSynced, zero_grad)
        .run();
  };
  EXPECT_FALSE(run(ZeroGrad::kUndefine).expectation.steps[1].any_error);
  EXPECT_FALSE(run(ZeroGrad::kFill).expectation.steps[1].any_error);
  const Case kept = run(ZeroGrad::kKeep);
  EXPECT_EQ(kept.at(1, 0).error, Error::kRequiresGrad);
  EXPECT_EQ(kept.at(0, 0).error, Error::kNone);
}

TEST(ModelP16, ThePassThatReachesItRaisesAndNoOther) {
  // The first backward reaches parameter 1 alone.
  const RankPass two = with_backwards(graph({refused(0, 1), use(1, 2)}, {{0, 0}, {1, 0}}),
                                      {Backward{{0}}, Backward{{1}}});
  EXPECT_EQ(Case(2, Mode::kPlain, 2).step({two}).run().at(0, 0).error_call, 1U);
  // In dynamic mode parameter 0 counts as unused in the first call: its gradient is not there yet.
  const Case dynamic = Case(2, Mode::kDynamic, 2).step({two}).run();
  EXPECT_EQ(dynamic.at(0, 0).error, Error::kSecondBackward);
}

TEST(ModelP16, AParameterThatIsReadyTwiceMayRaiseEither) {
  const RankPass both = graph({refused(0, 1), checkpoint({use(0, 2)}, {{0, 0}})});
  const Case t = Case(2, Mode::kPlain, 1).step({both}).run();
  EXPECT_EQ(t.at(0, 0).error, Error::kReadyTwice);
  EXPECT_EQ(t.at(0, 0).requiring, (Indices{0}));
}

}  // namespace
}  // namespace lockstep::reference
