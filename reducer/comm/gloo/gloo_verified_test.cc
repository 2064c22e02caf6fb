// Verified collectives over real sockets (F3): they give the bits of rank-ordered ones, and every
// change that a transport makes on the way is found. The transport is Gloo's, behind a device that
// changes what it is given to send.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "reducer/comm/gloo/device.h"
#include "reducer/comm/gloo/forwarding_transport.h"
#include "reducer/comm/gloo/group_test_util.h"

namespace lockstep::testing {
namespace {

// May change a message to a peer in an exchange, and its length.
using Change = std::function<void(int to, std::byte* bytes, std::size_t& length)>;

// Makes groups of which rank 1 sends through `change`.
Groups connect_changing(int size, const Change& change) {
  auto store = std::make_shared<HashStore>();
  Groups groups(static_cast<std::size_t>(size));
  on_ranks(size, [&](int rank) {
    GlooContextOptions connection = tested_connection();
    if (rank == 1)
      connection.device = std::make_shared<ForwardingDevice>(
          *shared_device("127.0.0.1"), [change](const ForwardedSend& send) {
            if (send.part_of == ForwardedSend::kAllToAll)
              change(send.to, send.buffer.data() + send.offset, send.bytes);
          });
    auto group = GlooProcessGroup::connect(store, rank, size,
                                           with_timeout(std::chrono::seconds(20)), connection);
    ASSERT_TRUE(group.has_value()) << group.error().to_string();
    groups[static_cast<std::size_t>(rank)] = std::move(*group);
  });
  return groups;
}

Collective verified(Op op, std::vector<float>& data, std::vector<float>* gathered = nullptr) {
  Collective collective;
  collective.op = op;
  collective.verify = true;
  collective.count = data.size();
  collective.data = reinterpret_cast<std::byte*>(data.data());
  if (gathered != nullptr) collective.gathered = reinterpret_cast<std::byte*>(gathered->data());
  return collective;
}

std::vector<float> numbers(int rank, std::size_t count) {
  std::vector<float> data;
  for (std::size_t i = 0; i < count; ++i)
    data.push_back(static_cast<float>(rank + 1) * 0.1f + static_cast<float>(i) * 0.7f);
  return data;
}

TEST(GlooVerified, F3VerifiedCollectivesHaveTheBitsOfTheOthers) {
  for (const int size : {1, 2, 3, 5}) {
    Groups groups = connect_threads(size, with_timeout(std::chrono::seconds(20)));
    on_groups(groups, [&](int rank, GlooProcessGroup& group) {
      ASSERT_TRUE(group.can_verify());
      for (const std::size_t count : {1u, 4u, 5u, 17u, 50'003u})
        for (const double factor : {1.0, 0.3}) {
          if (factor != 1.0 && !group.can_scale(DType::kFloat32)) continue;
          std::vector<float> data = numbers(rank, count);
          std::vector<float> other = data;
          Collective sum = verified(Op::kAllReduceSum, data);
          sum.factor = factor;
          ASSERT_TRUE(run(group, sum).ok());
          sum.verify = false;
          sum.reduction = Reduction::kRankOrdered;
          sum.data = reinterpret_cast<std::byte*>(other.data());
          ASSERT_TRUE(run(group, sum).ok());
          ASSERT_EQ(data, other);
          data = numbers(rank, count);
          Collective broadcast = verified(Op::kBroadcast, data);
          broadcast.root = size - 1;
          ASSERT_TRUE(run(group, broadcast).ok());
          ASSERT_EQ(data, numbers(size - 1, count));
          data = numbers(rank, count);
          std::vector<float> all(count * static_cast<std::size_t>(size));
          ASSERT_TRUE(run(group, verified(Op::kAllGather, data, &all)).ok());
          for (int r = 0; r < size; ++r)
            ASSERT_TRUE(std::equal(all.begin() + r * static_cast<std::ptrdiff_t>(count),
                                   all.begin() + (r + 1) * static_cast<std::ptrdiff_t>(count),
                                   numbers(r, count).begin()));
        }
    });
  }
}

struct Fault {
  const char* what;
  Change change;
};

// Rank 1's second message to rank 2 is changed: that of the second exchange of the first
// collective.
TEST(GlooVerified, F3WhatIsChangedOnTheWireIsFoundAndItsSenderNamedOnAllRanks) {
  std::vector<std::byte> before;
  const Fault faults[] = {
      {"flip", [](int, std::byte* bytes, std::size_t& n) { bytes[n / 2] ^= std::byte{4}; }},
      {"truncate", [](int, std::byte*, std::size_t& n) { n = 80; }},
      {"shift", [](int, std::byte* b, std::size_t& n) { std::rotate(b, b + n - 4, b + n); }},
      {"stale",
       [&](int, std::byte* b, std::size_t&) { std::copy(before.begin(), before.end(), b); }},
      {"swap",  // It is swapped with the bytes behind it, which are the frame of rank 3.
       [](int, std::byte* b, std::size_t& n) { std::swap_ranges(b, b + n, b + n); }},
  };
  for (const Fault& fault : faults) {
    std::atomic<int> sent{0};
    Groups groups = connect_changing(4, [&](int to, std::byte* bytes, std::size_t& length) {
      if (to != 2) return;
      if (sent++ == 1) fault.change(to, bytes, length);
      before.assign(bytes, bytes + length);
    });
    on_groups(groups, [&](int rank, GlooProcessGroup& group) {
      std::vector<float> data = numbers(rank, 103);
      Collective sum = verified(Op::kAllReduceSum, data);
      sum.pass = 3;
      sum.bucket = 1;
      Status status = run(group, sum);
      // The first one may have succeeded on other ranks.
      if (status.ok()) status = run(group, sum);
      ASSERT_FALSE(status.ok()) << fault.what << ", rank " << rank;
      const Failure& failure = status.failure();
      EXPECT_EQ(failure.code, Code::kCorrupted) << fault.what << ": " << status.to_string();
      EXPECT_EQ(failure.suspect, 1) << status.to_string();
      EXPECT_TRUE(failure.rank == 2 || failure.rank == 3) << status.to_string();
      EXPECT_EQ(failure.reported_by, rank);
      EXPECT_EQ(failure.sequence, 0);
      EXPECT_EQ(failure.pass, 3);
      EXPECT_EQ(failure.bucket, 1);
      EXPECT_EQ(failure.collective, "all_reduce");
    });
    EXPECT_GE(sent.load(), 2);
  }
}

// The control: where nothing is verified, nobody notices the same flip.
TEST(GlooVerified, F3UnverifiedSumsTakeAFlippedBit) {
  Groups groups = connect_changing(2, [](int, std::byte* bytes, std::size_t& length) {
    if (length > 0) bytes[length - 2] ^= std::byte{1};
  });
  on_groups(groups, [&](int rank, GlooProcessGroup& group) {
    std::vector<float> data(8, static_cast<float>(rank + 1));
    Collective sum = verified(Op::kAllReduceSum, data);
    sum.verify = false;
    sum.reduction = Reduction::kRankOrdered;
    ASSERT_TRUE(run(group, sum).ok());
    EXPECT_NE(std::count(data.begin(), data.end(), 3.0f), 8);
  });
}

TEST(GlooVerified, F6RanksThatDifferInItAreToldSo) {
  Groups groups = connect_threads(2, with_timeout(std::chrono::seconds(20)));
  on_groups(groups, [&](int rank, GlooProcessGroup& group) {
    std::vector<float> data(8, 1.0f);
    Collective sum = verified(Op::kAllReduceSum, data);
    sum.verify = rank == 0;
    const Status status = run(group, sum);
    ASSERT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.to_string().find("verified"), std::string::npos) << status.to_string();
  });
}

}  // namespace
}  // namespace lockstep::testing
