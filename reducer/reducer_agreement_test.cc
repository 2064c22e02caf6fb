// Buckets as the reducer makes them, and ranks that were constructed differently: clauses B1 to B6.
// bucket/layout_test.cc tests assign_buckets() alone.
#include <gtest/gtest.h>

#include <cstring>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using ReducerBuckets = ReducerTest;
using Lists = std::vector<std::vector<std::size_t>>;

Lists members_of(const Layout& layout) {
  Lists lists;
  for (const BucketLayout& bucket : layout.buckets) {
    lists.emplace_back();
    for (const BucketMember& member : bucket.members) lists.back().push_back(member.parameter);
  }
  return lists;
}

ParameterSpec floats(std::int64_t elements, DType dtype = DType::kFloat32) {
  ParameterSpec spec;
  spec.dtype = dtype;
  spec.shape = Shape::row_major({elements});
  return spec;
}

TEST(ReducerLayout, B1B2BucketsCloseAtTheirLimitsAndAreLaunchedLastFirst) {
  TestRank rank;
  rank.add("a", floats(10));
  rank.add("h", floats(3, DType::kFloat16));
  rank.add("b", floats(10));
  ParameterSpec ice = floats(10);
  ice.requires_grad = false;
  rank.add("ice", ice);
  rank.add("c", floats(10));
  rank.add("i", floats(3, DType::kFloat16));
  auto group = std::make_shared<ScriptedGroup>();
  const Membership membership{group, std::make_shared<HashStore>()};
  ASSERT_TRUE(rank.create(membership, quick_options(false, {40, 80})).ok());
  // float32: a closes the first bucket; b and c close the second. float16 has limits of its own.
  EXPECT_EQ(members_of(rank.parallel->reducer().layout()), (Lists{{2, 4}, {1, 5}, {0}}));
  std::vector<Tensor> gradients;
  std::vector<Ref<Parameter>> trained;
  for (const auto& p : rank.parameters) {
    if (!p->requires_grad()) continue;
    trained.push_back(p);
    gradients.push_back(
        rank.tensor(Values(static_cast<std::size_t>(p->shape().elements()), 2), p->dtype()));
  }
  ASSERT_TRUE(rank.engine.backward(rank.forward_of(trained), gradients, false).ok());
  ASSERT_EQ(group->sums(), 3);
  const auto& sums = group->started;
  // 10 elements, padding to 16, and 10 elements.
  EXPECT_EQ(sums[sums.size() - 3].collective.count, 26u);
  EXPECT_EQ(sums[sums.size() - 2].collective.dtype, DType::kFloat16);
  EXPECT_EQ(sums[sums.size() - 1].collective.count, 10u);
}

TEST(ReducerLayout, B3PaddingBetweenMembersIsSentAsZerosInEveryPass) {
  TestRank rank;
  const auto a = rank.add("a", floats(3));
  const auto b = rank.add("b", floats(17));
  auto group = std::make_shared<ScriptedGroup>();
  const Membership membership{group, std::make_shared<HashStore>()};
  ASSERT_TRUE(rank.create(membership, quick_options(false, {1u << 20})).ok());
  for (int pass = 0; pass < 3; ++pass) {
    const std::vector<Tensor> gradients = {rank.tensor({2, 2, 2}), rank.tensor(Values(17, 4))};
    ASSERT_TRUE(rank.engine.backward(rank.forward_of({a, b}), gradients, false).ok());
    const Started& sum = group->started.back();
    ASSERT_EQ(sum.collective.count, 33u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(sum.collective.data) % 64, 0u);
    for (std::size_t i = 0; i < 33; ++i) {
      const bool is_padding = i >= 3 && i < 16;
      const double expected = is_padding ? 0 : (i < 3 ? 1 : 2) * (1 + pass);
      EXPECT_EQ(element(DType::kFloat32, sum.sent.data(), i), expected) << i;
    }
  }
}

TEST_F(ReducerBuckets, B5WhatCannotBeLaidOutIsRefused) {
  ReducerOptions options = quick_options(false);
  options.bucket_limits.clear();
  EXPECT_EQ(rank_.create(membership(), options).code(), Code::kInvalidArgument);
  options = quick_options(false);
  options.trace_capacity = 0;
  EXPECT_EQ(rank_.create(membership(), options).code(), Code::kInvalidArgument);
  rank_.parameters.push_back({});
  EXPECT_EQ(rank_.create(membership(), quick_options(false)).code(), Code::kInvalidArgument);
  rank_.parameters.pop_back();
  create(false);  // Nothing is left of the reducers that were refused.
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 2).ok());
  EXPECT_EQ(group_->sums(), 2);
}

TEST_F(ReducerBuckets, B6ASharedParameterIsOne) {
  rank_.parameters.push_back(p_);
  create(false);
  EXPECT_EQ(members_of(parallel().reducer().layout()), (Lists{{1}, {0}}));
  ASSERT_TRUE(rank_.backward(rank_.forward({{rank_.fan({{p_, 0}, {p_, 0}}), 0}, {q_, 0}}), 3).ok());
  EXPECT_EQ(first(p_), 6);
  EXPECT_EQ(group_->sums(), 2);
  EXPECT_EQ(group_->started[0].collective.op, Op::kAllGather);
}

// One rank differs, and all ranks receive an error with both ranks and both lines (B4).
struct Disagreement {
  const char* name;
  std::function<void(TestRank&, ReducerOptions&)> change;  // Changes the rank that differs.
  const char* usual;                                       // What the error says about rank 0.
  const char* odd;  // What the error says about the rank that differs.
};

// Parameters cannot be changed, so the rank that differs gets new ones.
void replace_second(TestRank& rank, const std::string& name, const ParameterSpec& spec) {
  rank.parameters.erase(rank.parameters.begin() + 1);
  rank.add(name, spec);
  std::swap(rank.parameters[1], rank.parameters.back());
}

ParameterSpec matrix() {
  ParameterSpec spec;
  spec.shape = Shape::row_major({2, 3});
  return spec;
}

template <class Change>
std::function<void(TestRank&, ReducerOptions&)> second_with(Change change) {
  return [change](TestRank& rank, ReducerOptions&) {
    ParameterSpec spec = matrix();
    change(spec);
    replace_second(rank, "b", spec);
  };
}

std::vector<Disagreement> disagreements() {
  const std::int64_t sizes[] = {2, 3};
  const Shape columns = Shape::column_major(sizes);
  return {
      {"FewerParameters", [](TestRank& rank, ReducerOptions&) { rank.parameters.pop_back(); },
       "parameter 2 c:", "nothing more"},
      {"MoreParameters", [](TestRank& rank, ReducerOptions&) { rank.add("d"); }, "nothing more",
       "parameter 3 d:"},
      {"Name", [](TestRank& rank, ReducerOptions&) { replace_second(rank, "other", matrix()); },
       "parameter 1 b:", "parameter 1 other:"},
      {"Order",
       [](TestRank& rank, ReducerOptions&) { std::swap(rank.parameters[0], rank.parameters[1]); },
       "parameter 0 a:", "parameter 0 b:"},
      {"Sizes", second_with([](ParameterSpec& s) {
         s.shape = Shape::row_major({3, 2});
       }),
       "b: float32 [2 3] strides [3 1]", "b: float32 [3 2] strides [2 1]"},
      {"Dims", second_with([](ParameterSpec& s) { s.shape = Shape::row_major({6}); }),
       "b: float32 [2 3]", "b: float32 [6]"},
      {"Strides", second_with([columns](ParameterSpec& s) { s.shape = columns; }),
       "[2 3] strides [3 1]", "[2 3] strides [1 2]"},
      {"Dtype", second_with([](ParameterSpec& s) { s.dtype = DType::kBFloat16; }), "b: float32",
       "b: bfloat16"},
      {"VerifyPayload",
       [](TestRank&, ReducerOptions& options) {
         options.reduction = Reduction::kRankOrdered;
         options.verify_payload = true;
       },
       "verify_payload off", "verify_payload on"},
      {"RequiresGrad", second_with([](ParameterSpec& s) { s.requires_grad = false; }),
       "requires_grad", "frozen"},
      {"Device", second_with([](ParameterSpec& s) { s.device = 1; }), "device 0", "device 1"},
      {"Mode", [](TestRank&, ReducerOptions& options) { options.find_unused_parameters = true; },
       "find_unused_parameters off", "find_unused_parameters on"},
      {"BucketLimits",
       [](TestRank&, ReducerOptions& options) {
         options.bucket_limits = {1, 2};
       },
       "bucket limits 1'", "bucket limits 1 2'"},
  };
}

struct AgreementCase {
  Disagreement disagreement;
  int odd;
};
class ReducerAgreement : public ::testing::TestWithParam<AgreementCase> {};

TEST_P(ReducerAgreement, B4EveryRankNamesBothRanksAndTheFirstDifference) {
  const auto& [disagreement, odd_rank] = GetParam();
  const int odd = odd_rank;
  const auto memberships = local_memberships(3);
  std::vector<Status> statuses(3);
  on_ranks(3, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank(1);
    ReducerOptions options = quick_options(false);
    rank.add("a");
    rank.add("b", matrix());
    rank.add("c");
    if (r == odd) GetParam().disagreement.change(rank, options);
    statuses[i] = rank.create(memberships[i], options);
    for (const auto& parameter : rank.parameters)  // No hook is left of a reducer that was refused.
      EXPECT_TRUE(rank.backward({{rank.stop({{parameter, 0}}), 0}}, 1).ok());
  });
  // The others are compared with rank 0; if rank 0 is the one that was changed, rank 1 differs from
  // it.
  const int other = odd == 0 ? 1 : odd;
  const char* of_zero = odd == 0 ? disagreement.odd : disagreement.usual;
  const char* of_other = odd == 0 ? disagreement.usual : disagreement.odd;
  for (int r = 0; r < 3; ++r) {
    const Status& status = statuses[static_cast<std::size_t>(r)];
    ASSERT_EQ(status.code(), Code::kDisagreement) << status.to_string();
    const Failure& failure = status.failure();
    EXPECT_EQ(failure.reported_by, r);
    EXPECT_EQ(failure.rank, other);
    EXPECT_TRUE(failure.definite);
    const std::string& text = failure.detail;
    const auto zero = text.find("rank 0 has ");
    const auto second = text.find("rank " + std::to_string(other) + " has ");
    ASSERT_NE(zero, std::string::npos) << text;
    ASSERT_NE(second, std::string::npos) << text;
    ASSERT_LT(zero, second);
    EXPECT_NE(text.substr(zero, second - zero).find(of_zero), std::string::npos) << text;
    EXPECT_NE(text.substr(second).find(of_other), std::string::npos) << text;
    EXPECT_EQ(text, statuses[0].failure().detail);
  }
}

std::vector<AgreementCase> agreement_cases() {
  std::vector<AgreementCase> cases;
  for (const Disagreement& disagreement : disagreements())
    for (const int odd : {0, 1, 2}) cases.push_back({disagreement, odd});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReducerAgreement, ::testing::ValuesIn(agreement_cases()),
                         [](const auto& test) {
                           return std::string(test.param.disagreement.name) + "OfRank" +
                                  std::to_string(test.param.odd);
                         });

// The reason why one rank cannot be constructed. All ranks receive it with the rank's number, and
// none waits (B4).
struct Refusal {
  const char* name;
  // Changes the rank that refuses.
  std::function<void(TestRank&, ReducerOptions&, Membership&)> change;
  Code code;
  const char* reason;
};

class RefusingHook final : public CommunicationHook {
 public:
  std::string name() const override { return "refusing"; }
  bool works_on(const Device&) const override { return false; }
  Status start(HookBucket&) override { return {}; }
  Result<Tensor> finish(HookBucket& bucket) override { return bucket.flat(); }
};

std::vector<Refusal> refusals() {
  return {
      {"IgnoredName",
       [](TestRank&, ReducerOptions& options, Membership&) { options.ignored = {"nobody"}; },
       Code::kInvalidArgument, "nobody to be ignored"},
      {"NoLimits",
       [](TestRank&, ReducerOptions& options, Membership&) { options.bucket_limits.clear(); },
       Code::kInvalidArgument, "bucket limits is empty"},
      {"NoTrace",
       [](TestRank&, ReducerOptions& options, Membership&) { options.trace_capacity = 0; },
       Code::kInvalidArgument, "trace_capacity is 0"},
      {"EndlessTrace",
       [](TestRank&, ReducerOptions& options, Membership&) {
         options.trace_capacity = ~std::size_t{0} / 2;
       },
       Code::kInvalidArgument, "trace_capacity is 9223372036854775807"},
      {"TwoModes",
       [](TestRank&, ReducerOptions& options, Membership&) {
         options.static_graph = options.find_unused_parameters = true;
       },
       Code::kInvalidArgument, "turn find_unused_parameters off"},
      {"NullParameter",
       [](TestRank& rank, ReducerOptions&, Membership&) { rank.parameters[1] = {}; },
       Code::kInvalidArgument, "is null"},
      {"NullStore", [](TestRank&, ReducerOptions&, Membership& own) { own.store = nullptr; },
       Code::kInvalidArgument, "the store is null"},
      {"NoDType",
       [](TestRank& rank, ReducerOptions&, Membership&) {
         ParameterSpec spec;
         spec.dtype = static_cast<DType>(200);
         rank.add("strange", spec);
       },
       Code::kInvalidArgument, "parameter strange has a dtype that is none of DType"},
      {"NoReduction",
       [](TestRank&, ReducerOptions& options, Membership&) {
         options.reduction = static_cast<Reduction>(7);
       },
       Code::kInvalidArgument, "reduction is neither"},
      {"NoSchedule",
       [](TestRank&, ReducerOptions& options, Membership&) {
         options.schedule = static_cast<Schedule>(7);
       },
       Code::kInvalidArgument, "schedule is neither"},
      {"TooLarge",
       [](TestRank& rank, ReducerOptions&, Membership&) {
         ParameterSpec spec;
         spec.shape = Shape::row_major({std::int64_t{1} << 32, std::int64_t{1} << 32});
         rank.add("huge", spec);
       },
       Code::kInvalidArgument, "parameter huge of sizes [4294967296 4294967296]"},
      {"NoMemory",
       [](TestRank& rank, ReducerOptions&, Membership&) {
         ParameterSpec spec;
         spec.shape = Shape::row_major({std::int64_t{1} << 58});
         rank.add("huge", spec);
       },
       Code::kOutOfMemory, "no memory left"},
      {"Hook",
       [](TestRank&, ReducerOptions& options, Membership&) {
         options.hook = std::make_shared<RefusingHook>();
       },
       Code::kInvalidArgument, "the hook refusing does not work"},
      {"BackwardGroup",
       [](TestRank&, ReducerOptions& options, Membership& own) {
         options.schedule = Schedule::kAfterBackward;
         own.backward_group = std::make_shared<ScriptedGroup>(7);
       },
       Code::kInvalidArgument, "not one of the same ranks"},
  };
}

struct RefusalCase {
  Refusal refusal;
  int odd;
};
class ReducerRefusal : public ::testing::TestWithParam<RefusalCase> {};

TEST_P(ReducerRefusal, B4OfOneRankIsRaisedByAllAtOnceWithItsReason) {
  const auto& [refusal, odd_rank] = GetParam();
  const int odd = odd_rank;
  const Refusal& of = refusal;
  const auto memberships = local_memberships(3);
  std::vector<Status> statuses(3);
  on_ranks(3, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank;
    ReducerOptions options = quick_options(false);
    Membership own = memberships[i];
    rank.add("a");
    rank.add("b");
    if (r == odd) of.change(rank, options, own);
    statuses[i] = rank.create(own, options);
  });
  for (int r = 0; r < 3; ++r) {
    const Status& status = statuses[static_cast<std::size_t>(r)];
    ASSERT_EQ(status.code(), of.code) << r << ": " << status.to_string();
    EXPECT_EQ(status.failure().rank, odd);
    EXPECT_EQ(status.failure().reported_by, r);
    EXPECT_TRUE(status.failure().definite);
    EXPECT_NE(status.failure().detail.find(of.reason), std::string::npos) << status.to_string();
    const bool is_told = status.failure().detail.find("refused: ") != std::string::npos;
    EXPECT_EQ(is_told, r != odd) << status.to_string();
  }
}

std::vector<RefusalCase> refusal_cases() {
  std::vector<RefusalCase> cases;
  for (const Refusal& refusal : refusals())
    for (const int odd : {0, 2}) cases.push_back({refusal, odd});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReducerRefusal, ::testing::ValuesIn(refusal_cases()),
                         [](const auto& test) {
                           return std::string(test.param.refusal.name) + "OfRank" +
                                  std::to_string(test.param.odd);
                         });

TEST(ReducerRefusals, B4OfTwoRanksEachHasItsOwnAndTheThirdThatOfTheLower) {
  const auto memberships = local_memberships(3);
  std::vector<Status> statuses(3);
  on_ranks(3, [&](int r) {
    TestRank rank;
    rank.add("a");
    ReducerOptions options = quick_options(false);
    if (r == 1) options.ignored = {"x"};
    if (r == 2) options.bucket_limits.clear();
    statuses[static_cast<std::size_t>(r)] =
        rank.create(memberships[static_cast<std::size_t>(r)], options);
  });
  EXPECT_EQ(statuses[0].failure().rank, 1);
  EXPECT_NE(statuses[0].to_string().find("x to be ignored"), std::string::npos);
  EXPECT_EQ(statuses[1].failure().rank, 1);
  EXPECT_EQ(statuses[2].failure().rank, 2);
  EXPECT_NE(statuses[2].to_string().find("limits is empty"), std::string::npos);
}

TEST(ReducerRefusals, B4AReasonOfAnyLengthReachesThePeers) {
  const auto memberships = local_memberships(2);
  on_ranks(2, [&](int r) {
    TestRank rank;
    rank.add("a");
    ReducerOptions options = quick_options(false);
    if (r == 1) options.ignored = {std::string(1 << 20, 'n')};
    const Status status = rank.create(memberships[static_cast<std::size_t>(r)], options);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.failure().rank, 1);
  });
}

TEST(ReducerRefusals, B4ANullGroupOrStoreOfAResetIsRefusedAndPeersHearOfTheStore) {
  const auto memberships = local_memberships(2);
  const auto later = local_memberships(2);
  on_ranks(2, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank;
    rank.add("a");
    EXPECT_EQ(rank.create({nullptr, memberships[i].store}, quick_options(false)).code(),
              Code::kInvalidArgument);
    ASSERT_TRUE(rank.create(memberships[i], quick_options(false)).ok());
    EXPECT_EQ(rank.parallel->reset({}).code(), Code::kInvalidArgument);
    EXPECT_TRUE(rank.parallel->poisoned().ok());  // Nothing has changed.
    Membership next = later[i];
    if (r == 1) next.store = nullptr;
    const Status status = rank.parallel->reset(next);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_EQ(status.failure().rank, 1);
    EXPECT_NE(status.to_string().find("the store is null"), std::string::npos);
    EXPECT_FALSE(rank.parallel->poisoned().ok());
    const Status again = rank.parallel->reset(later[i]);
    EXPECT_TRUE(again.ok()) << again.to_string();
  });
}

// A process that was replaced constructs its reducer while the others reset theirs.
TEST(ReducerRefusals, B4AResetMeetsTheConstructionOfANewcomer) {
  for (const bool is_pinned : {false, true}) {
    const auto memberships = local_memberships(2);
    const auto later = local_memberships(2);
    on_ranks(2, [&](int r) {
      const auto i = static_cast<std::size_t>(r);
      TestRank rank;
      rank.add("a");
      ReducerOptions options = quick_options(false);
      ASSERT_TRUE(rank.create(memberships[i], options).ok());
      if (is_pinned) {
        options.pinned_layout = rank.parallel->reducer().layout();
        rank.parallel.reset();
        ASSERT_TRUE(rank.create(local_memberships(1)[0], options).ok());
      }
      if (r == 1) rank.parallel.reset();
      const Status status =
          r == 1 ? rank.create(later[i], options) : rank.parallel->reset(later[i]);
      ASSERT_TRUE(status.ok()) << status.to_string();
      ASSERT_TRUE(rank.backward(rank.forward_of(rank.parameters), 3).ok());
      EXPECT_EQ(values_of(rank.parameters[0]->grad())[0], 3);
    });
  }
}

// Host memory that runs out when a test wants it to.
class ScarceHost final : public Device {
 public:
  int index() const override { return 0; }
  bool is_host() const override { return true; }
  Result<Ref<Storage>> allocate(std::size_t bytes) override {
    if (is_empty) return failed(out_of_memory());
    void* const memory = ::operator new (bytes + 1, std::align_val_t{64});
    allocated_ += bytes;
    return make_ref<Storage>(*this, static_cast<std::byte*>(memory), bytes);
  }
  void release(std::byte* data, std::size_t bytes) override {
    allocated_ -= bytes;
    ::operator delete (data, std::align_val_t{64});
  }
  std::uint64_t allocated_bytes() const override { return allocated_; }
  Result<PinnedMemory> allocate_pinned(std::size_t) override { return failed(out_of_memory()); }
  void release_pinned(std::byte*, std::size_t) override {}
  Stream current_stream() override { return {this, 0}; }
  Result<Stream> new_stream() override { return current_stream(); }
  void* native(const Stream&) override { return nullptr; }
  void note_use(const Stream&, const std::byte*) override {}
  Event record(const Stream&) override { return {}; }
  void wait(const Stream&, const Event&) override {}
  Status synchronize(const Event&, platform::Deadline) override { return {}; }
  void fill_zero(const Stream&, std::byte* data, std::size_t bytes) override {
    std::memset(data, 0, bytes);
  }
  void copy(const Stream& stream, const Tensor& from, const Tensor& to) override {
    host_.copy(stream, from, to);
  }
  void add(const Stream& stream, const Tensor& from, const Tensor& to) override {
    host_.add(stream, from, to);
  }
  void pack_bucket(const Stream& stream, std::span<const Transfer> transfers,
                   double factor) override {
    host_.pack_bucket(stream, transfers, factor);
  }
  void convert(const Stream& stream, const Tensor& from, const Tensor& to, double k) override {
    host_.convert(stream, from, to, k);
  }
  void unpack_bucket(const Stream& stream, std::span<const Transfer> transfers) override {
    host_.unpack_bucket(stream, transfers);
  }
  void reduce_in_rank_order(const Stream& stream, const Tensor& from, const Tensor& to,
                            double factor) override {
    host_.reduce_in_rank_order(stream, from, to, factor);
  }
  void upload(const Stream&, const PinnedMemory&, std::size_t, std::byte*, std::size_t) override {}
  void download(const Stream&, const std::byte*, const PinnedMemory&, std::size_t,
                std::size_t) override {}

  bool is_empty = false;

 private:
  HostDevice host_;
  std::uint64_t allocated_ = 0;
};

void expect_out_of_memory_on_rank_1(const Status& status, int rank) {
  EXPECT_EQ(status.code(), Code::kOutOfMemory) << rank << ": " << status.to_string();
  if (status.ok()) return;
  EXPECT_EQ(status.failure().rank, 1);
  EXPECT_EQ(status.failure().reported_by, rank);
  const bool is_told = status.failure().detail.find("rank 1 refused: ") != std::string::npos;
  EXPECT_EQ(is_told, rank != 1) << status.to_string();
}

// All ranks have the same layout, and one of them has no memory for its buckets.
TEST(ReducerRefusals, B4MemoryThatOneRankLacksForAPinnedLayoutIsToldToAll) {
  const auto memberships = local_memberships(2);
  const auto later = local_memberships(2);
  on_ranks(2, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    ScarceHost device;
    TestRank rank;
    rank.parameters.push_back(make_ref<Parameter>(
        "a", device, DType::kFloat32, Shape::row_major({2}), true, rank.engine.next_sequence()));
    ReducerOptions options = quick_options(false);
    ASSERT_TRUE(rank.create(local_memberships(1)[0], options).ok());
    options.pinned_layout = rank.parallel->reducer().layout();
    rank.parallel.reset();
    device.is_empty = r == 1;
    expect_out_of_memory_on_rank_1(rank.create(memberships[i], options), r);
    device.is_empty = false;
    EXPECT_TRUE(rank.create(later[i], options).ok());
  });
}

// Two passes of two parameters in that memory; the second one has rebuilt the buckets.
void train_until_rebuilt(TestRank& rank, ScarceHost& device, const Membership& membership) {
  for (const char* name : {"a", "b"})
    rank.parameters.push_back(make_ref<Parameter>(
        name, device, DType::kFloat32, Shape::row_major({2}), true, rank.engine.next_sequence()));
  ReducerOptions options = quick_options(false);
  options.rebuild_buckets = true;
  ASSERT_TRUE(rank.create(membership, options).ok());
  for (int pass = 0; pass < 2; ++pass)
    ASSERT_TRUE(rank.backward(rank.forward_of(rank.parameters), 3).ok());
}

// The first layout is refused memory, and the agreement ends, as a user has aborted the new group.
TEST(ReducerRefusals, F4F6AResetThatCannotLayOutBucketsTellsNothingOfTheOldGroup) {
  const auto memberships = local_memberships(2);
  const auto later = local_memberships(2);
  on_ranks(2, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    ScarceHost device;
    TestRank rank;
    train_until_rebuilt(rank, device, memberships[i]);
    ASSERT_FALSE(rank.parallel->flight_record().collectives.empty());
    device.is_empty = true;
    later[i].group->abort(Status(Code::kUserFailure, "the user has given up"));
    EXPECT_FALSE(rank.parallel->reset(later[i]).ok());
    EXPECT_TRUE(rank.parallel->flight_record().collectives.empty());
    device.is_empty = false;
  });
}

// A reset restores the first layout, for which one rank has no memory.
TEST(ReducerRefusals, B4MemoryThatOneRankLacksAtAResetIsToldToAll) {
  const auto memberships = local_memberships(2);
  const auto later = local_memberships(2);
  const auto last = local_memberships(2);
  on_ranks(2, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    ScarceHost device;
    TestRank rank;
    train_until_rebuilt(rank, device, memberships[i]);
    ASSERT_FALSE(rank.parallel->reducer().rebuilt_order().empty());
    device.is_empty = r == 1;
    expect_out_of_memory_on_rank_1(rank.parallel->reset(later[i]), r);
    EXPECT_EQ(rank.parallel->poisoned().code(), Code::kOutOfMemory);
    device.is_empty = false;
    ASSERT_TRUE(rank.parallel->reset(last[i]).ok());
    rank.undefine_grads();
    ASSERT_TRUE(rank.backward(rank.forward_of(rank.parameters), 3).ok());
    EXPECT_EQ(values_of(rank.parameters[0]->grad())[0], 3);
    rank.undefine_grads();
  });
}

TEST(ReducerAnnouncements, B4OnesThatCannotBeNameTheirRankAndTakeNoMemory) {
  constexpr std::size_t kKind = 0;
  constexpr std::size_t kBytes = 3;
  const std::pair<std::size_t, std::uint64_t> lies[] = {
      {kBytes, ~std::uint64_t{0}}, {kBytes, 1000000000000}, {kKind, 77}, {kKind, 0}};
  for (const auto& [word, value] : lies) {
    TestRank rank;
    rank.add("a");
    const auto group = std::make_shared<ScriptedGroup>();
    group->peers_gathering = [word = word, value = value](const Collective& c) {
      std::memcpy(c.gathered + c.count + word * sizeof value, &value, sizeof value);
    };
    const Status status = rank.create({group, std::make_shared<HashStore>()}, quick_options(false));
    ASSERT_EQ(status.code(), Code::kDisagreement) << status.to_string();
    EXPECT_EQ(status.failure().rank, 1);
    EXPECT_NE(status.to_string().find("rank 1"), std::string::npos);
    EXPECT_NE(status.to_string().find(std::to_string(value)), std::string::npos)
        << status.to_string();
    EXPECT_EQ(group->started.size(), 1u);
  }
}

// Of two reducers on one group, each would reduce what the other has written to the gradient (F7).
TEST_F(ReducerBuckets, F7AParameterOfAnotherReducerOnTheGroupIsRefusedByName) {
  create(false);
  const Membership same{group_, std::make_shared<HashStore>()};
  TestRank second;
  second.add("r");
  second.parameters.push_back(q_);
  const Status status = second.create(same, quick_options(false));
  ASSERT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_EQ(status.failure().parameters, std::vector<std::string>{"q"});
  EXPECT_NE(status.to_string().find("another reducer on this process group"), std::string::npos);
  // These are legal: the parameter is ignored, the group is another one, or the first reducer is
  // gone.
  ReducerOptions ignoring = quick_options(false);
  ignoring.ignored = {"q"};
  EXPECT_TRUE(second.create(same, ignoring).ok());
  EXPECT_TRUE(
      second.create({std::make_shared<ScriptedGroup>(), same.store}, quick_options(false)).ok());
  second.parallel.reset();
  rank_.parallel.reset();
  EXPECT_TRUE(second.create(same, quick_options(false)).ok());
  second.parallel.reset();
}

TEST_F(ReducerBuckets, F7AResetToTheGroupOfAnotherReducerOfAParameterIsRefused) {
  create(false);
  const Membership first{group_, std::make_shared<HashStore>()};
  TestRank second;
  second.parameters.push_back(q_);
  ASSERT_TRUE(second.create(membership(), quick_options(false)).ok());
  const Status status = second.parallel->reset(first);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_EQ(second.parallel->poisoned().code(), Code::kInvalidArgument);
  EXPECT_TRUE(second.parallel->reset(membership()).ok());
  second.parallel.reset();
}

// The others would send their gradients on a group where this rank does not receive.
TEST(ReducerBackwardGroup, B4OneThatARankAloneHasIsADisagreement) {
  const auto memberships = local_memberships(2);
  const auto second = local_memberships(2);
  on_ranks(2, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank;
    rank.add("a");
    ReducerOptions options = quick_options(false);
    options.schedule = Schedule::kAfterBackward;
    Membership own = memberships[i];
    if (r == 1) own.backward_group = second[i].group;
    const Status status = rank.create(own, options);
    EXPECT_EQ(status.code(), Code::kDisagreement);
    EXPECT_NE(status.to_string().find("'a backward group of its own'"), std::string::npos)
        << status.to_string();
  });
}

TEST(ReducerAgreementReset, B4IsCheckedAgainWhenAGroupIsReplaced) {
  const auto memberships = local_memberships(2);
  const auto later = local_memberships(2);
  on_ranks(2, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank;
    rank.add("a");
    ASSERT_TRUE(rank.create(memberships[i], quick_options(false)).ok());
    // A process that replaces the other one brings another model.
    if (r == 1) {
      rank.parallel.reset();
      rank.add("b");
      EXPECT_EQ(rank.create(later[i], quick_options(false)).code(), Code::kDisagreement);
      return;
    }
    EXPECT_EQ(rank.parallel->reset(later[i]).code(), Code::kDisagreement);
    (void)rank.forward_of(rank.parameters);
    EXPECT_EQ(rank.forward_status.code(), Code::kPoisoned);
  });
}

}  // namespace
}  // namespace lockstep::testing
