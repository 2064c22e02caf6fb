// Ranks for tests: processes that train over Gloo, each in a network namespace of its own. What
// became of each is in memory that all share.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "properties/hosts/command.h"
#include "properties/hosts/namespaces.h"
#include "reducer/comm/gloo/file_store.h"
#include "reducer/comm/gloo/group_test_util.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {

using properties::hosts::data_address;

struct RankOutcome {
  std::atomic<pid_t> pid{0};
  std::atomic<pid_t> child{0};          // that runs the body, where a body is run anew
  std::atomic<bool> has_left{false};    // its process has left the network of the test
  std::atomic<bool> is_plugged{false};  // into the switches
  std::atomic<int> operations{0};       // that ended well
  std::atomic<bool> is_done{false};
  std::atomic<int> code{0};  // of the first failure
  std::atomic<int> rank{kNone};
  std::atomic<int> suspect{kNone};
  std::atomic<std::int64_t> failed_ms{0};  // on the clock of now_ms()
  char text[1500] = {};

  int named() const { return suspect != kNone ? suspect.load() : rank.load(); }
};

inline std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Tests whose ranks are in network namespaces; they are skipped where the system has none.
class NamespaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = properties::hosts::try_namespaces(); !status.ok())
      GTEST_SKIP() << status.failure().detail;
    const Status status = properties::hosts::enter_hub();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  // Skips a test that needs nft where there is none; for the end of SetUp().
  static void need_nft() {
    if (properties::hosts::find_program("nft").empty())
      GTEST_SKIP() << "there is no nft here: ci/setup --network installs it";
  }
};

class NamespaceRanks {
 public:
  static constexpr std::size_t kMost = 16;
  // Trains one step, or runs one operation.
  using Step = std::function<Status()>;
  // Makes a rank's step; called in the rank's process. The group is connected.
  using MakeStep =
      std::function<Step(const std::shared_ptr<ProcessGroup>&, const std::shared_ptr<Store>&)>;

  // Runs a rank's process until it is killed.
  using Body = std::function<int(int rank, const std::shared_ptr<Store>&)>;

  // `most`: steps of a rank that nothing disturbs.
  NamespaceRanks(int size, std::chrono::milliseconds timeout, int most, const MakeStep& make_step)
      : NamespaceRanks(size, [=, this](int rank) { return run(rank, timeout, most, make_step); }) {}

  // Ranks without a first group. Each runs `body` in a child, and in another one when that is
  // killed; its namespace stays.
  NamespaceRanks(int size, const Body& body)
      : NamespaceRanks(size, [=, this](int rank) { return run_again(rank, body); }) {}
  ~NamespaceRanks() {
    processes_.reset();
    ::munmap(outcomes_, kMost * sizeof(RankOutcome));
  }
  NamespaceRanks(const NamespaceRanks&) = delete;
  NamespaceRanks& operator=(const NamespaceRanks&) = delete;

  RankOutcome& operator[](int rank) { return outcomes_[rank]; }
  int size() const { return size_; }
  const std::string& directory() const { return directory_.path(); }
  void signal(int rank, int number) { processes_->signal(rank, number); }
  void signal_child(int rank, int number) {
    if (const pid_t child = (*this)[rank].child; child > 0) ::kill(child, number);
  }

  // Each waits up to a minute, and fails the test then.
  void wait_for_operations(int operations) {
    for (int rank = 0; rank < size_; ++rank)
      wait([&, rank] { return (*this)[rank].operations >= operations || (*this)[rank].is_done; },
           "operations of rank", rank);
  }
  void wait_until_done(int rank) {
    wait([&, rank] { return (*this)[rank].is_done.load(); }, "the end of rank", rank);
  }

  // Runs a program in the rank's namespace.
  void run_in(int rank, const std::vector<std::string>& arguments, const std::string& input = {}) {
    const auto done = properties::hosts::run_inside((*this)[rank].pid, arguments, input);
    ASSERT_TRUE(done) << done.error().to_string();
  }
  // Drops packets, or does something else with them: `out` and `in` are rules of nft without their
  // verdict.
  void drop(int rank, const std::string& out, const std::string& in,
            const std::string& verdict = "drop") {
    const auto rule = [&](const std::string& match) {
      return match == "none" ? std::string() : match + " counter " + verdict;
    };
    run_in(rank, {"nft", "-f", "-"},
           "table inet trial {\nchain out { type filter hook output priority 0; " + rule(out) +
               "\n}\nchain in { type filter hook input priority 0; " + rule(in) + "\n}\n}\n");
  }
  std::uint64_t dropped(int rank) {
    const auto text =
        properties::hosts::run_inside((*this)[rank].pid, {"nft", "list", "table", "inet", "trial"});
    std::uint64_t packets = 0;
    for (std::size_t at = 0; text && (at = text->find("packets ", at)) != std::string::npos;)
      packets += std::stoull(text->substr(at += 8));
    return packets;
  }

 private:
  template <class Predicate>
  static void wait(Predicate predicate, const char* what, int rank) {
    const auto deadline = platform::Deadline::in(std::chrono::seconds(60));
    while (!predicate() && !deadline.passed()) pause_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(predicate()) << "no " << what << " " << rank;
  }

  void plug_in(int rank) {
    RankOutcome& outcome = (*this)[rank];
    wait([&] { return outcome.has_left.load(); }, "namespace of rank", rank);
    const Status status = properties::hosts::plug_in(outcome.pid, static_cast<std::uint32_t>(rank));
    ASSERT_TRUE(status.ok()) << status.to_string();
    outcome.is_plugged = true;
  }

  NamespaceRanks(int size, const std::function<int(int)>& run) : size_(size) {
    void* memory = ::mmap(nullptr, kMost * sizeof(RankOutcome), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    outcomes_ = static_cast<RankOutcome*>(memory);
    for (std::size_t i = 0; i < kMost; ++i) new (&outcomes_[i]) RankOutcome;
    processes_ = std::make_unique<Processes>(size, run);
    for (int rank = 0; rank < size; ++rank) plug_in(rank);
  }

  // In the rank's process: moves it into a network of its own.
  bool enter_namespace(int rank) {
    RankOutcome& outcome = (*this)[rank];
    outcome.pid = ::getpid();
    if (const Status left = properties::hosts::leave_network(); !left.ok()) return false;
    outcome.has_left = true;
    wait([&] { return outcome.is_plugged.load(); }, "switch for rank", rank);
    return true;
  }

  int run_again(int rank, const Body& body) {
    if (!enter_namespace(rank)) return 3;
    while (true) {
      Processes child(1, [&](int) {
        (*this)[rank].child = ::getpid();
        return body(rank, std::make_shared<FileStore>(directory()));
      });
      if (child.wait(0) != Processes::kKilled) return 5;
    }
  }

  int run(int rank, std::chrono::milliseconds timeout, int most, const MakeStep& make_step) {
    RankOutcome& outcome = (*this)[rank];
    if (!enter_namespace(rank)) return 3;
    const auto store = std::make_shared<FileStore>(directory());
    GlooContextOptions connection;
    connection.share_memory = false;  // The ranks stand for machines.
    connection.timeout = std::chrono::seconds(60);
    connection.address = data_address(static_cast<std::uint32_t>(rank));
    auto group = GlooProcessGroup::connect(store, rank, size_, with_timeout(timeout), connection);
    if (!group) {
      note(outcome, group.error());
      return 4;
    }
    const Step step = make_step(std::shared_ptr<ProcessGroup>(std::move(*group)), store);
    Status status;
    while (outcome.operations < most && status.ok()) {
      status = step();
      if (status.ok()) ++outcome.operations;
    }
    note(outcome, status);
    // The namespace and its counters last as long as this process.
    while (true) ::pause();
  }

  static void note(RankOutcome& outcome, const Status& status) {
    outcome.failed_ms = now_ms();
    if (!status.ok()) {
      strncpy(outcome.text, status.to_string().c_str(), sizeof outcome.text - 1);
      outcome.code = static_cast<int>(status.code());
      outcome.rank = status.failure().rank;
      outcome.suspect = status.failure().suspect;
    }
    outcome.is_done = true;
  }

  const int size_;
  TemporaryDirectory directory_;
  RankOutcome* outcomes_ = nullptr;
  std::unique_ptr<Processes> processes_;
};

// Training: a reducer with two parameters, whose ranks compare notes through the store.
inline NamespaceRanks::MakeStep training() {
  return [](const std::shared_ptr<ProcessGroup>& group, const std::shared_ptr<Store>& store) {
    const auto replica = std::make_shared<TestRank>();
    const auto p = replica->add("p");
    const auto q = replica->add("q");
    ReducerOptions options = quick_options(false);
    options.failure_grace = std::chrono::seconds(2);
    const Status created = replica->create({group, store}, options);
    return [replica, p, q, created]() -> Status {
      if (!created.ok()) return created;
      replica->undefine_grads();
      return replica->backward(replica->forward_of({p, q}), 1);
    };
  };
}

// Sums of so many floats, without a reducer.
inline NamespaceRanks::MakeStep sums(std::size_t count) {
  return [count](const std::shared_ptr<ProcessGroup>& group, const std::shared_ptr<Store>&) {
    return [group, count] { return sum_once(*group, count); };
  };
}

}  // namespace lockstep::testing
