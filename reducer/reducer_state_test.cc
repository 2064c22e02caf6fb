// Values of parameters, buffers, and ignored names (S3).
#include <gtest/gtest.h>

#include <array>

#include "reducer/module_state.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using Names = std::vector<std::string>;

// The sizes of all broadcasts since the beginning, in bytes.
std::vector<std::uint64_t> broadcasts(const ScriptedGroup& group) {
  std::vector<std::uint64_t> bytes;
  for (const Started& each : group.started)
    if (each.collective.op == Op::kBroadcast) bytes.push_back(each.collective.count);
  return bytes;
}

class ReducerState : public ReducerTest {
 protected:
  Ref<Buffer> buffer(const std::string& name, const Values& values, int device = 0) {
    return make_ref<Buffer>(name, rank_.tensor(values, DType::kFloat32, device));
  }
  void create_with(std::vector<Ref<Buffer>> buffers,
                   const std::function<void(ReducerOptions&)>& change = {}) {
    const Status status = try_create(std::move(buffers), change);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  Status try_create(std::vector<Ref<Buffer>> buffers,
                    const std::function<void(ReducerOptions&)>& change = {}) {
    ReducerOptions options = quick_options(false);
    options.buffers = std::move(buffers);
    if (change) change(options);
    return rank_.create(membership(), options);
  }
  void train() {
    const Status status = rank_.backward(rank_.forward_of({p_, q_}), 6);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
};

TEST_F(ReducerState, S3ConstructionSendsValuesThenBuffersInChunksOfOneDevice) {
  p_->set_value(rank_.tensor({1, 2}));
  q_->set_value(rank_.tensor({3, 4}));
  create_with({buffer("a", {5}), buffer("b", {6, 7, 8}), buffer("c", {9}, 1)});
  // p, q, a and b begin at 0, 64, 128 and 192 bytes; c lies on another device.
  EXPECT_EQ(broadcasts(*group_), (std::vector<std::uint64_t>{192 + 12, 4}));
}

TEST_F(ReducerState, S3AChunkClosesWhenItReachesItsLimitAndNoTensorIsSplit) {
  create_with({buffer("a", {1, 2, 3, 4}), buffer("b", {5}), buffer("c", {6}), buffer("none", {})},
              [](ReducerOptions& options) { options.broadcast_chunk_bytes = 16; });
  EXPECT_EQ(broadcasts(*group_), (std::vector<std::uint64_t>{16, 64 + 4}));
}

// The buffers claim so many bytes that their sum wraps around to none. Nothing touches them before
// the memory for a chunk is refused.
TEST_F(ReducerState, B5AChunkOfMoreBytesThanAnyMemoryIsOutOfMemory) {
  constexpr std::int64_t kElements = std::int64_t{1} << 60;
  std::vector<Ref<Buffer>> buffers;
  HostDevice& device = rank_.devices[0];
  for (const char* name : {"a", "b", "c", "d"}) {
    auto* const memory = static_cast<std::byte*>(::operator new (64, std::align_val_t{64}));
    const auto storage = make_ref<Storage>(device, memory, std::size_t{kElements} * 4);
    const Tensor value(storage, 0, DType::kFloat32, Shape::row_major({kElements}));
    buffers.push_back(make_ref<Buffer>(name, value));
  }
  const Status status = try_create(
      buffers, [](ReducerOptions& options) { options.broadcast_chunk_bytes = ~std::uint64_t{0}; });
  EXPECT_EQ(status.code(), Code::kOutOfMemory) << status.to_string();
  EXPECT_TRUE(broadcasts(*group_).empty());
}

TEST_F(ReducerState, S3AForwardBroadcastsOnceInASyncWindow) {
  create_with({buffer("a", {1})});
  std::size_t sent = 1;  // One was sent at construction.
  const auto expect_sent = [&](std::size_t more, const char* where) {
    EXPECT_EQ(broadcasts(*group_).size(), sent += more) << where;
  };
  ASSERT_TRUE(parallel().forward_without_gradients([](auto&) { return Status(); }).ok());
  expect_sent(0, "without gradients");
  {
    const DataParallel::NoSync no_sync(parallel());
    (void)rank_.forward_of({p_, q_});
    expect_sent(1, "the first micro-batch");
    (void)rank_.forward_of({p_, q_});
    expect_sent(0, "the next one");
  }
  (void)rank_.forward_of({p_, q_});
  expect_sent(0, "a synced forward whose outputs are dropped");
  train();
  expect_sent(0, "the synced pass of the window");
  train();
  expect_sent(1, "the next window");
}

TEST_F(ReducerState, S3WithTheOptionOffBuffersAreSentAtConstructionAlone) {
  create_with({buffer("a", {1})},
              [](ReducerOptions& options) { options.broadcast_buffers = false; });
  train();
  EXPECT_EQ(broadcasts(*group_).size(), 1u);
}

TEST_F(ReducerState, S3AResetBeginsWithWhatTheFirstRankHas) {
  create_with({buffer("a", {1})});
  train();
  ASSERT_TRUE(parallel().reset(membership()).ok());
  EXPECT_EQ(broadcasts(*group_).size(), 1u);
}

TEST_F(ReducerState, S3IgnoredParametersAndBuffersAreLeftAlone) {
  q_->set_value(rank_.tensor({3, 4}));
  create_with({buffer("a", {1}), buffer("b", {2, 3})}, [](ReducerOptions& options) {
    options.ignored = {"q", "a"};
  });
  EXPECT_EQ(broadcasts(*group_), std::vector<std::uint64_t>{8});
  train();
  EXPECT_EQ(first(p_), 6);
  EXPECT_EQ(first(q_), 6);
  EXPECT_EQ(group_->sums(), 1);
  EXPECT_EQ(parallel().reducer().parameter_infos().size(), 1u);
}

TEST_F(ReducerState, S3AnUnknownNameToIgnoreIsRefused) {
  const Status status = try_create({}, [](ReducerOptions& options) { options.ignored = {"typo"}; });
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("typo"), std::string::npos);
}

TEST_F(ReducerState, S3ABufferOfAnotherShapeStopsTheForwardAndIsNamed) {
  const Ref<Buffer> a = buffer("a", {1});
  create_with({a});
  a->set_value(rank_.tensor({1, 2}));
  EXPECT_TRUE(rank_.forward_of({p_, q_}).empty());
  EXPECT_EQ(rank_.forward_status.code(), Code::kInvalidArgument);
  EXPECT_NE(rank_.forward_status.to_string().find("buffer a"), std::string::npos);
  EXPECT_FALSE(parallel().poisoned().ok());  // The other ranks wait for this one.
  EXPECT_EQ(rank_.forward_status.failure().rank, 0);
  EXPECT_EQ(rank_.forward_status.failure().pass, 0);
  EXPECT_TRUE(rank_.forward_status.failure().definite);
}

TEST_F(ReducerState, S3ABufferInOtherStridesOrOnAnotherDeviceDoesNotFit) {
  const auto make = [&](const Shape& shape, int device) {
    return *Tensor::empty(rank_.devices[device], DType::kFloat32, shape);
  };
  for (const Tensor& other : {make(Shape::column_major(std::array<std::int64_t, 2>{2, 3}), 0),
                              make(Shape::row_major({2, 3}), 1)}) {
    const auto a = make_ref<Buffer>("a", make(Shape::row_major({2, 3}), 0));
    create_with({a});
    a->set_value(other);
    EXPECT_TRUE(rank_.forward_of({p_, q_}).empty());
    EXPECT_EQ(rank_.forward_status.code(), Code::kInvalidArgument);
  }
}

TEST_F(ReducerState, S3AValueThatIsGoneOrElsewhereFailsTheResetAndIsNamed) {
  for (const bool is_gone : {true, false}) {
    p_->set_value(rank_.tensor({1, 2}));
    create_with({});
    p_->set_value(is_gone ? Tensor() : rank_.tensor({1, 2}, DType::kFloat32, 1));
    const Status status = parallel().reset(membership());
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_NE(status.to_string().find("parameter p has no value any more"), std::string::npos);
    EXPECT_TRUE(group_->aborted);  // The other ranks wait for this one.
    p_->set_value(rank_.tensor({3, 4}));
    ASSERT_TRUE(parallel().reset(membership()).ok());
    train();
  }
}

TEST_F(ReducerState, F2ABroadcastThatStallsNamesThePassThatItComesBefore) {
  create_with({buffer("a", {1})});
  train();
  group_->stalls_gathering = true;
  group_->limit = std::chrono::milliseconds(1);
  EXPECT_TRUE(rank_.forward_of({p_, q_}).empty());
  ASSERT_EQ(rank_.forward_status.code(), Code::kTimeout) << rank_.forward_status.to_string();
  EXPECT_EQ(rank_.forward_status.failure().pass, 1);
}

// Ranks begin with different values, and their forwards change their buffers differently.
TEST_F(ReducerState,
       F2ABroadcastThatCannotBeStartedIsThisRanksOwnFailureAndOneThatAGroupEndsIsNot) {
  const auto failure_of = [this](Code code) {
    create_with({buffer("a", {1})});
    group_->refusal = Status(code, "refused");
    rank_.forward_of({p_, q_});
    const Failure failure = rank_.forward_status.failure();
    EXPECT_EQ(failure.code, code);
    EXPECT_EQ(failure.collective, "broadcast");
    group_ = std::make_shared<ScriptedGroup>();
    return failure;
  };
  const Failure own = failure_of(Code::kOutOfMemory);
  EXPECT_EQ(own.rank, 0);
  EXPECT_TRUE(own.definite);
  const Failure of_group = failure_of(Code::kPeerLost);
  EXPECT_FALSE(of_group.definite);
}

TEST(ReducerStateRanks, S3AllRanksHaveWhatRankZeroHasAndBuffersAreReadAnew) {
  constexpr int kRanks = 3;
  const std::vector<Membership> memberships = local_memberships(kRanks);
  std::vector<Values> at_first(kRanks);
  std::vector<Values> in_forward(kRanks);
  on_ranks(kRanks, [&](int r) {
    const auto number = static_cast<std::size_t>(r);
    TestRank rank;
    const Ref<Parameter> p = rank.add("p");
    p->set_value(rank.tensor({10.0 + r, 1}));
    const auto a = make_ref<Buffer>("a", rank.tensor({20.0 + r}));
    const auto b = make_ref<Buffer>("b", rank.tensor({30.0 + r, 2}));
    ReducerOptions options = quick_options(false);
    options.buffers = {a, b};
    ASSERT_TRUE(rank.create(memberships[number], options).ok());
    at_first[number] = {values_of(p->value())[0], values_of(a->value())[0],
                        values_of(b->value())[0]};
    a->set_value(rank.tensor({40.0 + r}));  // This is another tensor.
    (void)rank.forward_of({p});
    in_forward[number] = {values_of(a->value())[0], values_of(b->value())[1]};
  });
  for (std::size_t r = 0; r < kRanks; ++r) {
    EXPECT_EQ(at_first[r], (Values{10, 20, 30})) << "rank " << r;
    EXPECT_EQ(in_forward[r], (Values{40, 2})) << "rank " << r;
  }
}

TEST(ReducerStateRanks, B4BuffersOfOtherShapesAreADisagreement) {
  const std::vector<Membership> memberships = local_memberships(2);
  std::vector<Status> statuses(2);
  on_ranks(2, [&](int r) {
    TestRank rank;
    (void)rank.add("p");
    ReducerOptions options = quick_options(false);
    options.buffers = {make_ref<Buffer>("a", rank.tensor(Values(static_cast<std::size_t>(r) + 1)))};
    statuses[static_cast<std::size_t>(r)] =
        rank.create(memberships[static_cast<std::size_t>(r)], options);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::kDisagreement) << status.to_string();
    EXPECT_NE(status.to_string().find("buffer 0 a"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::testing
