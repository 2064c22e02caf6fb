// Processes that fail, are cut off from the store, come late, or join, agree on rosters in many
// schedules (F9): each generation has one roster, somebody of the last one is in it, and at no time
// can two groups end a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>

#include "faults/sim/job_for_test.h"
#include "reducer/comm/roster.h"

namespace lockstep::simulated {
namespace {

using simulation::End;
using namespace std::chrono_literals;

constexpr std::uint64_t kSchedules = 400;
constexpr std::uint32_t kFirstMembers = 4;  // of generation 0
constexpr std::uint32_t kProcesses = 6;
constexpr int kRounds = 3;

// The store as a process sees it that cannot reach it.
class UnreachableStore final : public Store {
 public:
  Result<bool> set(std::string_view, std::string_view) override { return failed(gone()); }
  Result<std::string> get(std::string_view, platform::Deadline) override { return failed(gone()); }
  Result<bool> contains(std::string_view) override { return failed(gone()); }

 private:
  static Status gone() { return {Code::kTransport, "the store cannot be reached"}; }
};

// This records what all processes have seen. All fibers run on one thread, so it has no lock.
class Witness {
 public:
  // A process enters a group, or has none.
  void enter(const std::string& name, const Roster& roster) {
    const auto [known, is_new] = rosters_.emplace(roster.generation, roster.members);
    if (known->second != roster.members) wrong_ = "a generation has two rosters";
    const auto last = rosters_.find(roster.generation - 1);
    const auto was_there = [&](const std::string& each) {
      return std::find(last->second.begin(), last->second.end(), each) != last->second.end();
    };
    if (last != rosters_.end() &&
        std::none_of(roster.members.begin(), roster.members.end(), was_there))
      wrong_ = "nobody of the last roster is in the next one";
    in_[name] = roster.generation;
    if (live_groups() > 1) wrong_ = "two groups can end a step";
  }
  void leave(const std::string& name) { in_.erase(name); }
  const std::string& wrong() const { return wrong_; }
  std::size_t generations() const { return rosters_.size(); }

 private:
  // Groups all of whose members are in them.
  std::ptrdiff_t live_groups() const {
    return std::count_if(rosters_.begin(), rosters_.end(), [this](const auto& each) {
      return std::all_of(each.second.begin(), each.second.end(), [&](const std::string& name) {
        const auto found = in_.find(name);
        return found != in_.end() && found->second == each.first;
      });
    });
  }

  std::map<std::int64_t, std::vector<std::string>> rosters_;
  std::map<std::string, std::int64_t> in_;
  std::string wrong_;
};

using Agree = Result<Roster> (*)(Store&, const Roster&, const RosterOptions&, platform::Deadline);

// The control agrees without the store's decision: each process takes those that it has seen.
Result<Roster> take_those_who_are_there(Store& store, const Roster& last,
                                        const RosterOptions& options, platform::Deadline deadline) {
  Roster roster;
  roster.generation = last.generation + 1;
  const std::string prefix = "naive/" + std::to_string(roster.generation) + "/";
  (void)store.set(prefix + options.name, "");
  if (auto waited = store.get("never", platform::Deadline::in(options.patience)); waited)
    return failed(Status(Code::kInternal, "somebody set the key"));
  for (const std::string& each : last.members)
    if (auto there = store.contains(prefix + each); there && *there) roster.members.push_back(each);
  (void)deadline;
  for (std::size_t i = 0; i < roster.members.size(); ++i)
    if (roster.members[i] == options.name) roster.rank = static_cast<int>(i);
  return roster.rank == kNone ? failed(Status(Code::kAborted, "not there"))
                              : Result<Roster>(roster);
}

// One life of a process: it fails some times, and agrees with the others on the next group.
void live(Job& job, std::uint32_t process, Store& store, Witness& witness, Agree agree) {
  std::mt19937_64 random(job.schedule.seed * 131 + process);
  const auto percent = [&](std::uint64_t share) { return random() % 100 < share; };
  const auto pause = [&](std::uint64_t most_ms) {
    job.scheduler.sleep_until(job.scheduler.now() + std::chrono::milliseconds(random() % most_ms));
  };
  UnreachableStore unreachable;
  Roster roster;
  RosterOptions options;
  options.name = std::string(1, static_cast<char>('a' + process));
  options.most = kProcesses;
  if (process < kFirstMembers) {
    roster.generation = 0;
    for (std::uint32_t i = 0; i < kFirstMembers; ++i)
      roster.members.emplace_back(1, static_cast<char>('a' + i));
    roster.rank = static_cast<int>(process);
    witness.enter(options.name, roster);
  }
  for (int round = 0; round < kRounds; ++round) {
    pause(60);
    if (percent(15)) return;  // it dies, in its group
    witness.leave(options.name);
    options.patience = std::chrono::milliseconds(1 + random() % 40);
    Store& reached = percent(15) ? unreachable : store;
    auto next = agree(reached, roster, options, platform::Deadline::in(100ms));
    roster = next ? *next : Roster();
    if (next) witness.enter(options.name, roster);
  }
}

// Counts in how many schedules something was wrong.
void run_schedules(Agree agree, int& wrong, std::size_t& most_generations) {
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    Job job(kProcesses);
    job.schedule.seed = seed;
    HashStore store;
    // The first group has agreed before.
    ASSERT_TRUE(store.set("roster/0/members", "0\na\nb\nc\nd\n"));
    Witness witness;
    const auto outcome = job.run([&](std::uint32_t process, SimProcessGroup&) {
      live(job, process, store, witness, agree);
    });
    EXPECT_EQ(outcome.end, End::kFinished) << "seed " << seed << "\n" << outcome.wait_graph;
    if (agree == &agree_on_roster) {
      EXPECT_EQ(witness.wrong(), "") << "seed " << seed;
    }
    wrong += witness.wrong().empty() ? 0 : 1;
    most_generations = std::max(most_generations, witness.generations());
  }
}

TEST(RosterSchedules, F9OneGroupAtATimeCanEndAStep) {
  int wrong = 0;
  std::size_t generations = 0;
  run_schedules(&agree_on_roster, wrong, generations);
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(generations, 3U);  // all rounds of some schedule
}

TEST(RosterSchedules, F9WithoutTheStoresDecisionBrainsSplitAndThisTestSeesIt) {
  int wrong = 0;
  std::size_t generations = 0;
  run_schedules(&take_those_who_are_there, wrong, generations);
  EXPECT_GE(wrong, static_cast<int>(kSchedules) / 4);
}

}  // namespace
}  // namespace lockstep::simulated
