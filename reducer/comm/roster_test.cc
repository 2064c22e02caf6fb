// Processes agree on who is in the next group (F9). Ranks are threads here; faults/sim has the same
// in many schedules, and properties/hosts over networks that fail.
#include "reducer/comm/roster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

RosterOptions named(const std::string& name, int most = 3, platform::Duration patience = 300ms) {
  RosterOptions options;
  options.name = name;
  options.most = most;
  options.patience = patience;
  return options;
}

// All of them at once; by their position.
std::vector<Result<Roster>> agree(Store& store, const std::vector<Roster>& last,
                                  const std::vector<RosterOptions>& options) {
  std::vector<Result<Roster>> out(last.size(), failed(Status(Code::kInternal, "did not run")));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < last.size(); ++i)
    threads.emplace_back([&, i] {
      out[i] = agree_on_roster(store, last[i], options[i], platform::Deadline::in(20s));
    });
  for (std::thread& each : threads) each.join();
  return out;
}

std::vector<Roster> first_roster(Store& store, const std::vector<std::string>& names) {
  std::vector<RosterOptions> options;
  for (const std::string& each : names)
    options.push_back(named(each, static_cast<int>(names.size()), 10s));
  std::vector<Roster> out;
  for (auto& each : agree(store, std::vector<Roster>(names.size()), options)) {
    EXPECT_TRUE(each) << each.error().to_string();
    out.push_back(std::move(*each));
  }
  return out;
}

TEST(Roster, F9AllBeginTogetherWithoutWaitingLonger) {
  HashStore store;
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Roster> rosters = first_roster(store, {"a", "b", "c"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  std::vector<int> ranks;
  for (const Roster& each : rosters) {
    EXPECT_EQ(each.generation, 0);
    EXPECT_EQ(each.members, rosters[0].members);
    EXPECT_EQ(each.stayed, 0);
    ranks.push_back(each.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks, (std::vector<int>{0, 1, 2}));
}

TEST(Roster, F9SurvivorsGoOnWithFewerInTheirOrder) {
  HashStore store;
  std::vector<Roster> rosters = first_roster(store, {"a", "b", "c"});
  const std::string gone = rosters[0].members[1];
  std::vector<Roster> last;
  std::vector<RosterOptions> options;
  std::vector<std::string> expected;
  for (const std::string& each : rosters[0].members)
    if (each != gone) expected.push_back(each);
  for (const Roster& each : rosters)
    if (each.members[static_cast<std::size_t>(each.rank)] != gone) {
      last.push_back(each);
      options.push_back(named(each.members[static_cast<std::size_t>(each.rank)]));
    }
  for (const auto& each : agree(store, last, options)) {
    ASSERT_TRUE(each) << each.error().to_string();
    EXPECT_EQ(each->generation, 1);
    EXPECT_EQ(each->members, expected);
    EXPECT_EQ(each->stayed, 2);
  }
}

TEST(Roster, F9AReplacementComesAfterThoseThatStayAndTheGroupMayGrow) {
  HashStore store;
  std::vector<Roster> rosters = first_roster(store, {"a", "b"});
  EXPECT_FALSE(*somebody_waits(store, rosters[0]));
  std::vector<Roster> last = rosters;
  last.resize(4);
  std::vector<RosterOptions> options;
  for (const Roster& each : rosters)
    options.push_back(named(each.members[static_cast<std::size_t>(each.rank)], 4, 10s));
  options.push_back(named("new1", 4));
  options.push_back(named("new2", 4));
  const auto agreed = agree(store, last, options);
  for (const auto& each : agreed) {
    ASSERT_TRUE(each) << each.error().to_string();
    EXPECT_EQ(each->size(), 4);
    EXPECT_EQ(each->stayed, 2);
    EXPECT_EQ(std::vector<std::string>(each->members.begin(), each->members.begin() + 2),
              rosters[0].members);
  }
  EXPECT_TRUE(*somebody_waits(store, rosters[0]));
}

// Those that wait to join are many, and there before the only survivor.
TEST(Roster, F9ThoseThatJoinDoNotTakeThePlacesOfThoseThatStay) {
  HashStore store;
  const std::vector<Roster> rosters = first_roster(store, {"a", "b"});
  std::vector<std::thread> joining;
  std::vector<Result<Roster>> joined(3, failed(Status(Code::kInternal, "did not run")));
  for (std::size_t i = 0; i < joined.size(); ++i)
    joining.emplace_back([&, i] {
      joined[i] = agree_on_roster(store, Roster(), named("new" + std::to_string(i), 2),
                                  platform::Deadline::in(2s));
    });
  while (!*store.contains("roster/1/join/2")) std::this_thread::yield();
  const std::string survivor = rosters[0].members[static_cast<std::size_t>(rosters[0].rank)];
  const auto roster =
      agree_on_roster(store, rosters[0], named(survivor, 2), platform::Deadline::in(10s));
  ASSERT_TRUE(roster) << roster.error().to_string();
  EXPECT_EQ(roster->size(), 2);
  EXPECT_EQ(roster->members[0], survivor);
  for (std::thread& each : joining) each.join();
  int in = 0;
  for (const auto& each : joined) {
    if (each)
      ++in;
    else  // there is no room, and nobody agrees on a further generation
      EXPECT_EQ(each.error().code(), Code::kTimeout);
  }
  EXPECT_EQ(in, 1);
}

// The side that was slower learns that it is out, and can come back in a later generation alone.
TEST(Roster, F9AProcessThatWasLeftOutIsNoGroupAndMayJoinLater) {
  HashStore store;
  std::vector<Roster> rosters = first_roster(store, {"a", "b"});
  if (rosters[0].members[0] != "a") std::swap(rosters[0], rosters[1]);
  const std::string first = rosters[0].members[static_cast<std::size_t>(rosters[0].rank)];
  const std::string second = rosters[1].members[static_cast<std::size_t>(rosters[1].rank)];
  const auto alone =
      agree_on_roster(store, rosters[0], named(first, 2, 50ms), platform::Deadline::in(10s));
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->size(), 1);
  const auto left_out =
      agree_on_roster(store, rosters[1], named(second, 2, 50ms), platform::Deadline::in(10s));
  ASSERT_FALSE(left_out);
  EXPECT_EQ(left_out.error().code(), Code::kAborted);
  // It is alone now, and nobody makes a group of it.
  const auto too_early =
      agree_on_roster(store, Roster(), named(second, 2, 50ms), platform::Deadline::in(200ms));
  ASSERT_FALSE(too_early);
  EXPECT_EQ(too_early.error().code(), Code::kTimeout);
  const auto together = agree(store, {*alone, Roster()}, {named(first, 2, 10s), named(second, 2)});
  ASSERT_TRUE(together[0] && together[1]);
  EXPECT_EQ(together[1]->members, (std::vector<std::string>{first, second}));
  EXPECT_EQ(together[1]->generation, 2);
  EXPECT_EQ(together[1]->rank, 1);
}

// The members take a process whose attempt to join is over; it learns that with its next attempt.
TEST(Roster, F9AProcessThatWasTakenBetweenTwoAttemptsIsIn) {
  HashStore store;
  const std::vector<Roster> rosters = first_roster(store, {"a"});
  EXPECT_FALSE(agree_on_roster(store, Roster(), named("new", 2), platform::Deadline::in(50ms)));
  const auto grown = agree_on_roster(store, rosters[0], named("a", 2), platform::Deadline::in(10s));
  ASSERT_TRUE(grown);
  EXPECT_EQ(grown->size(), 2);
  const auto joined =
      agree_on_roster(store, Roster(), named("new", 2), platform::Deadline::in(10s));
  ASSERT_TRUE(joined) << joined.error().to_string();
  EXPECT_EQ(joined->generation, 1);
  EXPECT_EQ(joined->rank, 1);
}

TEST(Roster, F9FewerThanThereMustBeAreNoGroup) {
  HashStore store;
  RosterOptions options = named("a", 3, 20ms);
  options.fewest = 2;
  const auto alone = agree_on_roster(store, Roster(), options, platform::Deadline::in(10s));
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().code(), Code::kTimeout);
  EXPECT_EQ(alone.error().failure().detail, "1 of at least 2 processes are there for generation 0");
}

// What process "a" of generation 0 is told where the store has this roster of generation 1.
Code code_of_roster(const std::string& text) {
  HashStore store;
  EXPECT_TRUE(store.set("roster/1/members", text));
  Roster last;
  last.generation = 0;
  last.members = {"a"};
  last.rank = 0;
  const auto roster = agree_on_roster(store, last, named("a"), platform::Deadline::in(1s));
  return roster ? Code::kOk : roster.error().code();
}

TEST(Roster, F9BadOptionsAndADamagedStoreAreRefused) {
  HashStore store;
  const auto code = [&](const RosterOptions& options) {
    return agree_on_roster(store, Roster(), options, platform::Deadline::in(1s)).error().code();
  };
  EXPECT_EQ(code(named("")), Code::kInvalidArgument);
  EXPECT_EQ(code(named("a\nb")), Code::kInvalidArgument);
  EXPECT_EQ(code(named(std::string(4097, 'x'))), Code::kInvalidArgument);
  EXPECT_EQ(code(named("a", 0)), Code::kInvalidArgument);
  EXPECT_EQ(code(named("a", kMostMembers + 1)), Code::kInvalidArgument);
  RosterOptions none = named("a", 1);
  none.fewest = 0;
  EXPECT_EQ(code(none), Code::kInvalidArgument);
  none.fewest = 2;
  EXPECT_EQ(code(none), Code::kInvalidArgument);
  for (const char* text : {"", "x", "1", "\na\n", "x\na\n", "/\na\n", "2\na\n", "12\na\n", "1\n",
                           "0\n", "0\na", "0000000000\na\n", "9999999999\na\n"})
    EXPECT_EQ(code_of_roster(text), Code::kCorrupted) << text;
}

TEST(Roster, F9WhatIsJustWithinTheLimitsIsNotRefused) {
  for (const RosterOptions& options :
       {named(std::string(4096, 'x'), 1, 1ms), named("a", 1, 1ms), named("a", kMostMembers, 1ms)}) {
    HashStore store;
    EXPECT_TRUE(agree_on_roster(store, Roster(), options, platform::Deadline::in(10s)));
  }
  EXPECT_EQ(code_of_roster("2\nb\na\n"), Code::kOk);
  EXPECT_EQ(code_of_roster("0\na\n"), Code::kOk);
  EXPECT_EQ(code_of_roster("000000000\na\n"), Code::kOk);
  EXPECT_EQ(code_of_roster("1\nb\n"), Code::kAborted);
}

}  // namespace
}  // namespace lockstep
