// Ranks in network namespaces, and what their reducer says when the network between them, or one of
// them, fails: an error on every survivor, that names the right rank. These are the claims of the
// reducer (F1, F2) where packets are lost, which no fault of the gloo lane can do.
//
// Where a fault must be noticed by connections alone, the timeout is so long that no test would
// wait for it. The tests are skipped where the system has no namespaces, or no nft.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <filesystem>

#include "properties/hosts/test_namespace_ranks.h"

extern char** environ;

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLong{50};          // a timeout that nobody needs
constexpr milliseconds kShort{2000};  // one that silence costs
constexpr int kForEver = 100'000'000;
constexpr int kSteps = 10;

class NamespaceRanksTest : public NamespaceTest {
 protected:
  // Every rank but the victim fails, and names the victim.
  static void expect_named(NamespaceRanks& ranks, int victim) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      ranks.wait_until_done(rank);
      EXPECT_NE(ranks[rank].code, 0) << "rank " << rank << " did not fail";
      EXPECT_EQ(ranks[rank].named(), victim) << "rank " << rank << ": " << ranks[rank].text;
    }
  }
  static void print_times(NamespaceRanks& ranks, std::int64_t begin_ms) {
    for (int rank = 0; rank < ranks.size(); ++rank)
      if (ranks[rank].is_done)
        std::printf("rank %d after %lld ms: %s\n", rank,
                    static_cast<long long>(ranks[rank].failed_ms - begin_ms), ranks[rank].text);
  }
};

// They need nft, too.
class DroppedPackets : public NamespaceRanksTest {
 protected:
  void SetUp() override {
    NamespaceRanksTest::SetUp();
    need_nft();
  }
};

const std::string kOut = "oifname data";
const std::string kIn = "iifname data";
std::string pair_out(int peer) {
  return kOut + " ip daddr " + data_address(static_cast<std::uint32_t>(peer));
}
std::string pair_in(int peer) {
  return kIn + " ip saddr " + data_address(static_cast<std::uint32_t>(peer));
}

TEST_F(NamespaceRanksTest, TrainWithoutAFault) {
  NamespaceRanks ranks(3, kLong, kSteps, training());
  for (int rank = 0; rank < 3; ++rank) {
    ranks.wait_until_done(rank);
    EXPECT_EQ(ranks[rank].code, 0) << ranks[rank].text;
    EXPECT_EQ(ranks[rank].operations, kSteps);
  }
}

TEST_F(NamespaceRanksTest, AKilledRankIsNamedByItsConnections) {
  NamespaceRanks ranks(3, kLong, kForEver, training());
  ranks.wait_for_operations(kSteps);
  const auto begin = now_ms();
  ranks.signal(1, SIGKILL);
  expect_named(ranks, 1);
  print_times(ranks, begin);
}

TEST_F(NamespaceRanksTest, AKilledRankIsNamedByAllOfTen) {
  NamespaceRanks ranks(10, kLong, kForEver, training());
  ranks.wait_for_operations(kSteps);
  const auto begin = now_ms();
  ranks.signal(4, SIGKILL);
  expect_named(ranks, 4);
  print_times(ranks, begin);
}

// The child is a program that the rank has started, like a data loader. It must not keep the
// connections of the rank open. It lives for as long as the test: until nobody can write to the
// pipe that it reads.
TEST_F(NamespaceRanksTest, AKilledRankIsNamedWhileAChildOfItLives) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const auto with_child = [&pipe](const std::shared_ptr<ProcessGroup>& group,
                                  const std::shared_ptr<Store>& store) {
    std::string program = "cat";
    char* arguments[] = {program.data(), nullptr};
    pid_t child = -1;
    if (group->rank() == 1) {
      posix_spawn_file_actions_t actions;
      ::posix_spawn_file_actions_init(&actions);
      ::posix_spawn_file_actions_adddup2(&actions, pipe[0], STDIN_FILENO);
      EXPECT_EQ(::posix_spawnp(&child, "cat", &actions, nullptr, arguments, environ), 0);
      ::posix_spawn_file_actions_destroy(&actions);
    }
    const auto train = training()(group, store);
    return [train, child] {
      return child > 0 && ::kill(child, 0) != 0 ? Status(Code::kInternal, "the child has ended")
                                                : train();
    };
  };
  NamespaceRanks ranks(3, kLong, kForEver, with_child);
  ranks.wait_for_operations(kSteps);
  const auto begin = now_ms();
  ranks.signal(1, SIGKILL);
  expect_named(ranks, 1);
  print_times(ranks, begin);
  for (const int end : pipe) ::close(end);
}

TEST_F(NamespaceRanksTest, AStoppedRankIsNamedAtTheTimeout) {
  NamespaceRanks ranks(3, kShort, kForEver, training());
  ranks.wait_for_operations(kSteps);
  const auto begin = now_ms();
  ranks.signal(2, SIGSTOP);
  expect_named(ranks, 2);
  print_times(ranks, begin);
}

TEST_F(DroppedPackets, ARankWhosePacketsAreAllDroppedIsNamed) {
  NamespaceRanks ranks(3, kShort, kForEver, training());
  ranks.wait_for_operations(kSteps);
  const auto begin = now_ms();
  ranks.drop(1, kOut, kIn);
  expect_named(ranks, 1);
  ranks.wait_until_done(1);
  EXPECT_NE(ranks[1].code, 0);
  EXPECT_GT(ranks.dropped(1), 0U);
  print_times(ranks, begin);
}

TEST_F(DroppedPackets, ARankThatSendsIntoTheVoidIsNamed) {
  NamespaceRanks ranks(3, kShort, kForEver, training());
  ranks.wait_for_operations(kSteps);
  const auto begin = now_ms();
  ranks.drop(1, kOut, "none");
  expect_named(ranks, 1);
  ranks.wait_until_done(1);
  EXPECT_GT(ranks.dropped(1), 0U);
  print_times(ranks, begin);
}

TEST_F(DroppedPackets, ARankThatHearsNothingIsNamed) {
  NamespaceRanks ranks(3, kShort, kForEver, training());
  ranks.wait_for_operations(kSteps);
  const auto begin = now_ms();
  ranks.drop(1, "none", kIn);
  expect_named(ranks, 1);
  ranks.wait_until_done(1);
  EXPECT_NE(std::string(ranks[1].text).find("no other rank answers rank 1"), std::string::npos);
  EXPECT_GT(ranks.dropped(1), 0U);
  print_times(ranks, begin);
}

// Nobody can tell which end of the pair is at fault, but it is one of the two.
TEST_F(DroppedPackets, OfAPairThatCannotReachEachOtherOneIsNamed) {
  NamespaceRanks ranks(3, kShort, kForEver, training());
  ranks.wait_for_operations(kSteps);
  const auto begin = now_ms();
  ranks.drop(0, pair_out(1), pair_in(1));
  for (int rank = 0; rank < 3; ++rank) {
    ranks.wait_until_done(rank);
    EXPECT_NE(ranks[rank].code, 0);
    const int named = ranks[rank].named();
    EXPECT_TRUE(named == 0 || named == 1) << "rank " << rank << ": " << ranks[rank].text;
  }
  EXPECT_GT(ranks.dropped(0), 0U);
  print_times(ranks, begin);
}

TEST_F(NamespaceRanksTest, ARankWhoseLinkIsDownIsNamed) {
  NamespaceRanks ranks(3, kShort, kForEver, training());
  ranks.wait_for_operations(kSteps);
  const auto begin = now_ms();
  ranks.run_in(1, {"ip", "link", "set", "data", "down"});
  expect_named(ranks, 1);
  print_times(ranks, begin);
}

TEST_F(NamespaceRanksTest, ARankWhoseAddressIsRemovedIsNamed) {
  NamespaceRanks ranks(3, kShort, kForEver, training());
  ranks.wait_for_operations(kSteps);
  const auto begin = now_ms();
  ranks.run_in(1, {"ip", "address", "flush", "dev", "data"});
  expect_named(ranks, 1);
  print_times(ranks, begin);
}

TEST_F(DroppedPackets, FiveSecondsWithoutPacketsAreSurvived) {
  NamespaceRanks ranks(3, kLong, kForEver, training());
  ranks.wait_for_operations(kSteps);
  ranks.drop(1, kOut, kIn);
  pause_for(seconds(5));
  EXPECT_GT(ranks.dropped(1), 0U);
  ranks.run_in(1, {"nft", "delete", "table", "inet", "trial"});
  const int before = ranks[0].operations;
  ranks.wait_for_operations(before + kSteps);
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(ranks[rank].is_done) << ranks[rank].text;
}

TEST_F(DroppedPackets, EveryTenthPacketLostIsSurvived) {
  NamespaceRanks ranks(3, kLong, kForEver, training());
  ranks.wait_for_operations(kSteps);
  ranks.drop(1, kOut + " numgen inc mod 10 0", kIn + " numgen inc mod 10 0");
  const int before = ranks[0].operations;
  ranks.wait_for_operations(before + 3 * kSteps);
  EXPECT_GT(ranks.dropped(1), 0U);
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(ranks[rank].is_done) << ranks[rank].text;
}

// The deadline moves with the progress: 48 MiB take four seconds and more each way.
TEST_F(NamespaceRanksTest, MoreDataThanFitsIntoATimeoutIsNoFailure) {
  constexpr std::size_t kFloats = std::size_t{12} << 20;
  NamespaceRanks ranks(2, kShort, 2, sums(kFloats));
  for (const int rank : {0, 1})
    ranks.run_in(rank, {"tc", "qdisc", "add", "dev", "data", "root", "tbf", "rate", "100mbit",
                        "burst", "64kb", "latency", "100ms"});
  const auto begin = now_ms();
  for (const int rank : {0, 1}) {
    ranks.wait_until_done(rank);
    EXPECT_EQ(ranks[rank].code, 0) << ranks[rank].text;
    EXPECT_EQ(ranks[rank].operations, 2);
  }
  print_times(ranks, begin);
}

// Training does not need the store. After a failure the ranks cannot compare notes, and fail all
// the same.
TEST_F(NamespaceRanksTest, WithoutTheFolderOfTheStoreTrainingGoesOnAndAKilledRankIsNoticed) {
  NamespaceRanks ranks(3, kLong, kForEver, training());
  ranks.wait_for_operations(kSteps);
  std::filesystem::remove_all(ranks.directory());
  const int before = ranks[0].operations;
  ranks.wait_for_operations(before + kSteps);
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(ranks[rank].is_done) << ranks[rank].text;
  const auto begin = now_ms();
  ranks.signal(1, SIGKILL);
  expect_named(ranks, 1);
  print_times(ranks, begin);
}

}  // namespace
}  // namespace lockstep::testing
