// What a GlooProcessGroup computes, and what it refuses. Failures in operation are in
// gloo_failure_test.cc.
#include "reducer/comm/gloo/gloo_process_group.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <deque>
#include <random>
#include <tuple>

#include "reducer/comm/gloo/device.h"
#include "reducer/comm/gloo/file_store.h"
#include "reducer/comm/gloo/group_test_util.h"
#include "reducer/comm/gloo/test_refused_threads.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;  // NOLINT
using platform::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr DType kReducible[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                DType::kInt32};

std::vector<std::size_t> counts_around(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return {0, 1, ranks - 1, ranks, ranks + 1, 2 * ranks, 1000, 4099};
}

void expect_exact_collectives(GlooProcessGroup& group) {
  const int size = group.size();
  for (const DType dtype : kReducible) {
    for (const std::size_t count : counts_around(size)) {
      Elements elements = part(dtype, group.rank(), count);
      const Status status = run(group, sum_of(elements));
      ASSERT_TRUE(status.ok()) << status.to_string();
      expect_total(elements, size);
      Elements ordered = part(dtype, group.rank(), count);
      Collective in_order = sum_of(ordered);
      in_order.reduction = Reduction::kRankOrdered;
      const Status done = run(group, in_order);
      ASSERT_TRUE(done.ok()) << done.to_string();
      expect_total(ordered, size);
    }
  }
  for (const std::size_t count : counts_around(size)) {
    Collective broadcast;
    broadcast.op = Op::kBroadcast;
    broadcast.dtype = DType::kByte;
    broadcast.root = static_cast<int>(count) % size;
    Elements elements = part(DType::kByte, group.rank(), count);
    broadcast.count = count;
    broadcast.data = elements.data();
    ASSERT_TRUE(run(group, broadcast).ok());
    EXPECT_EQ(elements.bits(), part(DType::kByte, broadcast.root, count).bits());

    Collective gather;
    gather.op = Op::kAllGather;
    gather.dtype = DType::kFloat64;
    Elements own = part(DType::kFloat64, group.rank(), count);
    Elements all(DType::kFloat64, count * static_cast<std::size_t>(size));
    gather.count = count;
    gather.data = own.data();
    gather.gathered = all.data();
    ASSERT_TRUE(run(group, gather).ok());
    for (int rank = 0; rank < size; ++rank)
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(all.get(static_cast<std::size_t>(rank) * count + i), part_of(rank, i));
  }
}

class Sizes : public ::testing::TestWithParam<std::tuple<int, GlooOptions::Algorithm>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  GlooOptions options() const {
    GlooOptions options;
    options.algorithm = std::get<1>(GetParam());
    return options;
  }
};

TEST_P(Sizes, CollectivesAreExactOnThreads) {
  Groups groups = connect_threads(size(), options());
  on_groups(groups, [](int, GlooProcessGroup& group) { expect_exact_collectives(group); });
}

TEST_P(Sizes, CollectivesAreExactOnProcesses) {
  TemporaryDirectory directory;
  Processes ranks(size(), [&](int rank) {
    auto store = std::make_shared<FileStore>(directory.path());
    auto group = connect_rank(store, rank, size(), options());
    if (!group) return 3;
    expect_exact_collectives(**group);
    return 0;
  });
  for (int rank = 0; rank < size(); ++rank) EXPECT_EQ(ranks.wait(rank), 0);
}

INSTANTIATE_TEST_SUITE_P(Gloo, Sizes,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(GlooOptions::Algorithm::kRing,
                                                              GlooOptions::Algorithm::kBcube)),
                         [](const auto& parameter) {
                           const bool is_ring =
                               std::get<1>(parameter.param) == GlooOptions::Algorithm::kRing;
                           return (is_ring ? "Ring" : "Bcube") +
                                  std::to_string(std::get<0>(parameter.param));
                         });

// Above eight ranks the neighbours are asked first, and the others only where it is needed.
TEST(GlooProcessGroup, LargerGroupsAreExactToo) {
  for (const auto algorithm : {GlooOptions::Algorithm::kRing, GlooOptions::Algorithm::kBcube}) {
    GlooOptions options;
    options.algorithm = algorithm;
    Groups groups = connect_threads(10, options);
    on_groups(groups, [](int, GlooProcessGroup& group) {
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(sum_once(group).ok());
      Elements elements = part(DType::kInt32, group.rank(), 50);
      Collective broadcast = sum_of(elements);
      broadcast.op = Op::kBroadcast;
      broadcast.root = 7;
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(run(group, broadcast).ok());
      EXPECT_EQ(elements.bits(), part(DType::kInt32, 7, 50).bits());
    });
  }
}

// Numbers whose sum depends on the order, in groups of any algorithm.
TEST(GlooProcessGroup, RankOrderedSumsAddInTheOrderOfTheRanks) {
  constexpr int kSize = 4;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const std::size_t count : {1u, 3u, 5u, 4099u}) {
    std::vector<std::vector<float>> inputs(kSize, std::vector<float>(count));
    for (auto& input : inputs)
      for (float& value : input) value = normal(random);
    std::vector<float> expected = inputs[0];
    for (int rank = 1; rank < kSize; ++rank)
      for (std::size_t i = 0; i < count; ++i)
        expected[i] += inputs[static_cast<std::size_t>(rank)][i];
    for (const auto algorithm : {GlooOptions::Algorithm::kRing, GlooOptions::Algorithm::kBcube}) {
      GlooOptions options;
      options.algorithm = algorithm;
      Groups groups = connect_threads(kSize, options);
      on_groups(groups, [&](int rank, GlooProcessGroup& group) {
        std::vector<float> data = inputs[static_cast<std::size_t>(rank)];
        Collective collective;
        collective.dtype = DType::kFloat32;
        collective.reduction = Reduction::kRankOrdered;
        collective.count = count;
        collective.data = reinterpret_cast<std::byte*>(data.data());
        ASSERT_TRUE(run(group, collective).ok());
        EXPECT_EQ(data, expected);
      });
    }
  }
}

// The order of additions is that of gloo::allreduce: the same bits, for numbers whose sum depends
// on it.
TEST(GlooProcessGroup, SumsHaveTheBitsOfPlainGloo) {
  constexpr int kSize = 3;
  constexpr std::size_t kCount = 100'003;
  std::vector<std::vector<float>> inputs(kSize, std::vector<float>(kCount));
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (auto& input : inputs)
    for (float& value : input) value = normal(random);
  for (const bool use_ring : {true, false}) {
    GlooOptions options;
    options.max_segment_bytes = 4096;
    if (!use_ring) options.algorithm = GlooOptions::Algorithm::kBcube;
    Groups groups = connect_threads(kSize, options);
    ::gloo::rendezvous::HashStore store;
    on_groups(groups, [&](int rank, GlooProcessGroup& group) {
      std::vector<float> ours = inputs[static_cast<std::size_t>(rank)];
      Collective collective;
      collective.count = kCount;
      collective.data = reinterpret_cast<std::byte*>(ours.data());
      ASSERT_TRUE(run(group, collective).ok());

      std::vector<float> plain = inputs[static_cast<std::size_t>(rank)];
      auto context = std::make_shared<::gloo::rendezvous::Context>(rank, kSize);
      // Plain Gloo does not show the secrets that the connections of our own devices need.
      auto device = ::gloo::transport::tcp::CreateDevice("127.0.0.1");
      context->connectFullMesh(store, device);
      ::gloo::AllreduceOptions gloo(context);
      gloo.setOutput(plain.data(), kCount);
      gloo.setMaxSegmentSize(4096);
      gloo.setAlgorithm(use_ring ? ::gloo::AllreduceOptions::Algorithm::RING
                                 : ::gloo::AllreduceOptions::Algorithm::BCUBE);
      gloo.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&::gloo::sum<float>));
      ::gloo::allreduce(gloo);
      EXPECT_EQ(std::memcmp(ours.data(), plain.data(), kCount * sizeof(float)), 0);
    });
  }
}

template <typename T>
Collective sum_of(std::vector<T>& data, DType dtype, Reduction reduction) {
  Collective collective;
  collective.dtype = dtype;
  collective.reduction = reduction;
  collective.count = data.size();
  collective.data = reinterpret_cast<std::byte*>(data.data());
  return collective;
}

// The bits of elements that were scaled before, for numbers and a factor whose every rounding
// counts.
template <typename T>
void expect_scaled_sums(GlooProcessGroup& group, DType dtype, T factor) {
  std::mt19937 random(static_cast<unsigned>(group.rank()));
  std::normal_distribution<T> normal;
  for (const Reduction reduction : {Reduction::kNative, Reduction::kRankOrdered}) {
    for (const std::size_t count : {1u, 2u, 5u, 17u, 64u, 1000u, 4099u}) {
      std::vector<T> data(count);
      for (T& value : data) value = normal(random);
      std::vector<T> expected = data;
      for (T& value : expected) value *= factor;
      Collective scaled = sum_of(data, dtype, reduction);
      scaled.factor = factor;
      ASSERT_TRUE(run(group, sum_of(expected, dtype, reduction)).ok());
      ASSERT_TRUE(run(group, scaled).ok());
      EXPECT_EQ(std::memcmp(data.data(), expected.data(), count * sizeof(T)), 0)
          << group.size() << " ranks, " << count << " elements of " << name_of(dtype);
    }
  }
}

TEST(GlooProcessGroup, ScaledSumsHaveTheBitsOfScaledElements) {
  for (const int size : {2, 3, 4, 5}) {
    for (const std::uint64_t segment : {200u, 1u << 20}) {
      GlooOptions options;
      options.max_segment_bytes = segment;
      Groups groups = connect_threads(size, options);
      on_groups(groups, [size](int, GlooProcessGroup& group) {
        ASSERT_TRUE(group.can_scale(DType::kFloat32));
        expect_scaled_sums(group, DType::kFloat32, 1.0f / static_cast<float>(size + 1));
        expect_scaled_sums(group, DType::kFloat64, 1.0 / (size + 1));
      });
    }
  }
}

// As many as a model of thousands of buckets has in flight at once.
TEST(GlooProcessGroup, ThousandsOfCollectivesMayBeInFlight) {
  constexpr std::size_t kCollectives = 3000;
  Groups groups = connect_threads(2, GlooOptions());
  on_groups(groups, [](int rank, GlooProcessGroup& group) {
    std::vector<float> data(kCollectives);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>(i) + static_cast<float>(rank) / 2;
    std::deque<Work> works(kCollectives);
    for (std::size_t i = 0; i < data.size(); ++i) {
      Collective sum;
      sum.count = 1;
      sum.data = reinterpret_cast<std::byte*>(&data[i]);
      ASSERT_TRUE(group.start(sum, works[i]).ok()) << i;
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_TRUE(works[i].wait(platform::Deadline::never()).ok()) << i;
      ASSERT_EQ(data[i], 2 * static_cast<float>(i) + 0.5f);
    }
  });
}

TEST(GlooProcessGroup, AnAbortEndsAllThatAreInFlight) {
  Groups groups = connect_threads(2, with_timeout(seconds(30)));
  std::deque<Work> works(1100);
  std::vector<Elements> data;
  for (std::size_t i = 0; i < works.size(); ++i) data.push_back(part(DType::kInt32, 0, 3));
  for (std::size_t i = 0; i < works.size(); ++i)  // rank 1 does not come: none of them ends
    ASSERT_TRUE(groups[0]->start(sum_of(data[i]), works[i]).ok());
  groups[0]->abort(Status(Code::kAborted, "enough"));
  for (Work& work : works) EXPECT_EQ(work.wait(Deadline::in(seconds(20))).code(), Code::kAborted);
}

TEST(GlooProcessGroup, RefusesToScaleWhatItCannot) {
  GlooOptions bcube;
  bcube.algorithm = GlooOptions::Algorithm::kBcube;
  for (const auto& [size, options, dtype] :
       {std::tuple(1, GlooOptions(), DType::kFloat32), std::tuple(2, bcube, DType::kFloat32),
        std::tuple(2, GlooOptions(), DType::kFloat16)}) {
    Groups groups = connect_threads(size, options);
    EXPECT_FALSE(groups[0]->can_scale(dtype));
    Elements elements = part(dtype, 0, 4);
    Collective collective = sum_of(elements);
    collective.factor = 0.5;
    Work work;
    EXPECT_EQ(groups[0]->start(collective, work).code(), Code::kInvalidArgument);
    EXPECT_TRUE(work.done());
  }
}

TEST(GlooProcessGroup, OperationsInFlightAreExact) {
  for (const int workers : {1, 2, 4}) {
    GlooOptions options;
    options.workers = workers;
    Groups groups = connect_threads(3, options);
    on_groups(groups, [](int rank, GlooProcessGroup& group) {
      constexpr std::size_t kOperations = 60;
      std::vector<Elements> data;
      std::vector<Work> works(kOperations);
      // Sizes differ much, so that later operations overtake earlier ones.
      for (std::size_t i = 0; i < kOperations; ++i)
        data.push_back(part(DType::kFloat32, rank, i % 5 == 0 ? 200'000 : i));
      for (std::size_t i = 0; i < kOperations; ++i) {
        Collective collective = sum_of(data[i]);
        collective.bucket = static_cast<int>(i);
        ASSERT_TRUE(group.start(collective, works[i]).ok());
        EXPECT_EQ(works[i].sequence(), static_cast<std::int64_t>(i));
      }
      for (std::size_t i = kOperations; i-- > 0;) {
        ASSERT_TRUE(works[i].wait(Deadline::in(seconds(60))).ok());
        expect_total(data[i], 3);
      }
    });
  }
}

TEST(GlooProcessGroup, TwoGroupsAtOnceOnOneDevice) {
  Groups first = connect_threads(3, {});
  Groups second = connect_threads(3, {});
  on_ranks(6, [&](int thread) {
    GlooProcessGroup& group = *(thread < 3 ? first : second)[static_cast<std::size_t>(thread % 3)];
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(sum_once(group, 500).ok());
  });
}

TEST(GlooProcessGroup, ContextServesSeveralGroupsInTurn) {
  std::vector<std::shared_ptr<GlooContext>> contexts(3);
  auto store = std::make_shared<HashStore>();
  on_ranks(3, [&](int rank) {
    contexts[static_cast<std::size_t>(rank)] =
        GlooContext::connect(store, rank, 3, GlooContextOptions{}).value();
  });
  for (std::uint64_t round = 0; round < 20; ++round) {
    on_ranks(3, [&](int rank) {
      GlooOptions options;
      options.epoch = round;
      options.workers = static_cast<int>(round % 3) + 1;
      auto group = GlooProcessGroup::create(contexts[static_cast<std::size_t>(rank)], options);
      ASSERT_TRUE(group.has_value()) << group.error().to_string();
      const std::uint64_t operations = round % 7;
      for (std::uint64_t i = 0; i < operations; ++i) ASSERT_TRUE(sum_once(**group).ok());
    });
  }
  for (const auto& context : contexts) EXPECT_TRUE(context->health().ok());
}

// The context is free again after it.
TEST(GlooProcessGroup, ARefusedThreadIsToldAsOne) {
  auto context =
      GlooContext::connect(std::make_shared<HashStore>(), 0, 1, GlooContextOptions{}).value();
  {
    const RefusedThreads refused;
    const auto group = GlooProcessGroup::create(context, {});
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().code(), Code::kTransport);
    EXPECT_NE(group.error().to_string().find("refused a thread for a worker or the watchdog"),
              std::string::npos)
        << group.error().to_string();
  }
  EXPECT_TRUE(GlooProcessGroup::create(context, {}).has_value());
}

TEST(GlooProcessGroup, ContextIsUsedByOneGroupAtATime) {
  auto context =
      GlooContext::connect(std::make_shared<HashStore>(), 0, 1, GlooContextOptions{}).value();
  auto first = GlooProcessGroup::create(context, {});
  ASSERT_TRUE(first.has_value());
  const auto second = GlooProcessGroup::create(context, {});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kInvalidArgument);
  first->reset();
  EXPECT_TRUE(GlooProcessGroup::create(context, {}).has_value());
}

TEST(GlooProcessGroup, WrongArgumentsStartNothing) {
  Groups groups = connect_threads(1, {});
  GlooProcessGroup& group = *groups[0];
  Elements elements = part(DType::kByte, 0, 4);
  Work work;
  const Collective sum_of_bytes = sum_of(elements);
  Collective no_data = sum_of(elements);
  no_data.dtype = DType::kInt32;
  no_data.data = nullptr;
  Collective no_such_root = sum_of_bytes;
  no_such_root.op = Op::kBroadcast;
  no_such_root.root = 1;
  Collective nowhere = sum_of_bytes;
  nowhere.op = Op::kAllGather;
  Collective endless = no_data;
  endless.count = ~std::uint64_t{0} / 2;
  for (const Collective& wrong : {sum_of_bytes, no_data, no_such_root, nowhere, endless}) {
    const Status status = group.start(wrong, work);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_TRUE(work.done());
  }
  EXPECT_FALSE(group.can_reduce(DType::kByte));
  for (const DType dtype : kReducible) EXPECT_TRUE(group.can_reduce(dtype));
  EXPECT_TRUE(sum_once(group).ok());  // none of it harmed the group
}

TEST(GlooProcessGroup, WrongOptionsAreRefused) {
  auto context =
      GlooContext::connect(std::make_shared<HashStore>(), 0, 1, GlooContextOptions{}).value();
  GlooOptions no_workers;
  no_workers.workers = 0;
  GlooOptions no_time;
  no_time.timeout = milliseconds(0);
  GlooOptions no_segments;
  no_segments.max_segment_bytes = 0;
  for (const GlooOptions& wrong : {no_workers, no_time, no_segments}) {
    const auto group = GlooProcessGroup::create(context, wrong);
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().code(), Code::kInvalidArgument);
  }
}

// Programs that this process starts inherit what is ignored, and what its threads block.
TEST(GlooProcessGroup, WhatTheProcessDoesAboutSigpipeStays) {
  Processes child(1, [](int) {
    Groups groups = connect_threads(2, {});
    struct sigaction action {};
    sigset_t blocked;
    ::sigemptyset(&blocked);
    EXPECT_EQ(::sigaction(SIGPIPE, nullptr, &action), 0);
    EXPECT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0);
    EXPECT_TRUE(action.sa_handler == SIG_DFL);
    EXPECT_EQ(::sigismember(&blocked, SIGPIPE), 0);
    return 0;
  });
  EXPECT_EQ(child.wait(0), 0);
}

}  // namespace
}  // namespace lockstep
