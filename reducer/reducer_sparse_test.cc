// Sparse gradients (S1), and gradients that are refused (P16).
#include <gtest/gtest.h>

#include "reducer/hooks/builtin_hooks.h"
#include "reducer/tensor/sparse.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

struct Entry {
  std::int64_t row;
  double value;
  bool operator==(const Entry&) const = default;
};
using Entries = std::vector<Entry>;

void PrintTo(const Entry& entry, std::ostream* out) { *out << entry.row << ": " << entry.value; }

const ParameterSpec kTable{DType::kFloat32, Shape::row_major({6}), true, 0,
                           Parameter::Gradients::kSparse};

Tensor sparse(TestRank& rank, const Entries& entries) {
  std::vector<std::int64_t> rows;
  for (const Entry& entry : entries) rows.push_back(entry.row);
  Tensor made = *empty_sparse(rank.devices[0], DType::kFloat32, kTable.shape, rows);
  for (std::size_t i = 0; i < entries.size(); ++i)
    set_element(DType::kFloat32, made.data(), i, entries[i].value);
  return made;
}

Entries entries_of(const Tensor& tensor) {
  Entries out;
  const Values values = values_of(tensor);
  for (std::size_t i = 0; i < values.size(); ++i) out.push_back({tensor.rows()[i], values[i]});
  return out;
}

// Runs a backward that sends these entries to `p`, or no gradient at all if there are none.
Status look_up(TestRank& rank, const Ref<Parameter>& p, const std::optional<Entries>& entries) {
  const Ref<Node> use = rank.node({{p, 0}}, [&](auto, auto out, const auto&) {
    if (entries) out[0] = sparse(rank, *entries);
    return Status();
  });
  return rank.backward(rank.forward({{use, 0}}), 1);
}

// Runs one synced pass over a table on as many ranks as there are lists, and returns the resulting
// entries of each rank.
std::vector<Entries> reduced(const std::vector<std::optional<Entries>>& given,
                             const std::function<ReducerOptions()>& make_options) {
  const auto ranks = static_cast<int>(given.size());
  const auto memberships = local_memberships(ranks);
  std::vector<Entries> out(given.size());
  on_ranks(ranks, [&](int r) {
    const auto at = static_cast<std::size_t>(r);
    TestRank rank;
    const auto p = rank.add("p", kTable);
    ASSERT_TRUE(rank.create(memberships[at], make_options()).ok());
    const Status status = look_up(rank, p, given[at]);
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(p->grad().defined());
    EXPECT_FALSE(p->used());
    out[at] = entries_of(p->grad());
  });
  return out;
}

ReducerOptions plain() { return quick_options(false); }
ReducerOptions dynamic() { return quick_options(true); }

TEST(ReducerSparse, S1RowsOfAllRanksAreScaledAndAddedInRankOrder) {
  const double k = factor_of(DType::kFloat32, 3);
  const auto scaled = [k](double x) { return rounded(DType::kFloat32, x * k); };
  const auto sum = [](double a, double b) { return rounded(DType::kFloat32, a + b); };
  // Row 4 appears twice on rank 0, on every rank, and in another order; rank 2 has fewer entries.
  const auto out = reduced(
      {Entries{{4, 1e8}, {1, 5}, {4, 1}}, Entries{{0, 7}, {4, -1e8}}, Entries{{4, 3}}}, plain);
  const double all = sum(sum(scaled(sum(1e8, 1)), scaled(-1e8)), scaled(3));
  const Entries expected{{0, scaled(7)}, {1, scaled(5)}, {4, all}};
  for (const Entries& each : out) EXPECT_EQ(each, expected);
}

TEST(ReducerSparse, S1ARankMayHaveNoRowsOrNoGradient) {
  for (const auto& options : {plain, dynamic}) {
    const auto out = reduced({Entries{}, Entries{{2, 6}}, std::nullopt}, options);
    const double third = rounded(DType::kFloat32, 6 * factor_of(DType::kFloat32, 3));
    for (const Entries& each : out) EXPECT_EQ(each, (Entries{{2, third}}));
  }
}

TEST(ReducerSparse, S1NobodyMayHaveRows) {
  for (const Entries& each : reduced({Entries{}, Entries{}}, dynamic)) EXPECT_TRUE(each.empty());
  // The gradient is zeros (G8).
  for (const Entries& each : reduced({std::nullopt, std::nullopt}, plain))
    EXPECT_TRUE(each.empty());
}

class ReducerTable : public ReducerTest {
 protected:
  Status step(const Entries& entries) { return look_up(rank_, table_, entries); }
  void expect(const Entries& entries) { EXPECT_EQ(entries_of(table_->grad()), entries); }
  std::vector<Op> ops() const {
    std::vector<Op> out;
    for (const Started& each : group_->started) out.push_back(each.collective.op);
    return out;
  }

  Ref<Parameter> table_ = rank_.add("table", kTable);
};

// The peers of a ScriptedGroup send the same as this rank.
TEST_F(ReducerTable, S1EntriesAccumulateUnderNoSyncAndAreReducedOnce) {
  rank_.parameters = {table_};
  create(false);
  {
    const DataParallel::NoSync guard(parallel());
    ASSERT_TRUE(step({{1, 2}, {1, 4}}).ok());
    ASSERT_TRUE(step({{0, 8}}).ok());
  }
  expect({{1, 2}, {1, 4}, {0, 8}});
  const std::size_t before = group_->started.size();
  ASSERT_TRUE(step({{1, 16}}).ok());
  expect({{0, 8}, {1, 22}});
  // The collectives are the numbers of rows, the row numbers, and the values.
  EXPECT_EQ(group_->started.size(), before + 3);
  ASSERT_TRUE(step({{1, 1}}).ok());  // This pass adds to the result.
  expect({{0, 8}, {1, 23}});
}

// A group that has failed refuses the numbers of rows, and says what failed first. A usage map has
// no bucket; a failure that names no collective is about the one that was refused.
TEST_F(ReducerTable, F2AFailureOfAUsageMapIsNotAboutTheBucketThatIsRefused) {
  for (const bool is_of_usage_map : {true, false}) {
    rank_.parameters = {table_};
    create(true);
    Failure failure;
    failure.code = Code::kMismatch;
    failure.rank = failure.reported_by = 0;
    failure.pass = 0;
    if (is_of_usage_map) {
      failure.collective = "all_reduce";
      failure.sequence = 7;
      failure.reducer_id = 0;
    }
    group_->refusal = failure;
    const Status status = step({{1, 2}});
    ASSERT_EQ(status.code(), Code::kMismatch) << status.to_string();
    EXPECT_EQ(status.failure().bucket, is_of_usage_map ? kNone : 0);
    EXPECT_EQ(status.failure().parameters.empty(), is_of_usage_map);
    EXPECT_EQ(status.failure().sequence, is_of_usage_map ? 7 : kNone);
  }
}

TEST_F(ReducerTable, S1ZeroGradLeavesNoEntryAndTheStorage) {
  rank_.parameters = {table_};
  create(true);
  ASSERT_TRUE(step({{3, 2}}).ok());
  const Ref<Storage> storage = table_->grad().storage();
  table_->fill_grad_with_zeros();
  expect({});
  EXPECT_EQ(table_->grad().storage(), storage);
  EXPECT_FALSE(table_->used());
  ASSERT_TRUE(step({{5, 4}}).ok());
  expect({{5, 4}});
}

TEST_F(ReducerTable, G5ATableThatNobodyUsedKeepsItsEntries) {
  rank_.parameters = {table_, p_};
  create(true);
  table_->set_grad(sparse(rank_, {{2, 5}, {2, 6}}));
  const Ref<Storage> storage = table_->grad().storage();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 3).ok());
  expect({{2, 5}, {2, 6}});
  EXPECT_EQ(table_->grad().storage(), storage);
  EXPECT_EQ(first(p_), 3);
}

TEST_F(ReducerTable, B1T2ATableHasABucketOfItsOwnAndSendsItsRowsLast) {
  rank_.parameters = {p_, table_, q_};
  ReducerOptions options = quick_options(true, {1 << 20});
  options.gradient_as_bucket_view = true;
  ASSERT_TRUE(rank_.create(membership(), std::move(options)).ok());
  const Layout& layout = parallel().reducer().layout();
  ASSERT_EQ(layout.buckets.size(), 2U);
  EXPECT_TRUE(layout.buckets[0].sparse);
  EXPECT_EQ(layout.buckets[1].members.size(), 2U);  // p and q share one bucket.
  group_->started.clear();
  const Ref<Node> use = rank_.node({{table_, 0}, {p_, 0}, {q_, 0}}, [&](auto in, auto out, auto&) {
    out[0] = sparse(rank_, {{1, 2}});
    out[1] = out[2] = in[0];
    return Status();
  });
  ASSERT_TRUE(rank_.backward(rank_.forward({{use, 0}}), 4).ok());
  EXPECT_EQ(ops(), (std::vector<Op>{Op::kAllGather, Op::kAllReduceSum, Op::kAllReduceSum,
                                    Op::kAllGather, Op::kAllGather}));
  expect({{1, 2}});
  EXPECT_EQ(first(p_), 4);
  // Both are views of one bucket (B7), and the table lies elsewhere.
  EXPECT_EQ(p_->grad().storage(), q_->grad().storage());
  EXPECT_FALSE(table_->grad().storage() == p_->grad().storage());
}

TEST_F(ReducerTable, S4ATableGoesByNoHook) {
  rank_.parameters = {table_, p_};
  ReducerOptions options = quick_options(true);
  options.hook = make_fp16_compress_hook();
  ASSERT_TRUE(rank_.create(membership(), std::move(options)).ok());
  const double fine = 1 + 1.0 / 4096;  // This is not a float16.
  ASSERT_TRUE(step({{1, fine}}).ok());
  expect({{1, fine}});
}

TEST_F(ReducerTable, S1ADenseGradientOfATableIsRefusedAndAnyOtherWayRound) {
  rank_.parameters = {table_, p_};
  create(true);
  const Ref<Node> dense = rank_.node({{table_, 0}}, [&](auto, auto out, const auto&) {
    out[0] = rank_.tensor({1, 2, 3, 4, 5, 6});
    return Status();
  });
  Status status = rank_.backward(rank_.forward({{dense, 0}}), 1);
  ASSERT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.failure().parameters, std::vector<std::string>{"table"});
  const Ref<Node> wrong = rank_.node({{p_, 0}}, [&](auto, auto out, const auto&) {
    out[0] = sparse(rank_, {{1, 1}});
    return Status();
  });
  ASSERT_TRUE(parallel().reset(membership()).ok());
  status = rank_.backward(rank_.forward({{wrong, 0}}), 1);
  ASSERT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.failure().parameters, std::vector<std::string>{"p"});
  EXPECT_NE(status.to_string().find("sparse"), std::string::npos);
}

TEST_F(ReducerTable, S1ARowThatTheTableDoesNotHaveIsRefused) {
  rank_.parameters = {table_};
  create(false);
  const Status status = step({{6, 1}});
  ASSERT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_FALSE(table_->grad().defined());
}

TEST_F(ReducerTable, S1SparseAndDenseGradientsThatMeetAtANodeAreAnError) {
  const Ref<Node> meeting = rank_.fan({});
  const Ref<Node> a = rank_.node({{meeting, 0}}, [&](auto, auto out, const auto&) {
    out[0] = sparse(rank_, {{1, 1}});
    return Status();
  });
  const Ref<Node> b = rank_.fan({{meeting, 0}});
  const std::vector<Edge> roots{{a, 0}, {b, 0}};
  EXPECT_EQ(rank_.backward(roots, 1).code(), Code::kInvalidArgument);
}

// A peer may send anything.
class SparseSumPeers : public ::testing::Test {
 protected:
  using Numbers = std::vector<std::int64_t>;
  // This rank, the first of two, has row 1. The peer sends its number of rows, and then the row
  // numbers. Returns the error, if there is one.
  Status received(std::int64_t count, const Numbers& numbers) {
    TestRank rank;
    const auto p = rank.add("p", kTable);
    SparseSum sum(*p);
    EXPECT_TRUE(sum.take(sparse(rank, {{1, 2}}), 1).ok());
    const ScriptedGroup group(2);
    const Collective counts = sum.count(group);
    const Numbers told{1, count};
    std::memcpy(counts.gathered, told.data(), sizeof(std::int64_t) * told.size());
    const auto rows = sum.prepare();
    if (!rows) return rows.error();
    Numbers all((*rows)[0].count / sizeof(std::int64_t), -1);
    all[0] = 1;
    all.insert(all.end(), numbers.begin(), numbers.end());
    std::memcpy((*rows)[0].gathered, all.data(), sizeof(std::int64_t) * all.size());
    const std::size_t bytes = (*rows)[1].count * size_of((*rows)[1].dtype);
    std::memset((*rows)[1].gathered, 0, 2 * bytes);
    const auto made = sum.sum();
    return made ? Status() : made.error();
  }
};

TEST_F(SparseSumPeers, F3WhatIsAListOfRowsIsTaken) {
  EXPECT_TRUE(received(1, {5}).ok());
  EXPECT_TRUE(received(0, {-1}).ok());
  EXPECT_TRUE(received(3, {0, 1, 5}).ok());
}

TEST_F(SparseSumPeers, F3WhatIsNoneIsCorruptedAndSuspectsItsSender) {
  for (const std::int64_t count : {std::int64_t{-1}, std::int64_t{7}, std::int64_t{1} << 60})
    EXPECT_EQ(received(count, {}).code(), Code::kCorrupted) << count;
  const std::pair<std::int64_t, Numbers> wrong[] = {{1, {6}},    {1, {-2}},   {1, {-1}},
                                                    {2, {3, 3}}, {2, {4, 3}}, {2, {-1, 3}},
                                                    {0, {3}},    {2, {0, -1}}};
  for (const auto& [count, numbers] : wrong) {
    const Status status = received(count, numbers);
    ASSERT_EQ(status.code(), Code::kCorrupted) << ::testing::PrintToString(numbers);
    EXPECT_EQ(status.failure().suspect, 1);
    EXPECT_EQ(status.failure().rank, 0);
  }
}

// Rows may have no elements, so a table may have more rows than any memory has bytes.
TEST(SparseSumSizes, B5MoreRowsThanAnyMemoryHoldsAreOutOfMemory) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  TestRank rank;
  const auto p = rank.add(
      "p", {DType::kFloat32, Shape::row_major({kMost, 0}), true, 0, Parameter::Gradients::kSparse});
  const ScriptedGroup group(4);
  // The numbers of all rows wrap around to none, and their bytes to few.
  for (const std::int64_t count : {kMost, kMost / 8}) {
    SparseSum sum(*p);
    ASSERT_TRUE(sum.take(Tensor(), 1).ok());
    const Collective counts = sum.count(group);
    const std::vector<std::int64_t> told{0, count, 0, 0};
    std::memcpy(counts.gathered, told.data(), sizeof(std::int64_t) * told.size());
    const auto rows = sum.prepare();
    ASSERT_FALSE(rows.has_value());
    EXPECT_EQ(rows.error().code(), Code::kOutOfMemory) << rows.error().to_string();
  }
}

class ReducerRequiresGrad : public ReducerTest {
 protected:
  // Runs a pass over p and q, in which the gradient of p requires a gradient itself.
  Status pass(bool requires_grad) {
    const Ref<Node> use = rank_.node({{p_, 0}, {q_, 0}}, [&](auto in, auto out, const auto&) {
      out[0] = rank_.tensor(values_of(in[0]));
      out[0].set_requires_grad(requires_grad);
      out[1] = in[0];
      return Status();
    });
    return rank_.backward(rank_.forward({{use, 0}}), 2);
  }
};

TEST_F(ReducerRequiresGrad, P16IsRefusedWithTheParametersName) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    const Status status = pass(true);
    ASSERT_EQ(status.code(), Code::kRequiresGrad);
    EXPECT_EQ(status.failure().parameters, std::vector<std::string>{"p"});
    EXPECT_EQ(status.failure().pass, 0);
    EXPECT_EQ(status.failure().rank, 0);
    EXPECT_TRUE(status.failure().definite);
    EXPECT_NE(status.failure().bucket, kNone);
    EXPECT_EQ(first(p_), 2);  // It has not changed.
    ASSERT_TRUE(parallel().reset(membership()).ok());
    rank_.undefine_grads();
    EXPECT_TRUE(pass(false).ok());
    EXPECT_EQ(first(p_), 2);
    rank_.undefine_grads();
  }
}

TEST_F(ReducerRequiresGrad, P16WhatWasAccumulatedCountsUntilItIsZeroed) {
  create(false);
  const auto accumulate = [&] {
    const DataParallel::NoSync guard(parallel());
    ASSERT_TRUE(pass(true).ok());
    EXPECT_TRUE(p_->grad().requires_grad());
    ASSERT_TRUE(pass(false).ok());
    EXPECT_TRUE(p_->grad().requires_grad());
  };
  accumulate();
  EXPECT_EQ(pass(false).code(), Code::kRequiresGrad);
  ASSERT_TRUE(parallel().reset(membership()).ok());
  p_->fill_grad_with_zeros();
  EXPECT_TRUE(pass(false).ok());
  accumulate();
  rank_.undefine_grads();
  EXPECT_TRUE(pass(false).ok());
}

// A view that moves to a new bucket still requires a gradient.
TEST_F(ReducerRequiresGrad, P16ARebuildForgetsNothing) {
  ReducerOptions options = quick_options(false);
  options.rebuild_buckets = true;
  options.gradient_as_bucket_view = true;
  ASSERT_TRUE(rank_.create(membership(), std::move(options)).ok());
  ASSERT_TRUE(pass(false).ok());
  {
    const DataParallel::NoSync guard(parallel());
    ASSERT_TRUE(pass(true).ok());
  }
  EXPECT_EQ(pass(false).code(), Code::kRequiresGrad);
  EXPECT_FALSE(parallel().reducer().rebuilt_order().empty());
}

TEST_F(ReducerRequiresGrad, P16ASumRequiresAGradientIfOneOfItsTermsDoes) {
  create(false);
  const auto send = [&](bool requires_grad) {
    return rank_.node({{p_, 0}}, [&, requires_grad](auto in, auto out, const auto&) {
      out[0] = rank_.tensor(values_of(in[0]));
      out[0].set_requires_grad(requires_grad);
      return Status();
    });
  };
  const DataParallel::NoSync guard(parallel());
  ASSERT_TRUE(rank_.backward(rank_.forward({{send(false), 0}, {send(true), 0}}), 2).ok());
  EXPECT_TRUE(p_->grad().requires_grad());
  EXPECT_EQ(first(p_), 4);
}

}  // namespace
}  // namespace lockstep::testing
