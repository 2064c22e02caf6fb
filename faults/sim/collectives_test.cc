#include "faults/sim/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "faults/sim/job_for_test.h"
#include "reference/order.h"
#include "reference/test_arithmetic.h"

namespace lockstep::simulated {
namespace {

using simulation::End;
using simulation::Policy;

struct Type {
  DType dtype;
  reference::DType same;
};
constexpr Type kTypes[] = {{DType::kFloat64, reference::DType::kFloat64},
                           {DType::kFloat32, reference::DType::kFloat32},
                           {DType::kFloat16, reference::DType::kFloat16},
                           {DType::kBFloat16, reference::DType::kBFloat16}};

// The numbers have similar magnitudes, so that every addition rounds and the order has an effect.
std::vector<std::uint64_t> random_elements(std::mt19937_64& random, reference::DType dtype,
                                           std::uint64_t count) {
  std::uniform_real_distribution<double> draw(-8, 8);
  std::vector<std::uint64_t> out;
  for (std::uint64_t i = 0; i < count; ++i)
    out.push_back(reference::round_from_double(dtype, draw(random)));
  return out;
}

std::vector<std::byte> pack(std::span<const std::uint64_t> elements, std::size_t bytes_each) {
  std::vector<std::byte> out(elements.size() * bytes_each);
  for (std::size_t i = 0; i < elements.size(); ++i)
    std::memcpy(out.data() + i * bytes_each, &elements[i], bytes_each);  // little endian
  return out;
}

// Sums the contributions x[rank][element] in the declared order.
template <class Runs>
std::vector<std::uint64_t> fold(const Runs& runs, reference::DType dtype,
                                const std::vector<std::vector<std::uint64_t>>& x) {
  std::vector<std::uint64_t> out;
  for (const auto& run : runs)
    for (std::uint64_t e = out.size(); e < run.end; ++e) {
      std::vector<std::uint64_t> values;
      for (const auto& of_rank : x) values.push_back(of_rank[e]);
      for (std::size_t a = 0; a + 1 < x.size(); ++a)
        values[run.additions[a].into] =
            reference::add(dtype, values[run.additions[a].into], values[run.additions[a].from]);
      out.push_back(values[run.result]);
    }
  return out;
}

struct Case {
  std::uint32_t ranks;
  std::uint64_t count;
  Type type;
  std::size_t max_segment_bytes = std::size_t{1024} * 1024;
  Algorithm algorithm = Algorithm::kRing;
  Reduction reduction = Reduction::kNative;
};

// Returns the number of elements for which the order differs from adding rank by rank, or -1 if a
// result was wrong.
int check_all_reduce(Job& job, const Case& test, std::mt19937_64& random) {
  std::vector<std::vector<std::uint64_t>> x;
  std::vector<std::vector<std::byte>> data;
  const std::size_t bytes = size_of(test.type.dtype);
  for (std::uint32_t rank = 0; rank < test.ranks; ++rank) {
    x.push_back(random_elements(random, test.type.same, test.count));
    data.push_back(pack(x.back(), bytes));
  }
  job.options.algorithm = test.algorithm;
  job.options.max_segment_bytes = test.max_segment_bytes;
  job.schedule.seed = random();
  const simulation::Outcome outcome = job.run([&](std::uint32_t rank, SimProcessGroup& group) {
    Collective collective;
    collective.dtype = test.type.dtype;
    collective.reduction = test.reduction;
    collective.count = test.count;
    collective.data = data[rank].data();
    const Status status = lockstep::run(group, collective);
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
  const auto expected =
      test.reduction == Reduction::kRankOrdered
          ? fold(reference::rank_order(test.ranks, test.count), test.type.same, x)
      : test.algorithm == Algorithm::kRing
          ? fold(reference::gloo_ring(test.ranks, test.count, bytes, test.max_segment_bytes),
                 test.type.same, x)
          : fold(reference::gloo_bcube(test.ranks, test.count), test.type.same, x);
  const std::vector<std::byte> expected_bytes = pack(expected, bytes);
  for (const auto& result : data)
    if (outcome.end != End::kFinished || result != expected_bytes) return -1;
  const auto naive = fold(reference::rank_order(test.ranks, test.count), test.type.same, x);
  int differing = 0;
  for (std::size_t e = 0; e < naive.size(); ++e) differing += naive[e] != expected[e];
  return differing;
}

std::string text_of(const Case& test) {
  return std::to_string(test.ranks) + " ranks, " + std::to_string(test.count) + " " +
         name_of(test.type.dtype) + ", segments of " + std::to_string(test.max_segment_bytes);
}

constexpr std::uint64_t kCounts[] = {1, 2, 3, 7, 15, 16, 17, 33, 100, 257};

TEST(Collectives, TheRingAddsInTheDeclaredOrder) {
  std::mt19937_64 random(11);
  int differing = 0;
  for (std::uint32_t ranks = 2; ranks <= 8; ++ranks) {
    Job job(ranks);
    for (const Type& type : kTypes)
      for (const std::uint64_t count : kCounts)
        for (const std::size_t segment : {std::size_t{1}, std::size_t{12}, std::size_t{1} << 20}) {
          const Case test{ranks, count, type, segment};
          const int here = check_all_reduce(job, test, random);
          ASSERT_GE(here, 0) << text_of(test);
          differing += here;
        }
  }
  EXPECT_GT(differing, 1000);  // the order is distinguishable from the naive one
}

TEST(Collectives, TheBcubeAddsInTheDeclaredOrder) {
  std::mt19937_64 random(12);
  int differing = 0;
  for (std::uint32_t ranks = 2; ranks <= 8; ++ranks) {
    Job job(ranks);
    for (const Type& type : kTypes)
      for (const std::uint64_t count : kCounts) {
        const Case test{ranks, count, type, 1024, Algorithm::kBcube};
        const int here = check_all_reduce(job, test, random);
        ASSERT_GE(here, 0) << text_of(test);
        differing += here;
      }
  }
  EXPECT_GT(differing, 500);
}

TEST(Collectives, RankOrderedSumsAddInTheOrderOfTheRanksWhateverTheAlgorithm) {
  std::mt19937_64 random(13);
  for (std::uint32_t ranks = 2; ranks <= 8; ++ranks) {
    Job job(ranks);
    for (const Type& type : kTypes)
      for (const std::uint64_t count : kCounts)
        for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kBcube}) {
          const Case test{ranks, count, type, 1024, algorithm, Reduction::kRankOrdered};
          ASSERT_EQ(check_all_reduce(job, test, random), 0) << text_of(test);
        }
  }
}

TEST(Collectives, ScheduleAndLatencyDoNotChangeABit) {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kBcube})
    for (int i = 0; i < 300; ++i) {
      std::mt19937_64 random(static_cast<std::uint64_t>(i % 3));
      Job job(5);
      job.schedule.policy = static_cast<Policy>(i % 4);
      job.latency.spread = Duration(i % 5 * 1000);
      ASSERT_GE(check_all_reduce(job, {5, 37, kTypes[1], 1024, algorithm}, random), 0);
    }
}

TEST(Collectives, IntegersAreSummed) {
  Job job(3);
  std::vector<std::vector<std::int32_t>> data(3, std::vector<std::int32_t>(20));
  for (std::int32_t r = 0; r < 3; ++r)
    for (std::int32_t e = 0; e < 20; ++e)
      data[static_cast<std::size_t>(r)][static_cast<std::size_t>(e)] = r * 100 - e;
  EXPECT_EQ(job.run([&](std::uint32_t rank, SimProcessGroup& group) {
                 Collective collective;
                 collective.dtype = DType::kInt32;
                 collective.count = 20;
                 collective.data = reinterpret_cast<std::byte*>(data[rank].data());
                 EXPECT_TRUE(lockstep::run(group, collective).ok());
               })
                .end,
            End::kFinished);
  for (const auto& result : data)
    for (std::int32_t e = 0; e < 20; ++e)
      EXPECT_EQ(result[static_cast<std::size_t>(e)], 300 - 3 * e);
}

TEST(Collectives, BroadcastCopiesFromEveryRoot) {
  for (std::uint32_t ranks = 1; ranks <= 5; ++ranks)
    for (std::uint32_t root = 0; root < ranks; ++root) {
      Job job(ranks);
      job.schedule.seed = root;
      std::vector<std::string> data(ranks, "nothing yet");
      data[root] = "the message";
      EXPECT_EQ(job.run([&](std::uint32_t rank, SimProcessGroup& group) {
                     Collective collective;
                     collective.op = Op::kBroadcast;
                     collective.dtype = DType::kByte;
                     collective.root = static_cast<int>(root);
                     collective.count = data[rank].size();
                     collective.data = reinterpret_cast<std::byte*>(data[rank].data());
                     EXPECT_TRUE(lockstep::run(group, collective).ok());
                   })
                    .end,
                End::kFinished);
      for (const std::string& result : data) EXPECT_EQ(result, "the message");
    }
}

TEST(Collectives, GatherCollectsInRankOrder) {
  for (std::uint32_t ranks = 1; ranks <= 5; ++ranks) {
    Job job(ranks);
    std::vector<std::string> gathered(ranks, std::string(std::size_t{2} * ranks, '-'));
    EXPECT_EQ(job.run([&](std::uint32_t rank, SimProcessGroup& group) {
                   std::string mine = "r" + std::to_string(rank);
                   Collective collective;
                   collective.op = Op::kAllGather;
                   collective.dtype = DType::kByte;
                   collective.count = 2;
                   collective.data = reinterpret_cast<std::byte*>(mine.data());
                   collective.gathered = reinterpret_cast<std::byte*>(gathered[rank].data());
                   EXPECT_TRUE(lockstep::run(group, collective).ok());
                 })
                  .end,
              End::kFinished);
    for (const std::string& result : gathered)
      EXPECT_EQ(result, std::string("r0r1r2r3r4").substr(0, std::size_t{2} * ranks));
  }
}

TEST(Collectives, NoElementsIsACollectiveLikeAnyOther) {
  for (const Op op : {Op::kAllReduceSum, Op::kBroadcast, Op::kAllGather}) {
    Job job(3);
    EXPECT_EQ(job.run([&](std::uint32_t, SimProcessGroup& group) {
                   Collective collective;
                   collective.op = op;
                   EXPECT_TRUE(lockstep::run(group, collective).ok());
                 })
                  .end,
              End::kFinished);
  }
}

}  // namespace
}  // namespace lockstep::simulated
