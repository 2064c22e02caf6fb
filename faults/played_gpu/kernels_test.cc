// The played kernels over connections as NCCL makes them, in the layout of each version.
#include "faults/played_gpu/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "faults/played_gpu/test_kernel_ranks.h"

namespace lockstep::played {
namespace {

using ::testing::HasSubstr;
using Kind = Function::Kind;

constexpr int kFloat = 7;
constexpr int kTestRanks = 3;

class PlayedKernels : public ::testing::TestWithParam<int> {
 protected:
  static const Layout& layout() {
    return *std::find_if(layouts().begin(), layouts().end(),
                         [](const Layout& each) { return each.version == GetParam(); });
  }
  static std::vector<int> rows() {
    std::vector<int> all(rows_of(layout()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  // The number of a function: rows are their own numbers here.
  static std::uint32_t number_of(Kind kind, int operation = kSum) {
    const std::vector<int> all = rows();
    for (const int row : all) {
      const Result<Function> found = find_function(layout(), all, row);
      const bool reduces = kind != Kind::kAllGather && kind != Kind::kBroadcast;
      if (found && row > 0 && found->kind == kind &&
          (!reduces || (found->operation == operation && found->type == kFloat)))
        return static_cast<std::uint32_t>(row);
    }
    ADD_FAILURE() << "no such function";
    return 0;
  }
  // A description for one channel; counts in elements.
  static std::vector<std::byte> collective(const void* in, void* out, std::size_t count,
                                           std::uint32_t root = 0, std::uint64_t scalar = 0) {
    std::vector<std::byte> work(layout().coll_bytes);
    const auto put = [&work](std::size_t offset, const auto& value) {
      std::memcpy(work.data() + offset, &value, sizeof value);
    };
    put(4, root);
    put(layout().coll_send_buffer, in);
    put(layout().coll_receive_buffer, out);
    put(layout().coll_counts, std::uint64_t{count});
    put(layout().coll_counts + 24, std::uint64_t{1});  // chunks of 512 bytes
    put(layout().coll_scalar, scalar);
    return work;
  }
  static std::vector<float> numbers(int rank, std::size_t count) {
    std::vector<float> all(count);
    for (std::size_t i = 0; i < count; ++i)
      all[i] = static_cast<float>(static_cast<int>(i % 100) * (rank + 1));
    return all;
  }
  static float total(std::size_t i) { return numbers(5, i + 1)[i]; }  // 1 + 2 + 3

  static Status start(TestRanks& ranks, int rank, Kind kind, const std::vector<std::byte>& work,
                      int operation = kSum) {
    return ranks.launch(rank, kKindCollective, number_of(kind, operation), work.data(), 1,
                        work.size());
  }
};

TEST_P(PlayedKernels, AnAllReduceSumsEveryElementOnce) {
  for (const std::size_t count : {1u, 77u, 5000u}) {
    TestRanks ranks(layout(), kTestRanks, 2);
    ranks.use_rows(rows());
    std::vector<std::vector<float>> in;
    std::vector<std::vector<float>> out(kTestRanks, std::vector<float>(count));
    for (int rank = 0; rank < kTestRanks; ++rank) in.push_back(numbers(rank, count));
    for (std::size_t rank = 0; rank < kTestRanks; ++rank) {
      const auto work = collective(in[rank].data(), out[rank].data(), count);
      ASSERT_TRUE(start(ranks, static_cast<int>(rank), Kind::kAllReduce, work).ok());
    }
    ranks.wait();
    for (const std::vector<float>& each : out)
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(each[i], total(i)) << i;
    // Twice around the ring, but for the chunk that a rank begins with and the one that it ends
    // with.
    std::size_t sent = 0;
    for (int rank = 0; rank < kTestRanks; ++rank)
      sent += ranks.bytes_moved(rank, (rank + 1) % kTestRanks, 0);
    EXPECT_EQ(sent, std::size_t{2} * (kTestRanks - 1) * count * sizeof(float));
  }
}

TEST_P(PlayedKernels, ManyOperationsOneAfterTheOtherKeepTheirSteps) {
  constexpr std::size_t kCount = 300;
  TestRanks ranks(layout(), kTestRanks, 2);
  ranks.use_rows(rows());
  std::vector<std::vector<float>> data(kTestRanks, std::vector<float>(kCount, 1));
  for (int round = 0; round < 4; ++round)
    for (std::size_t rank = 0; rank < kTestRanks; ++rank) {
      const auto work = collective(data[rank].data(), data[rank].data(), kCount);
      ASSERT_TRUE(start(ranks, static_cast<int>(rank), Kind::kAllReduce, work).ok());
    }
  ranks.wait();
  for (const std::vector<float>& each : data) EXPECT_EQ(each, std::vector<float>(kCount, 81));
}

TEST_P(PlayedKernels, AFactorScalesEachRanksElements) {
  constexpr std::size_t kCount = 100;
  TestRanks ranks(layout(), kTestRanks, 2);
  ranks.use_rows(rows());
  std::uint64_t half = 0;
  const float value = 0.5F;
  std::memcpy(&half, &value, sizeof value);
  std::vector<std::vector<float>> data;
  for (int rank = 0; rank < kTestRanks; ++rank) data.push_back(numbers(rank, kCount));
  for (std::size_t rank = 0; rank < kTestRanks; ++rank) {
    const auto work = collective(data[rank].data(), data[rank].data(), kCount, 0, half);
    ASSERT_TRUE(start(ranks, static_cast<int>(rank), Kind::kAllReduce, work, kPreMulSum).ok());
  }
  ranks.wait();
  for (const std::vector<float>& each : data)
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(each[i], total(i) / 2);
}

TEST_P(PlayedKernels, GatheringAndScatteringGoByRank) {
  constexpr std::size_t kCount = 700;
  TestRanks ranks(layout(), kTestRanks, 2);
  ranks.use_rows(rows());
  std::vector<std::vector<float>> parts;
  std::vector<std::vector<float>> whole(kTestRanks, std::vector<float>(kTestRanks * kCount));
  for (int rank = 0; rank < kTestRanks; ++rank) parts.push_back(numbers(rank, kCount));
  for (std::size_t rank = 0; rank < kTestRanks; ++rank) {
    const auto work = collective(parts[rank].data(), whole[rank].data(), kCount * sizeof(float));
    ASSERT_TRUE(start(ranks, static_cast<int>(rank), Kind::kAllGather, work).ok());
  }
  ranks.wait();
  std::vector<float> expected;
  for (const auto& part : parts) expected.insert(expected.end(), part.begin(), part.end());
  for (const auto& each : whole) ASSERT_EQ(each, expected);
  for (std::size_t rank = 0; rank < kTestRanks; ++rank) {
    const auto work = collective(whole[rank].data(), parts[rank].data(), kCount);
    ASSERT_TRUE(start(ranks, static_cast<int>(rank), Kind::kReduceScatter, work).ok());
  }
  ranks.wait();
  for (int rank = 0; rank < kTestRanks; ++rank) {
    const std::vector<float> mine = numbers(rank, kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(parts[static_cast<std::size_t>(rank)][i], mine[i] * kTestRanks);
  }
}

TEST_P(PlayedKernels, ABroadcastComesFromItsRootAndAReductionGoesThere) {
  constexpr std::size_t kCount = 700;
  for (std::uint32_t root = 0; root < kTestRanks; ++root) {
    TestRanks ranks(layout(), kTestRanks, 1);
    ranks.use_rows(rows());
    std::vector<std::vector<float>> data;
    for (int rank = 0; rank < kTestRanks; ++rank) data.push_back(numbers(rank, kCount));
    std::vector<std::vector<float>> out(kTestRanks, std::vector<float>(kCount));
    for (std::size_t rank = 0; rank < kTestRanks; ++rank) {
      const auto reduce = collective(data[rank].data(), out[rank].data(), kCount, root);
      ASSERT_TRUE(start(ranks, static_cast<int>(rank), Kind::kReduce, reduce).ok());
      const auto broadcast =
          collective(out[rank].data(), out[rank].data(), kCount * sizeof(float), root);
      ASSERT_TRUE(start(ranks, static_cast<int>(rank), Kind::kBroadcast, broadcast).ok());
    }
    ranks.wait();
    for (const auto& each : out)
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(each[i], total(i)) << root;
  }
}

// Each rank to each, itself included, in one kernel; messages of many chunks, and of nothing.
TEST_P(PlayedKernels, SendsAndReceivesGoTogether) {
  constexpr std::size_t kCount = 5000;
  TestRanks ranks(layout(), kTestRanks, 1);
  ranks.use_rows(rows());
  std::vector<std::vector<float>> out;
  std::vector<std::vector<float>> in(kTestRanks, std::vector<float>(kTestRanks * kCount));
  for (int rank = 0; rank < kTestRanks; ++rank) out.push_back(numbers(rank, kCount));
  for (std::size_t rank = 0; rank < kTestRanks; ++rank) {
    std::vector<P2pWork> works;
    for (std::size_t round = 0; round < kTestRanks; ++round) {
      const std::size_t to = (rank + round) % kTestRanks;
      const std::size_t from = (rank + kTestRanks - round) % kTestRanks;
      P2pWork work{};
      work.send_data = reinterpret_cast<std::byte*>(out[rank].data());
      work.receive_data = reinterpret_cast<std::byte*>(in[rank].data() + from * kCount);
      // From rank 2 nothing goes to rank 0.
      work.send_bytes = rank == 2 && to == 0 ? 0 : kCount * sizeof(float);
      work.receive_bytes = rank == 0 && from == 2 ? 0 : kCount * sizeof(float);
      work.send_rank = static_cast<int>(to);
      work.receive_rank = static_cast<int>(from);
      work.channels = work.send_channels = work.receive_channels = 1;
      work.send_chunk = work.receive_chunk = 7 << 3;
      works.push_back(work);
    }
    ASSERT_EQ(chunk_bytes(works[0].send_chunk), kTestStepBytes);
    ASSERT_TRUE(ranks
                    .launch(static_cast<int>(rank), kKindP2p, 0,
                            reinterpret_cast<const std::byte*>(works.data()), works.size(),
                            sizeof(P2pWork))
                    .ok());
  }
  ranks.wait();
  for (std::size_t rank = 0; rank < kTestRanks; ++rank)
    for (std::size_t from = 0; from < kTestRanks; ++from) {
      const bool is_nothing = rank == 0 && from == 2;
      const std::vector<float> expected =
          is_nothing ? std::vector<float>(kCount) : numbers(static_cast<int>(from), kCount);
      const auto begin = in[rank].begin() + static_cast<std::ptrdiff_t>(from * kCount);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), begin)) << rank << from;
    }
}

// Rank 0 waits for others that never come.
TEST_P(PlayedKernels, AnAbortEndsAKernelThatWaits) {
  TestRanks ranks(layout(), kTestRanks, 2);
  ranks.use_rows(rows());
  std::vector<float> data(100);
  const auto work = collective(data.data(), data.data(), data.size());
  ASSERT_TRUE(start(ranks, 0, Kind::kAllReduce, work).ok());
  ranks.abort(0);
  wait_for_aborted_kernels();
  ranks.wait();
}

TEST_P(PlayedKernels, WhatIsNotPlayedIsRefusedBeforeItRuns) {
  TestRanks ranks(layout(), kTestRanks, 2);
  ranks.use_rows(rows());
  std::vector<float> data(100);
  auto work = collective(data.data(), data.data(), data.size());
  const auto refusal = [&](std::uint32_t kind, std::uint32_t function, const auto& of) {
    const Status status =
        ranks.launch(0, kind, function, reinterpret_cast<const std::byte*>(of.data()), 1,
                     sizeof(of[0]) * of.size());
    return status.ok() ? "none" : status.failure().detail;
  };
  const std::uint32_t sum = number_of(Kind::kAllReduce);
  EXPECT_THAT(refusal(kKindCollective, sum - 1, work), HasSubstr("protocol 1: Ring and Simple"));
  EXPECT_THAT(refusal(kKindCollective, sum - kProtocols, work), HasSubstr("algorithm 0"));
  EXPECT_THAT(refusal(kKindCollective, number_of(Kind::kAllReduce, 1), work),
              HasSubstr("reductions other than sums"));
  EXPECT_THAT(refusal(2, sum, work), HasSubstr("work of the kind 2"));
  work[3] |= std::byte{2};
  EXPECT_THAT(refusal(kKindCollective, sum, work), HasSubstr("registered buffers"));
  std::vector<P2pWork> send(1);
  send[0].flags = 1;
  EXPECT_THAT(refusal(kKindP2p, 0, send), HasSubstr("by LL"));
  send[0].flags = 4;
  EXPECT_THAT(refusal(kKindP2p, 0, send), HasSubstr("registered buffers"));
  ranks.wait();
}

std::vector<int> versions() {
  std::vector<int> all;
  for (const Layout& each : layouts()) all.push_back(each.version);
  return all;
}
INSTANTIATE_TEST_SUITE_P(EachVersion, PlayedKernels, ::testing::ValuesIn(versions()));

}  // namespace
}  // namespace lockstep::played
