// Threads beside each other over real sockets: two threads of one rank start collectives on one
// group (F6); groups are dropped and made anew while other ranks connect (F5).
// faults/sim/second_thread_test.cc has the first one in many schedules.
#include <gtest/gtest.h>

#include "reducer/comm/gloo/group_test_util.h"

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{30'000};  // A test must not need this timeout.
constexpr std::size_t kEach = 8;       // collectives of a thread

// Runs the collectives of one thread of a rank, whose sums have `count` elements.
void sum_all(GlooProcessGroup& group, std::size_t count, std::vector<Status>& statuses) {
  for (std::size_t i = 0; i < kEach; ++i) {
    Elements elements = part(DType::kFloat32, group.rank(), count);
    Work work;
    Status status = group.start(all_reduce_of(elements, DType::kFloat32), work);
    if (status.ok()) status = wait_behind(work, {&group});
    if (status.ok()) expect_total(elements, group.size());
    statuses.push_back(std::move(status));
  }
}

// Each of two threads sums elements of its own number. The ranks do not agree on an order: either
// all sums are right, or the ranks notice a mismatch, and a thread that ends well has its own sum.
TEST(GlooThreads, F6CollectivesOfTwoThreadsAreRightOrAMismatch) {
  for (int round = 0; round < 6; ++round) {
    Groups groups = connect_threads(2, with_timeout(kLong));
    std::vector<std::vector<Status>> statuses(4);
    on_threads(4, [&](int thread) {
      const auto rank = static_cast<std::size_t>(thread / 2);
      const std::size_t count = thread % 2 == 0 ? 3 : 50;
      sum_all(*groups[rank], count, statuses[static_cast<std::size_t>(thread)]);
    });
    for (std::size_t thread = 0; thread < statuses.size(); ++thread) {
      ASSERT_EQ(statuses[thread].size(), kEach);
      for (const Status& status : statuses[thread])
        EXPECT_TRUE(status.ok() || status.code() == Code::kMismatch ||
                    status.code() == Code::kPeerLost || status.code() == Code::kAborted)
            << "thread " << thread << ": " << status.to_string();
    }
  }
}

// Two threads that start the same collectives, in whatever order, always fit.
TEST(GlooThreads, G1EqualCollectivesOfTwoThreadsAreAllRight) {
  Groups groups = connect_threads(2, with_timeout(kLong));
  std::vector<std::vector<Status>> statuses(4);
  on_threads(4, [&](int thread) {
    const auto rank = static_cast<std::size_t>(thread / 2);
    sum_all(*groups[rank], 20, statuses[static_cast<std::size_t>(thread)]);
  });
  for (const auto& of_thread : statuses)
    for (const Status& status : of_thread) EXPECT_TRUE(status.ok()) << status.to_string();
}

// Every rank drops its last group, on a second thread, while it connects to the next one: in odd
// generations rank 2 stays out, so that it drops while the others connect.
TEST(GlooThreads, F5GroupsAreDroppedAndMadeAnewWhileOthersConnect) {
  constexpr int kRanks = 3;
  constexpr int kGenerations = 12;
  const auto store = std::make_shared<HashStore>();
  on_threads(kRanks, [&](int rank) {
    Group last;
    for (int generation = 0; generation < kGenerations; ++generation) {
      const int size = generation % 2 == 1 ? kRanks - 1 : kRanks;
      Group next;
      platform::Thread dropper("dropper", [&last] { last.reset(); });
      if (rank < size) {
        auto own = std::make_shared<PrefixStore>("generation " + std::to_string(generation), store);
        auto made = GlooProcessGroup::connect(std::move(own), rank, size, with_timeout(kLong));
        EXPECT_TRUE(made.has_value()) << made.error().to_string();
        if (made) next = std::move(*made);
      }
      dropper.join();
      if (next == nullptr) continue;
      const Status status = sum_once(*next);
      EXPECT_TRUE(status.ok()) << "rank " << rank << ", generation " << generation << ": "
                               << status.to_string();
      last = std::move(next);
    }
  });
}

}  // namespace
}  // namespace lockstep::testing
