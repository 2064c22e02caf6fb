// A GlooProcessGroup whose ranks are processes that are killed, stopped, or simply end.
//
// Each rank writes what became of it into memory shared with the test, since a killed one has no
// exit status to tell. Upper bounds on time are generous, as in gloo_failure_test.cc.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>

#include "reducer/comm/gloo/file_store.h"
#include "reducer/comm/gloo/group_test_util.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;  // NOLINT
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kProcessTimeout{40};
constexpr seconds kProcessErrorTime{15};

struct Outcome {
  std::atomic<int> operations{0};  // that ended well
  std::atomic<int> code{0};
  std::atomic<int> suspect{kNone};
  std::atomic<int> rank{kNone};
  std::atomic<int> reported_by{kNone};
  std::atomic<std::int64_t> sequence{kNone};
  std::atomic<bool> is_done{false};
  char text[500] = {};
};

class SharedOutcomes {
 public:
  SharedOutcomes() {
    void* memory =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    outcomes_ = static_cast<Outcome*>(memory);
    for (std::size_t i = 0; i < kRanks; ++i) new (&outcomes_[i]) Outcome;
  }
  ~SharedOutcomes() { ::munmap(outcomes_, kBytes); }
  SharedOutcomes(const SharedOutcomes&) = delete;
  SharedOutcomes& operator=(const SharedOutcomes&) = delete;
  Outcome& operator[](int rank) { return outcomes_[rank]; }

  // Until every one of `size` ranks has had so many operations.
  void wait_for_operations(int size, int operations) {
    const auto deadline = platform::Deadline::in(seconds(60));
    for (int rank = 0; rank < size; ++rank)
      while ((*this)[rank].operations < operations && !deadline.passed())
        pause_for(milliseconds(1));
    ASSERT_FALSE(deadline.passed());
  }

 private:
  static constexpr std::size_t kRanks = 8;
  static constexpr std::size_t kBytes = kRanks * sizeof(Outcome);
  Outcome* outcomes_;
};

// Sums until an operation fails, or `most` have not.
void sum_until_failure(GlooProcessGroup& group, Outcome& outcome, std::size_t count, int most) {
  Status status;
  while (outcome.operations < most && status.ok()) {
    status = sum_once(group, count);
    if (status.ok()) ++outcome.operations;
  }
  if (!status.ok()) {
    strncpy(outcome.text, status.to_string().c_str(), sizeof outcome.text - 1);
    outcome.code = static_cast<int>(status.code());
    outcome.suspect = status.failure().suspect;
    outcome.rank = status.failure().rank;
    outcome.reported_by = status.failure().reported_by;
    outcome.sequence = status.failure().sequence;
  }
  outcome.is_done = true;
}

std::unique_ptr<Processes> summing_ranks(int size, const std::string& directory,
                                         SharedOutcomes& outcomes, milliseconds timeout,
                                         std::size_t count, int most = 1'000'000) {
  return std::make_unique<Processes>(size, [&, size, timeout, count, most](int rank) {
    auto store = std::make_shared<FileStore>(directory);
    GlooContextOptions connection = tested_connection();
    connection.timeout = kProcessTimeout;
    auto group = GlooProcessGroup::connect(store, rank, size, with_timeout(timeout), connection);
    if (!group) return 3;
    sum_until_failure(**group, outcomes[rank], count, most);
    return 0;
  });
}

struct Kill {
  int size;
  int victim;
  std::size_t count;
};

class KilledRank : public ::testing::TestWithParam<Kill> {};

// No survivor may need the timeout for it: connections tell. A survivor whose last word is lost
// when its process ends can be taken for the victim by another one, so the group promises less than
// the reducer, whose ranks compare notes through the store (FailureBoard): here one survivor at
// least names the victim.
TEST_P(KilledRank, IsNoticedByEverySurvivorLongBeforeTheTimeout) {
  const auto [size, victim, count] = GetParam();
  TemporaryDirectory directory;
  SharedOutcomes outcomes;
  auto ranks = summing_ranks(size, directory.path(), outcomes, kProcessTimeout, count);
  outcomes.wait_for_operations(size, 5);
  const auto begin = platform::now();
  ranks->signal(victim, SIGKILL);
  for (int rank = 0; rank < size; ++rank)
    EXPECT_EQ(ranks->wait(rank), rank == victim ? Processes::kKilled : 0);
  EXPECT_LT(platform::now() - begin, kProcessErrorTime);
  int named = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(outcomes[rank].code, static_cast<int>(Code::kPeerLost)) << "rank " << rank;
    EXPECT_GE(outcomes[rank].suspect, 0);
    EXPECT_NE(outcomes[rank].suspect, rank);
    EXPECT_EQ(outcomes[rank].reported_by, rank);
    if (outcomes[rank].suspect == victim) ++named;
  }
  EXPECT_GE(named, 1);
}

INSTANTIATE_TEST_SUITE_P(Gloo, KilledRank,
                         ::testing::Values(Kill{2, 0, 100}, Kill{3, 0, 100}, Kill{3, 2, 1'000'000},
                                           Kill{4, 1, 100}, Kill{4, 3, 3'000'000}),
                         [](const auto& parameter) {
                           return std::to_string(parameter.param.victim) + "Of" +
                                  std::to_string(parameter.param.size) + "With" +
                                  std::to_string(parameter.param.count);
                         });

// Descriptors of this process that a program which it starts would have.
std::set<std::string> inherited() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    const int flags = ::fcntl(descriptor, F_GETFD);
    std::error_code error;
    const std::string what = std::filesystem::read_symlink(entry.path(), error);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0 && !error)
      found.insert(std::to_string(descriptor) + " " + what);
  }
  return found;
}

TEST(StartedProgram, InheritsNothingOfAGroup) {
  const auto before = inherited();
  Groups groups = connect_threads(3, with_timeout(kProcessTimeout));
  on_groups(groups, [](int, GlooProcessGroup& group) { EXPECT_TRUE(sum_once(group).ok()); });
  EXPECT_EQ(inherited(), before);
}

// A data loader that outlives its rank must not keep the rank's connections open. It lives until
// nobody can write to the pipe that it reads.
TEST(StartedProgram, KeepsNoConnectionOfAKilledRankOpen) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  TemporaryDirectory directory;
  SharedOutcomes outcomes;
  Processes ranks(2, [&](int rank) {
    auto store = std::make_shared<FileStore>(directory.path());
    auto group = connect_rank(store, rank, 2, with_timeout(seconds(8)));
    if (!group) return 3;
    if (rank == 1) {
      if (::fork() == 0) {
        ::dup2(pipe[0], STDIN_FILENO);
        ::execl("/bin/cat", "cat", nullptr);
        ::_exit(1);
      }
      pause_for(milliseconds(200));  // until it is another program
    }
    sum_until_failure(**group, outcomes[rank], 100, 1'000'000);
    return 0;
  });
  outcomes.wait_for_operations(2, 5);
  ranks.signal(1, SIGKILL);
  EXPECT_EQ(ranks.wait(1), Processes::kKilled);
  EXPECT_EQ(ranks.wait(0), 0);
  // By its connection, and not by the timeout.
  EXPECT_EQ(outcomes[0].code, static_cast<int>(Code::kPeerLost)) << outcomes[0].text;
  EXPECT_EQ(outcomes[0].suspect, 1);
  for (const int end : pipe) ::close(end);
}

TEST(StoppedRank, MakesEverySurvivorTimeOut) {
  for (const std::size_t count : {100u, 1'000'000u}) {
    TemporaryDirectory directory;
    SharedOutcomes outcomes;
    auto ranks = summing_ranks(3, directory.path(), outcomes, milliseconds(1000), count);
    outcomes.wait_for_operations(3, 5);
    const auto begin = platform::now();
    ranks->signal(1, SIGSTOP);
    for (const int rank : {0, 2}) EXPECT_EQ(ranks->wait(rank), 0);
    EXPECT_LT(platform::now() - begin, kProcessErrorTime);
    for (const int rank : {0, 2}) {
      EXPECT_EQ(outcomes[rank].code, static_cast<int>(Code::kTimeout)) << "rank " << rank;
      EXPECT_EQ(outcomes[rank].reported_by, rank);
      EXPECT_EQ(outcomes[rank].suspect, 1) << outcomes[rank].text;
    }
    // When it runs again it fails too, and ends.
    ranks->signal(1, SIGCONT);
    EXPECT_EQ(ranks->wait(1), 0);
    EXPECT_NE(outcomes[1].code, static_cast<int>(Code::kOk));
    EXPECT_LT(platform::now() - begin, kProcessErrorTime);
  }
}

TEST(StoppedRank, ThatGoesOnInTimeSpoilsNothing) {
  TemporaryDirectory directory;
  SharedOutcomes outcomes;
  auto ranks = summing_ranks(3, directory.path(), outcomes, kProcessTimeout, 20'000, 60);
  for (int pause = 0; pause < 5; ++pause) {
    outcomes.wait_for_operations(3, 5 * pause);
    ranks->signal(pause % 3, SIGSTOP);
    pause_for(milliseconds(50));
    ranks->signal(pause % 3, SIGCONT);
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks->wait(rank), 0);
    EXPECT_EQ(outcomes[rank].operations, 60);
    EXPECT_EQ(outcomes[rank].code, static_cast<int>(Code::kOk));
  }
}

// A process that ends after its last operation, without a word: the others still finish that one.
TEST(EndedRank, SpoilsNoOperationThatItTookPartIn) {
  for (int round = 0; round < 10; ++round) {
    TemporaryDirectory directory;
    SharedOutcomes outcomes;
    Processes ranks(3, [&](int rank) {
      auto store = std::make_shared<FileStore>(directory.path());
      auto group = connect_rank(store, rank, 3, with_timeout(kProcessTimeout));
      if (!group) return 3;
      sum_until_failure(**group, outcomes[rank], 30'000, 3);
      ::_exit(0);  // the group is not destroyed
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ranks.wait(rank), 0);
      EXPECT_EQ(outcomes[rank].operations, 3)
          << "rank " << rank << " in round " << round << ": " << outcomes[rank].text;
    }
  }
}

TEST(MissingRank, IsNamedByProcessesWithinTheDeadline) {
  TemporaryDirectory directory;
  const auto begin = platform::now();
  Processes ranks(2, [&](int rank) {
    auto store = std::make_shared<FileStore>(directory.path());
    const auto group = connect_rank(store, rank, 3, with_timeout(milliseconds(700)));
    if (group.has_value()) return 3;
    EXPECT_EQ(group.error().code(), Code::kTimeout);
    EXPECT_NE(group.error().to_string().find("rank 2 did not appear"), std::string::npos);
    return 0;
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.wait(rank), 0);
  EXPECT_LT(platform::now() - begin, kProcessErrorTime);
}

}  // namespace
}  // namespace lockstep
