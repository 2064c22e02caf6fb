// Threads beside each other over real sockets: two threads of one rank start collectives on one
// group (F6); groups are dropped and made anew while other ranks connect (F5); strangers connect
// and drop their connections in the meantime (F1).
// faults/sim/second_thread_test.cc has the first one in many schedules.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "reducer/base/status.h"
#include "reducer/comm/gloo/group_test_util.h"

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kThreadsTimeout{30'000};  // A test must not need this timeout.
constexpr std::size_t kEach = 8;                 // collectives of a thread

// Runs the collectives of one thread of a rank, whose sums have `count` elements.
void sum_all(GlooProcessGroup& group, std::size_t count, std::vector<Status>& statuses) {
  for (std::size_t i = 0; i < kEach; ++i) {
    Elements elements = part(DType::kFloat32, group.rank(), count);
    Work work;
    Status status = group.start(sum_of(elements), work);
    if (status.ok()) status = wait_behind(work, {&group});
    if (status.ok()) expect_total(elements, group.size());
    statuses.push_back(std::move(status));
  }
}

// Each of two threads sums elements of its own number. The ranks do not agree on an order: either
// all sums are right, or the ranks notice a mismatch, and a thread that ends well has its own sum.
TEST(GlooThreads, F6CollectivesOfTwoThreadsAreRightOrAMismatch) {
  for (int round = 0; round < 6; ++round) {
    Groups groups = connect_threads(2, with_timeout(kThreadsTimeout));
    std::vector<std::vector<Status>> statuses(4);
    on_ranks(4, [&](int thread) {
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
  Groups groups = connect_threads(2, with_timeout(kThreadsTimeout));
  std::vector<std::vector<Status>> statuses(4);
  on_ranks(4, [&](int thread) {
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
  on_ranks(kRanks, [&](int rank) {
    Group last;
    for (int generation = 0; generation < kGenerations; ++generation) {
      const int size = generation % 2 == 1 ? kRanks - 1 : kRanks;
      Group next;
      platform::Thread dropper("dropper", [&last] { last.reset(); });
      if (rank < size) {
        auto own = std::make_shared<PrefixStore>("generation " + std::to_string(generation), store);
        auto made = connect_rank(std::move(own), rank, size, with_timeout(kThreadsTimeout));
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

// Returns the ports at which this process itself listens.
std::vector<std::uint16_t> listening_ports() {
  std::vector<std::uint16_t> ports;
  constexpr int kMostDescriptors = 512;
  for (int fd = 0; fd < kMostDescriptors; ++fd) {
    int accepts = 0;
    socklen_t bytes = sizeof accepts;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &bytes) != 0 || accepts == 0)
      continue;
    sockaddr_in address{};
    bytes = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
        address.sin_family == AF_INET)
      ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

// Connects to the port, sends `bytes` of no protocol, and drops the connection.
bool visit(std::uint16_t port, std::size_t bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_there = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  const std::string foreign(bytes, 'x');
  if (is_there && bytes > 0) (void)!::send(fd, foreign.data(), foreign.size(), MSG_NOSIGNAL);
  ::close(fd);
  return is_there;
}

// Strangers connect to the ranks' ports and drop the connections, before they have sent anything,
// after a part of what a rank would send, or after more than that. A rank's port takes the first
// connection that comes, so a stranger can keep the ranks from connecting; but it can make no rank
// wait beyond its timeout, end its process, or be taken for a rank.
TEST(GlooThreads, F1ConnectionsOfStrangersThatAreDroppedEndInAnErrorOrDoNotMatter) {
  constexpr int kRanks = 3;
  constexpr milliseconds kShort{4000};
  std::atomic<bool> is_over{false};
  std::atomic<int> visits{0};
  platform::Thread stranger("stranger", [&] {
    for (std::size_t i = 0; !is_over; ++i) {
      for (const std::uint16_t port : listening_ports())
        if (visit(port, std::array<std::size_t, 3>{0, 3, 200}[i % 3])) ++visits;
      pause_for(milliseconds(i % 4));
    }
  });
  // On a busy machine, eight rounds may be over before the stranger has found an open port.
  for (int round = 0; round < 8 || (visits == 0 && round < 200); ++round) {
    const auto store = std::make_shared<HashStore>();
    on_ranks(kRanks, [&](int rank) {
      const auto deadline = platform::Deadline::in(4 * kShort);
      auto group = connect_rank(store, rank, kRanks, with_timeout(kShort));
      const Status status = group ? sum_once(**group) : group.error();
      EXPECT_TRUE(status.ok() || concerns_group(status.code())) << status.to_string();
      EXPECT_FALSE(deadline.passed()) << status.to_string();
    });
  }
  is_over = true;
  stranger.join();
  EXPECT_GT(visits, 0);
}

}  // namespace
}  // namespace lockstep::testing
