// Communication hooks: S4, G4, and what F1, F2, P12, B2, B4, B7 and P17 mean for them.
#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <cmath>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>

#include "reducer/hooks/builtin_hooks.h"
#include "reducer/hooks/power_sgd_hook.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;
using Names = std::vector<std::string>;

// What a hook saw of one bucket when it was started.
struct Seen {
  int index = kNone;
  bool is_last = false;
  int ranks = 0;
  DType dtype = DType::kFloat32;
  Values flat;
  std::vector<Shape> shapes;
};

// Sums without an average, and runs the test's functions.
class TestHook final : public CommunicationHook {
 public:
  std::string name() const override { return "test"; }
  DType wire_dtype(DType dtype) const override { return wire.value_or(dtype); }

  Status start(HookBucket& bucket) override {
    Seen now{bucket.index(),        bucket.is_last(),         bucket.ranks(),
             bucket.flat().dtype(), values_of(bucket.flat()), {}};
    for (const Tensor& view : bucket.views()) now.shapes.push_back(view.shape());
    EXPECT_FALSE(inside.exchange(true)) << "two calls at a time";
    started.push_back(std::move(now));
    const std::shared_ptr<void> leave(nullptr, [this](void*) { inside = false; });
    if (on_start) LOCKSTEP_RETURN_IF_ERROR(on_start(bucket));
    return bucket.all_reduce(bucket.flat());
  }
  Result<Tensor> finish(HookBucket& bucket) override {
    finished.push_back(bucket.index());
    return on_finish ? on_finish(bucket) : bucket.flat();
  }

  std::vector<Seen> started;
  std::vector<int> finished;
  std::function<Status(HookBucket&)> on_start;
  std::function<Result<Tensor>(HookBucket&)> on_finish;
  std::optional<DType> wire;
  std::atomic<bool> inside{false};
};

// Returns the same values in new memory.
Result<Tensor> copy_of(const Tensor& tensor) {
  Result<Tensor> copy = Tensor::empty(tensor.device(), tensor.dtype(), tensor.shape());
  tensor.device().copy(tensor.device().current_stream(), tensor, *copy);
  return copy;
}

class ReducerHooks : public ReducerTest {
 protected:
  void create_with(std::shared_ptr<CommunicationHook> hook,
                   const std::function<void(ReducerOptions&)>& change = {},
                   std::vector<std::uint64_t> limits = {1}) {
    ReducerOptions options = quick_options(false, std::move(limits));
    options.hook = std::move(hook);
    if (change) change(options);
    const Status status = rank_.create(membership(), options);
    ASSERT_TRUE(status.ok()) << status.to_string();
    before_ = group_->started.size();
  }
  Status train(double value = 6) {
    rank_.undefine_grads();
    return rank_.backward(rank_.forward_of({p_, q_}), value);
  }
  // The i-th collective that was started after construction.
  const Collective& launched(std::size_t i) const {
    return group_->started.at(before_ + i).collective;
  }
  std::size_t launches() const { return group_->started.size() - before_; }

  std::shared_ptr<TestHook> hook_ = std::make_shared<TestHook>();
  std::size_t before_ = 0;
};

TEST_F(ReducerHooks, S4AHookRunsOncePerBucketInOrderAndIsToldWhichIsLast) {
  create_with(hook_);
  for (int pass = 0; pass < 3; ++pass) {
    hook_->started.clear();
    hook_->finished.clear();
    ASSERT_TRUE(train().ok());
    ASSERT_EQ(hook_->started.size(), 2u);
    for (const int b : {0, 1}) {
      const Seen& seen = hook_->started[static_cast<std::size_t>(b)];
      EXPECT_EQ(seen.index, b);
      EXPECT_EQ(seen.is_last, b == 1);
      EXPECT_EQ(seen.ranks, 2);
    }
    EXPECT_EQ(hook_->finished, (std::vector<int>{0, 1}));
  }
}

TEST_F(ReducerHooks, S4LocalBackwardsAndDroppedOutputsCallNoHook) {
  create_with(hook_);
  {
    const DataParallel::NoSync no_sync(parallel());
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
  }
  rank_.forward_of({p_, q_});
  EXPECT_TRUE(hook_->started.empty());
}

TEST_F(ReducerHooks, G4NothingIsScaledBeforeAHook) {
  for (const bool views : {false, true}) {
    hook_->started.clear();
    create_with(hook_, [&](ReducerOptions& o) { o.gradient_as_bucket_view = views; });
    for (int pass = 0; pass < 2; ++pass) {
      ASSERT_TRUE(train(6).ok());
      // This is the sum, because nobody took the average.
      EXPECT_EQ(values_of(p_->grad()), (Values{12, 14}));
    }
    for (const Seen& seen : hook_->started) EXPECT_EQ(seen.flat, (Values{6, 7}));
  }
}

TEST_F(ReducerHooks, S4ViewsHaveTheParametersStridesAndTheFlatBufferThePadding) {
  TestRank rank;
  rank.add("a", {DType::kFloat32, Shape::column_major(std::vector<std::int64_t>{2, 3})});
  rank.add("b", {DType::kFloat32, Shape::row_major({1})});
  ReducerOptions options = quick_options(false, {1024});
  options.hook = hook_;
  ASSERT_TRUE(rank.create(membership(), options).ok());
  Tensor gradient = *Tensor::empty(rank.devices[0], DType::kFloat32, Shape::row_major({2, 3}));
  for (std::size_t i = 0; i < 6; ++i)
    set_element(DType::kFloat32, gradient.data(), i, static_cast<double>(i));
  const std::vector<Tensor> gradients{gradient, rank.tensor({9})};
  ASSERT_TRUE(rank.engine.backward(rank.forward_of(rank.parameters), gradients, false).ok());
  ASSERT_EQ(hook_->started.size(), 1u);
  const Seen& seen = hook_->started[0];
  ASSERT_EQ(seen.shapes.size(), 2u);
  EXPECT_TRUE(seen.shapes[0].same_strides(rank.parameters[0]->shape()));
  EXPECT_EQ(seen.flat.size(), 17u);  // 6 elements, padding to the next 64 bytes, and 1 element.
  EXPECT_EQ(Values(seen.flat.begin(), seen.flat.begin() + 7), (Values{0, 3, 1, 4, 2, 5, 0}));
  EXPECT_EQ(seen.flat[16], 9);
}

TEST_F(ReducerHooks, S4AllReduceGivesTheBitsOfNoHook) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    std::vector<std::vector<Values>> bits;
    for (const bool hooked : {false, true}) {
      std::vector<Values> results(3);
      const auto memberships = local_memberships(3);
      on_ranks(3, [&](int r) {
        TestRank rank;
        rank.add("p", {dtype});
        ReducerOptions options = quick_options(false);
        if (hooked) options.hook = make_all_reduce_hook();
        ASSERT_TRUE(rank.create(memberships[static_cast<std::size_t>(r)], options).ok());
        const std::vector<Tensor> gradients{rank.tensor({0.1 + r, 1e-7 * (r + 1)}, dtype)};
        const auto outputs = rank.forward_of(rank.parameters);
        ASSERT_TRUE(rank.engine.backward(outputs, gradients, false).ok());
        results[static_cast<std::size_t>(r)] = values_of(rank.parameters[0]->grad());
      });
      bits.push_back(results);
    }
    EXPECT_EQ(bits[0], bits[1]) << name_of(dtype);
  }
}

// Counts the bytes that a pass gives to the process group.
TEST_F(ReducerHooks, S4CompressionHalvesWhatIsHandedToTheGroup) {
  const auto bytes_of = [this](std::shared_ptr<CommunicationHook> hook) {
    create_with(std::move(hook));
    EXPECT_TRUE(train(6).ok());
    std::uint64_t bytes = 0;
    for (const auto& each : group_->started)
      if (each.collective.bucket != kNone)
        bytes += each.collective.count * size_of(each.collective.dtype);
    return bytes;
  };
  const std::uint64_t full = bytes_of(nullptr);
  EXPECT_EQ(full, 2u * 2u * 4u);  // There are two buckets of two elements.
  EXPECT_EQ(bytes_of(make_all_reduce_hook()), full);
  EXPECT_EQ(2 * bytes_of(make_fp16_compress_hook()), full);
  EXPECT_EQ(2 * bytes_of(make_bf16_compress_hook()), full);
}

TEST_F(ReducerHooks, S4CompressionHalvesTheBytesOnTheWire) {
  for (const bool is_half : {true, false}) {
    create_with(is_half ? make_fp16_compress_hook() : make_bf16_compress_hook());
    ASSERT_TRUE(train(6).ok());
    ASSERT_EQ(launches(), 2u);
    std::uint64_t bytes = 0;
    for (const TraceEntry& entry : parallel().reducer().trace().entries()) bytes += entry.bytes();
    EXPECT_EQ(bytes, 2u * 2u * 2u);  // There are two buckets of two elements.
    for (const std::size_t i : {0u, 1u}) {
      EXPECT_EQ(launched(i).dtype, is_half ? DType::kFloat16 : DType::kBFloat16);
      EXPECT_EQ(launched(i).count, 2u);
    }
    EXPECT_EQ(p_->grad().dtype(), DType::kFloat32);
    EXPECT_EQ(values_of(p_->grad()), (Values{6, 7}));
  }
}

// Returns what one of `size` ranks with equal gradients receives for `value`.
double compressed(std::shared_ptr<CommunicationHook> hook, DType dtype, double value, int size,
                  DType* wire = nullptr) {
  TestRank rank;
  rank.add("p", {dtype, Shape::row_major({1})});
  ReducerOptions options = quick_options(false);
  options.hook = std::move(hook);
  const auto group = std::make_shared<ScriptedGroup>(size);
  EXPECT_TRUE(rank.create({group, std::make_shared<HashStore>()}, options).ok());
  const std::vector<Tensor> gradients{rank.tensor({value}, dtype)};
  EXPECT_TRUE(rank.engine.backward(rank.forward_of(rank.parameters), gradients, false).ok());
  if (wire) *wire = group->started.back().collective.dtype;
  return values_of(rank.parameters[0]->grad())[0];
}

TEST(ReducerHookValues, S4CompressionScalesBeforeTheSumAndRoundsOnce) {
  // The mean of 65504 is representable, the sum is not.
  EXPECT_EQ(compressed(make_fp16_compress_hook(), DType::kFloat32, 65504, 2), 65504);
  EXPECT_EQ(compressed(make_fp16_compress_hook(), DType::kFloat32, 2 * 65504.0, 2), INFINITY);
  // A tie to even, and a float64 next to the tie, which a conversion through float would mistake
  // for it.
  EXPECT_EQ(compressed(make_fp16_compress_hook(), DType::kFloat64, 1 + 0x1p-11, 1), 1);
  EXPECT_EQ(compressed(make_fp16_compress_hook(), DType::kFloat64, 1 + 0x1p-11 + 0x1p-40, 1),
            1 + 0x1p-10);
  EXPECT_EQ(compressed(make_bf16_compress_hook(), DType::kFloat64, -1 - 0x1p-8 - 0x1p-50, 1),
            -1 - 0x1p-7);
  EXPECT_EQ(compressed(make_bf16_compress_hook(), DType::kFloat64, 1e300, 1), INFINITY);
  EXPECT_EQ(compressed(make_bf16_compress_hook(), DType::kFloat64, -1e-300, 1), 0);
  EXPECT_TRUE(std::isnan(compressed(make_fp16_compress_hook(), DType::kFloat32, NAN, 2)));
}

TEST(ReducerHookValues, S4SixteenBitBucketsTravelAsTheyAre) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    DType wire = DType::kByte;
    EXPECT_EQ(compressed(make_fp16_compress_hook(), dtype, 6, 2, &wire), 6);
    EXPECT_EQ(wire, dtype);
    EXPECT_EQ(compressed(make_bf16_compress_hook(), dtype, 6, 2, &wire), 6);
    EXPECT_EQ(wire, dtype);
  }
}

// pytorch#43307: the result became the bucket, and later passes wrote to the wrong memory.
TEST_F(ReducerHooks, S4AResultInOtherStorageDoesNotBreakLaterPasses) {
  hook_->on_finish = [](HookBucket& bucket) { return copy_of(bucket.flat()); };
  for (const bool views : {false, true}) {
    create_with(hook_, [&](ReducerOptions& o) { o.gradient_as_bucket_view = views; }, {1024});
    Ref<Storage> storage;
    for (const double value : {1.0, 5.0, 3.0, 8.0}) {
      ASSERT_TRUE(train(value).ok());
      EXPECT_EQ(first(p_), 2 * value);
      EXPECT_EQ(first(q_), 2 * value);
      if (!views) continue;
      // Both gradients are views of one bucket (B7).
      EXPECT_EQ(p_->grad().storage(), q_->grad().storage());
      EXPECT_TRUE(!storage || p_->grad().storage() == storage);
      storage = p_->grad().storage();
    }
  }
}

TEST_F(ReducerHooks, B2AfterARebuildIndexAndViewsAreThoseOfTheNewBuckets) {
  hook_->on_finish = [](HookBucket& bucket) { return copy_of(bucket.flat()); };
  for (const auto& compressing : {false, true}) {
    hook_->started.clear();
    const auto rebuild = [](ReducerOptions& o) {
      o.rebuild_buckets = true;
      o.gradient_as_bucket_view = true;
    };
    TestRank rank;
    rank.add("small", {DType::kFloat32, Shape::row_major({1})});
    rank.add("large", {DType::kFloat32, Shape::row_major({5})});
    ReducerOptions options = quick_options(false);
    rebuild(options);
    options.hook = compressing ? make_fp16_compress_hook() : hook_;
    ASSERT_TRUE(rank.create(membership(), options).ok());
    for (int pass = 0; pass < 4; ++pass) {
      rank.undefine_grads();
      const std::vector<Tensor> gradients{rank.tensor({4}), rank.tensor({1, 2, 3, 4, 5})};
      // The node of "small" is created last, so its gradient is ready first.
      const auto large = rank.fan({{rank.parameters[1], 0}});
      const auto small = rank.fan({{rank.parameters[0], 0}});
      ASSERT_TRUE(
          rank.engine.backward(rank.forward({{small, 0}, {large, 0}}), gradients, false).ok());
      const double sum = compressing ? 1 : 2;
      EXPECT_EQ(values_of(rank.parameters[0]->grad()), (Values{4 * sum}));
      EXPECT_EQ(values_of(rank.parameters[1]->grad())[4], 5 * sum);
    }
    if (compressing) continue;
    ASSERT_EQ(hook_->started.size(), 8u);
    const std::vector<std::size_t> order = rank.parallel->reducer().rebuilt_order();
    ASSERT_EQ(order.size(), 2u);
    for (std::size_t i = 2; i < 8; ++i) {
      const Seen& seen = hook_->started[i];
      EXPECT_EQ(seen.index, static_cast<int>(i % 2));
      EXPECT_EQ(seen.is_last, i % 2 == 1);
      EXPECT_EQ(seen.flat.size(), order[i % 2] == 0 ? 1u : 5u);
    }
  }
}

// A matrix of 6 rows and 7 columns; the values depend on the pass.
Tensor matrix_for(TestRank& rank, int pass) {
  Values values;
  for (int e = 0; e < 42; ++e) values.push_back((e * (pass + 3)) % 11 - 5);
  Tensor flat = rank.tensor(values);
  return Tensor(flat.storage(), 0, DType::kFloat32, Shape::row_major({6, 7}));
}

class PowerSgd : public ReducerHooks {
 protected:
  void create_power_sgd(int rank, bool rebuild = false) {
    create_with(make_power_sgd_hook({rank, 1}), [&](ReducerOptions& options) {
      options.bucket_limits = {1u << 20};
      options.rebuild_buckets = rebuild;
    });
  }
  Status train_matrix(int pass) {
    rank_.undefine_grads();
    const std::vector<Ref<Parameter>> all = {p_, q_, matrix_};
    const std::vector<Edge> outputs = rank_.forward_of(all);
    const std::vector<Tensor> gradients = {rank_.tensor({1, 2}), rank_.tensor({3, 4}),
                                           matrix_for(rank_, pass)};
    return rank_.engine.backward(outputs, gradients, false);
  }
  std::size_t layout_size() { return parallel().reducer().layout().buckets.size(); }
  Ref<Parameter> matrix_ = rank_.add("m", {DType::kFloat32, Shape::row_major({6, 7})});
};

TEST_F(PowerSgd, S4TwoSmallSumsTakeThePlaceOfTheBuckets) {
  create_power_sgd(2);
  ASSERT_TRUE(train_matrix(0).ok());
  ASSERT_EQ(launches(), 2u);
  EXPECT_EQ(launched(0).count, 2u + 2 + 6 * 2);  // p and q uncompressed, and P.
  EXPECT_EQ(launched(1).count, 7u * 2);          // This is Q.
  // Both ranks have the same gradients, so the average equals each of them.
  EXPECT_EQ(values_of(p_->grad()), (Values{1, 2}));
  EXPECT_EQ(values_of(q_->grad()), (Values{3, 4}));
}

TEST_F(PowerSgd, S4WhatDoesNotPayTravelsAsItIs) {
  create_power_sgd(6);  // This needs 6 * (6 + 7) elements in place of 42.
  ASSERT_TRUE(train_matrix(0).ok());
  ASSERT_EQ(launches(), 1u);
  EXPECT_EQ(values_of(matrix_->grad()), values_of(matrix_for(rank_, 0)));
}

TEST_F(PowerSgd, S4EqualGradientsArriveInTheLongRun) {
  create_power_sgd(1);
  Values total(42, 0.0);
  constexpr int kPasses = 64;
  for (int pass = 0; pass < kPasses; ++pass) {
    ASSERT_TRUE(train_matrix(0).ok());
    const Values got = values_of(matrix_->grad());
    for (std::size_t e = 0; e < 42; ++e) total[e] += got[e] / kPasses;
  }
  const Values wanted = values_of(matrix_for(rank_, 0));
  for (std::size_t e = 0; e < 42; ++e) EXPECT_NEAR(total[e], wanted[e], 1) << e;
}

TEST_F(PowerSgd, B2StateSurvivesARebuild) {
  std::vector<Values> results[2];
  for (const bool rebuild : {false, true}) {
    create_power_sgd(1, rebuild);
    for (int pass = 0; pass < 4; ++pass) {
      ASSERT_TRUE(train_matrix(pass).ok());
      results[rebuild].push_back(values_of(matrix_->grad()));
    }
    rank_.parallel.reset();
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(PowerSgd, B2StateFollowsTheMatrixToAnotherBucket) {
  std::vector<Values> results[2];
  for (const bool rebuild : {false, true}) {
    create_with(make_power_sgd_hook({1, 1}),
                [&](ReducerOptions& options) { options.rebuild_buckets = rebuild; });
    const auto bucket_of_matrix = [&] {
      const Layout& layout = parallel().reducer().layout();
      std::size_t b = 0;
      while (layout.buckets[b].members[0].parameter != 2) ++b;
      return b;
    };
    EXPECT_EQ(layout_size(), 3u);
    EXPECT_EQ(bucket_of_matrix(), 0u);
    for (int pass = 0; pass < 4; ++pass) {
      rank_.undefine_grads();
      // The node that is created last runs first, so the matrix is ready last.
      const Ref<Node> matrix = rank_.fan({{matrix_, 0}});
      const Ref<Node> q = rank_.fan({{q_, 0}});
      const Ref<Node> p = rank_.fan({{p_, 0}});
      const std::vector<Edge> outputs = rank_.forward({{matrix, 0}, {q, 0}, {p, 0}});
      const std::vector<Tensor> gradients = {matrix_for(rank_, pass), rank_.tensor({3, 4}),
                                             rank_.tensor({1, 2})};
      ASSERT_TRUE(rank_.engine.backward(outputs, gradients, false).ok());
      results[rebuild].push_back(values_of(matrix_->grad()));
    }
    EXPECT_EQ(parallel().reducer().rebuilt_order(),
              rebuild ? (std::vector<std::size_t>{0, 1, 2}) : std::vector<std::size_t>{});
    EXPECT_EQ(bucket_of_matrix(), rebuild ? 2u : 0u);
    rank_.parallel.reset();
  }
  EXPECT_EQ(results[0], results[1]);
}

// The first gradient has rank 1, so nothing of it is lost, and Q points along its row. Of the
// second gradient only that row passes then. With the columns that a first pass starts from, the
// other row passes as well.
TEST_F(PowerSgd, S4QOfAPassIsWhatTheNextOneBeginsWith) {
  constexpr std::size_t kOne = 0 * 7 + 1;
  constexpr std::size_t kOther = 3 * 7 + 4;
  const auto train = [this](double other) {
    rank_.undefine_grads();
    Values values(42, 0.0);
    values[kOne] = 2;
    values[kOther] = other;
    const Tensor flat = rank_.tensor(values);
    const std::vector<Tensor> gradients = {
        rank_.tensor({1, 2}), rank_.tensor({3, 4}),
        Tensor(flat.storage(), 0, DType::kFloat32, Shape::row_major({6, 7}))};
    const std::vector<Edge> outputs = rank_.forward_of({p_, q_, matrix_});
    EXPECT_TRUE(rank_.engine.backward(outputs, gradients, false).ok());
    return values_of(matrix_->grad());
  };
  Values wanted(42, 0.0);
  wanted[kOne] = 2;
  create_power_sgd(1);
  EXPECT_EQ(train(0), wanted);
  EXPECT_EQ(train(3), wanted);  // The other row is lost.
  rank_.parallel.reset();
  create_power_sgd(1);
  const Values cold = train(3);
  EXPECT_NE(cold[kOther], 0);
  EXPECT_NE(cold[kOne], 2);
}

// The application sets another rounding mode for the thread that trains. The factors P and Q, the
// error and the delivered gradient still have the same bits.
TEST_F(PowerSgd, G9FactorsAndErrorsAreTheSameWhateverTheThreadRounds) {
  const auto train = [this](int mode) {
    create_power_sgd(2);
    std::vector<Values> results;
    std::fesetround(mode);
    for (int pass = 0; pass < 3; ++pass) {
      EXPECT_TRUE(train_matrix(pass).ok());
      results.push_back(values_of(matrix_->grad()));
    }
    std::fesetround(FE_TONEAREST);
    rank_.parallel.reset();
    return results;
  };
  const std::vector<Values> expected = train(FE_TONEAREST);
  EXPECT_NE(expected[0], expected[1]);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) EXPECT_EQ(train(mode), expected);
}

TEST_F(PowerSgd, F4AResetForgetsErrorsAndFactors) {
  create_power_sgd(1);
  ASSERT_TRUE(train_matrix(0).ok());
  const Values first = values_of(matrix_->grad());
  ASSERT_TRUE(train_matrix(0).ok());
  EXPECT_NE(values_of(matrix_->grad()), first);
  ASSERT_TRUE(parallel().reset(membership()).ok());
  ASSERT_TRUE(train_matrix(0).ok());
  EXPECT_EQ(values_of(matrix_->grad()), first);
}

TEST_F(ReducerHooks, S4StaticAndDynamicModesCallTheHookAlike) {
  for (const bool is_static : {false, true}) {
    hook_->started.clear();
    create_with(hook_, [&](ReducerOptions& o) {
      o.static_graph = is_static;
      o.find_unused_parameters = !is_static;
    });
    group_->peers = [](const Collective&) {};  // The other rank contributes nothing.
    for (int pass = 0; pass < 3; ++pass) {
      rank_.undefine_grads();
      ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 6).ok());
      EXPECT_EQ(first(p_), 6);
      EXPECT_FALSE(q_->grad().defined());  // No rank used q (G5).
    }
    ASSERT_EQ(hook_->started.size(), 6u);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(hook_->started[i].index, static_cast<int>(i % 2));
  }
}

TEST(ReducerHookThreads, S4OneCallAtATimeWhenTwoWorkersCompleteBuckets) {
  for (int round = 0; round < 20; ++round) {
    const auto hook = std::make_shared<TestHook>();
    hook->on_start = [](HookBucket&) {
      std::this_thread::yield();
      return Status();
    };
    TestRank rank(1);
    for (int i = 0; i < 6; ++i)
      rank.add("p" + std::to_string(i), {DType::kFloat32, Shape::row_major({2}), true, i % 2});
    ReducerOptions options = quick_options(false);
    options.hook = hook;
    const auto group = std::make_shared<ScriptedGroup>(2);
    ASSERT_TRUE(rank.create({group, std::make_shared<HashStore>()}, options).ok());
    std::vector<Tensor> gradients;
    for (int i = 0; i < 6; ++i) gradients.push_back(rank.tensor({1, 2}, DType::kFloat32, i % 2));
    const Status status = rank.engine.backward(rank.forward_of(rank.parameters), gradients, false);
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_EQ(hook->started.size(), 6u);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(hook->started[i].index, static_cast<int>(i));
  }
}

TEST_F(ReducerHooks, T2WhatFinishStartsComesAfterTheUsageMap) {
  hook_->on_finish = [](HookBucket& bucket) -> Result<Tensor> {
    if (Status status = bucket.all_reduce(bucket.flat()); !status.ok()) return failed(status);
    if (Status status = bucket.wait(); !status.ok()) return failed(status);
    return bucket.flat();
  };
  create_with(hook_, [](ReducerOptions& o) { o.find_unused_parameters = true; });
  ASSERT_TRUE(train(1).ok());
  ASSERT_EQ(launches(), 5u);
  EXPECT_EQ(launched(2).dtype, DType::kInt32);
  EXPECT_EQ(launched(3).bucket, 0);
  EXPECT_EQ(launched(4).bucket, 1);
  EXPECT_EQ(first(p_), 4);
}

TEST_F(ReducerHooks, S4AFutureIsAwaitedBeforeFinish) {
  std::thread other;
  std::atomic<bool> completed = false;
  hook_->on_start = [&](HookBucket& bucket) {
    if (!bucket.is_last()) return Status();
    other = std::thread([&, future = bucket.future()] {
      std::this_thread::sleep_for(milliseconds(20));
      completed = true;
      future->complete(Status());
    });
    return Status();
  };
  hook_->on_finish = [&](HookBucket& bucket) -> Result<Tensor> {
    EXPECT_TRUE(completed || !bucket.is_last());
    return bucket.flat();
  };
  create_with(hook_);
  EXPECT_TRUE(train().ok());
  other.join();
}

void expect_named(const Status& status, Code code, int bucket, const Names& parameters) {
  ASSERT_EQ(status.code(), code) << status.to_string();
  EXPECT_EQ(status.failure().rank, 0);
  EXPECT_EQ(status.failure().pass, 0);
  EXPECT_EQ(status.failure().bucket, bucket);
  EXPECT_EQ(status.failure().parameters, parameters);
  EXPECT_TRUE(status.failure().definite);
  EXPECT_NE(status.to_string().find("hook test"), std::string::npos) << status.to_string();
}

TEST_F(ReducerHooks, F1_5AFutureThatIsNeverCompletedIsATimeout) {
  std::shared_ptr<Work> kept;
  hook_->on_start = [&](HookBucket& bucket) {
    if (bucket.is_last()) kept = bucket.future();
    return Status();
  };
  create_with(hook_);
  group_->limit = milliseconds(30);
  const auto broken = group_;
  expect_named(train(), Code::kTimeout, 1, {"p"});
  EXPECT_TRUE(broken->aborted);
  EXPECT_EQ(parallel().poisoned().code(), Code::kTimeout);
  kept->complete(Status());  // This is too late, and harmless.
  hook_->on_start = {};
  ASSERT_TRUE(parallel().reset(membership()).ok());
  EXPECT_TRUE(train().ok());
}

TEST_F(ReducerHooks, P12AHookThatFailsBeforeAnyCollectiveLeavesTheReducerClean) {
  for (const bool dynamic : {false, true}) {
    hook_->on_start = [](HookBucket&) -> Status { throw std::runtime_error("no memory left"); };
    create_with(hook_, [&](ReducerOptions& o) { o.find_unused_parameters = dynamic; });
    const Status status = train();
    expect_named(status, Code::kUserFailure, 0, {"q"});
    EXPECT_NE(status.to_string().find("no memory left"), std::string::npos);
    EXPECT_TRUE(parallel().poisoned().ok());
    EXPECT_FALSE(group_->aborted);
    hook_->on_start = {};
    EXPECT_TRUE(train().ok());
  }
}

TEST_F(ReducerHooks, P12AHookThatFailsAfterACollectivePoisonsUntilReset) {
  const auto fails_in_start = [this] {
    hook_->on_start = [](HookBucket& bucket) {
      return bucket.index() == 0 ? Status() : Status(Code::kInternal, "the disk is full");
    };
  };
  const auto throws_in_finish = [this] {
    hook_->on_finish = [](HookBucket& bucket) -> Result<Tensor> {
      if (bucket.index() == 1) throw 5;
      return bucket.flat();
    };
  };
  const auto returns_less = [this] {
    hook_->on_finish = [this](HookBucket& bucket) -> Result<Tensor> {
      return bucket.index() == 1 ? rank_.tensor({1}) : bucket.flat();
    };
  };
  for (const std::function<void()>& breaks :
       std::vector<std::function<void()>>{fails_in_start, throws_in_finish, returns_less}) {
    breaks();
    create_with(hook_);
    const auto broken = group_;
    expect_named(train(), Code::kUserFailure, 1, {"p"});
    EXPECT_TRUE(broken->aborted);
    EXPECT_EQ(parallel().poisoned().code(), Code::kUserFailure);
    hook_->on_start = {};
    hook_->on_finish = {};
    ASSERT_TRUE(parallel().reset(membership()).ok());
    ASSERT_TRUE(train(5).ok());
    EXPECT_EQ(first(p_), 10);
  }
}

TEST_F(ReducerHooks, F2ACollectiveOfAHookThatFailsStaysAFailureOfTheGroup) {
  create_with(hook_);
  Failure loss;
  loss.code = Code::kPeerLost;
  loss.suspect = 1;
  group_->late_failure = loss;
  const Status status = train();
  ASSERT_EQ(status.code(), Code::kPeerLost) << status.to_string();
  EXPECT_EQ(status.failure().rank, 1);
  EXPECT_EQ(status.failure().bucket, 0);
  EXPECT_EQ(status.failure().parameters, Names{"q"});
}

// As over NCCL, which does not say which peer was lost. Both peers are silent, so nobody knows.
TEST(ReducerHookRanks, F2WhereNobodyKnowsWhichPeerWasLostARankDoesNotNameItself) {
  for (const bool has_hook : {false, true}) {
    TestRank rank;
    rank.add("p", {DType::kFloat32, Shape::row_major({2})});
    ReducerOptions options = quick_options(false);
    options.failure_grace = std::chrono::milliseconds(10);
    if (has_hook) options.hook = make_all_reduce_hook();
    const auto group = std::make_shared<ScriptedGroup>(3);
    ASSERT_TRUE(rank.create({group, std::make_shared<HashStore>()}, options).ok());
    Failure loss;
    loss.code = Code::kPeerLost;
    loss.collective = "all_reduce";
    group->late_failure = loss;
    const Status status = rank.backward(rank.forward_of(rank.parameters), 1);
    ASSERT_EQ(status.code(), Code::kPeerLost) << status.to_string();
    EXPECT_EQ(status.failure().rank, kNone) << status.to_string();
    EXPECT_EQ(status.failure().suspect, kNone) << status.to_string();
  }
}

TEST(ReducerHookRanks, F2AHooksFailureIsToldOnEveryRank) {
  for (const bool in_start : {true, false}) {
    const auto memberships = local_memberships(2);
    on_ranks(2, [&](int r) {
      TestRank rank;
      rank.add("p");
      rank.add("q");
      const auto hook = std::make_shared<TestHook>();
      const auto breaks = [&](const HookBucket& bucket, bool now) {
        if (r == 1 && now && bucket.is_last()) throw std::runtime_error("rank 1 gives up");
      };
      hook->on_start = [&](HookBucket& bucket) {
        breaks(bucket, in_start);
        return Status();
      };
      hook->on_finish = [&](HookBucket& bucket) -> Result<Tensor> {
        breaks(bucket, !in_start);
        // Every rank needs every other once more, so rank 0 cannot be done.
        if (Status status = bucket.all_reduce(bucket.flat()); !status.ok()) return failed(status);
        return bucket.flat();
      };
      ReducerOptions options = quick_options(false);
      options.hook = hook;
      options.failure_grace = std::chrono::seconds(5);
      ASSERT_TRUE(rank.create(memberships[static_cast<std::size_t>(r)], options).ok());
      const Status status = rank.backward(rank.forward_of(rank.parameters), 1);
      ASSERT_EQ(status.code(), Code::kUserFailure) << status.to_string();
      EXPECT_EQ(status.failure().rank, 1);
      EXPECT_EQ(status.failure().reported_by, r);
      EXPECT_EQ(status.failure().pass, 0);
      EXPECT_EQ(status.failure().bucket, 1);
      EXPECT_EQ(status.failure().parameters, Names{"p"});
    });
  }
}

// The sum of its last bucket, which the peers wait for, begins with a future that nobody completes.
class EndlessHook final : public CommunicationHook {
 public:
  explicit EndlessHook(bool is_endless) : is_endless_(is_endless) {}
  std::string name() const override { return "endless"; }
  Status start(HookBucket& bucket) override {
    if (!is_endless_ || !bucket.is_last()) return bucket.all_reduce(bucket.flat());
    future_ = bucket.future();
    return {};
  }
  Result<Tensor> finish(HookBucket& bucket) override { return bucket.flat(); }

 private:
  const bool is_endless_;
  std::shared_ptr<Work> future_;
};

TEST(ReducerHookRanks, F2AFutureThatIsNeverCompletedIsToldOnEveryRank) {
  constexpr int kFaulty = 1;
  const auto memberships = local_memberships(3, milliseconds(300));
  std::vector<Status> statuses(3);
  on_ranks(3, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank;
    rank.add("p");
    rank.add("q");
    ReducerOptions options = quick_options(false);
    options.hook = std::make_shared<EndlessHook>(r == kFaulty);
    options.failure_grace = std::chrono::seconds(10);
    ASSERT_TRUE(rank.create(memberships[i], options).ok());
    statuses[i] = rank.backward(rank.forward_of(rank.parameters), 1);
    EXPECT_FALSE(rank.parallel->poisoned().ok());
  });
  for (int r = 0; r < 3; ++r) {
    const Status& status = statuses[static_cast<std::size_t>(r)];
    ASSERT_EQ(status.code(), Code::kTimeout) << status.to_string();
    const Failure& failure = status.failure();
    EXPECT_EQ(failure.rank, kFaulty);
    EXPECT_EQ(failure.reported_by, r);
    EXPECT_EQ(failure.pass, 0);
    EXPECT_EQ(failure.bucket, 1);
    EXPECT_EQ(failure.parameters, Names{"p"});
    EXPECT_TRUE(failure.definite);
    EXPECT_NE(failure.detail.find("the communication hook endless"), std::string::npos);
    if (r == kFaulty) continue;
    EXPECT_EQ(failure.collective, "all_reduce");
    EXPECT_GE(failure.sequence, 0);
    ASSERT_EQ(failure.later.size(), 1u);
    EXPECT_NE(failure.later[0].find("rank 1 left the group"), std::string::npos);
  }
}

TEST(ReducerHookRanks, B4OtherHooksOnOtherRanksAreADisagreement) {
  const auto memberships = local_memberships(2);
  on_ranks(2, [&](int r) {
    TestRank rank;
    rank.add("p");
    ReducerOptions options = quick_options(false);
    options.hook = r == 0 ? make_fp16_compress_hook() : make_bf16_compress_hook();
    const Status status = rank.create(memberships[static_cast<std::size_t>(r)], options);
    EXPECT_EQ(status.code(), Code::kDisagreement);
    EXPECT_NE(status.to_string().find("hook bf16_compress"), std::string::npos);
  });
}

TEST_F(ReducerHooks, P17AWireDtypeThatTheGroupCannotSumIsRefusedAtConstruction) {
  hook_->wire = DType::kByte;
  ReducerOptions options = quick_options(false);
  options.hook = hook_;
  const Status status = rank_.create(membership(), options);
  ASSERT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("which the hook test makes of parameter p"), std::string::npos);
}

// q is not used, so the first hook of the pass, which is p's, completes q's bucket. A call would
// wait for ever if its own thread held a lock against it.
TEST(ReducerHookLocks, S4AHookMayRunALocalBackwardToTheParameterWhoseHookFired) {
  const auto done = std::make_shared<std::promise<std::string>>();
  std::future<std::string> outcome = done->get_future();
  std::thread([done] {
    TestRank rank;
    const auto p = rank.add("p");
    const auto q = rank.add("q");
    const auto hook = std::make_shared<TestHook>();
    Status inside(Code::kInternal, "the hook was not started for the first bucket");
    hook->on_start = [&](HookBucket& bucket) {
      if (bucket.is_first()) inside = rank.backward({{p, 0}}, {100, 100});
      return Status();
    };
    ReducerOptions options = quick_options(true);
    options.hook = hook;
    const auto group = std::make_shared<ScriptedGroup>(1);
    Status status = rank.create({group, std::make_shared<HashStore>()}, options);
    if (status.ok()) status = rank.backward(rank.forward_of({p}), {1, 2});
    if (status.ok()) status = inside;
    // The gradient of the local backward is accumulated, and reduced with the rest (P1).
    const bool is_right = status.ok() && values_of(p->grad()) == Values{101, 102};
    done->set_value(is_right ? "" : "wrong: " + status.to_string());
  }).detach();
  ASSERT_EQ(outcome.wait_for(std::chrono::seconds(60)), std::future_status::ready)
      << "the hook's local backward never ended";
  EXPECT_EQ(outcome.get(), "");
}

// The name is the user's code, too.
TEST_F(ReducerHooks, S4AHookThatFailsIsAskedForItsNameWithoutALock) {
  class Asking final : public CommunicationHook {
   public:
    std::string name() const override {
      if (rank != nullptr) status = rank->engine.backward(edges, gradients, false);
      return "asking";
    }
    Status start(HookBucket&) override {
      rank = rank_to_ask;
      return Status(Code::kInternal, "on purpose");
    }
    Result<Tensor> finish(HookBucket& bucket) override { return bucket.flat(); }
    TestRank* rank_to_ask = nullptr;
    TestRank* rank = nullptr;
    std::vector<Edge> edges;
    std::vector<Tensor> gradients;
    mutable Status status;
  };
  const auto hook = std::make_shared<Asking>();
  create_with(hook);
  hook->rank_to_ask = &rank_;
  hook->edges = {{p_, 0}};
  hook->gradients = {rank_.tensor({1, 2})};
  EXPECT_EQ(train().code(), Code::kUserFailure);
  EXPECT_TRUE(hook->status.ok()) << hook->status.to_string();
  hook->edges.clear();
}

}  // namespace
}  // namespace lockstep::testing
