// Claim: by the reports in the store of a group, each rank names the one that stopped the others
// (F2). The rules of failure_board.cc have rows here, by their numbers: what the ranks report, who
// is named, and why. Each rank that has failed settles by itself, and all of them must name the
// same one.
//
// The component failure-board draws reports, and failure-cause draws what happened and the reports
// that follow from it.
#include "reducer/failure_board.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Reports = std::map<int, Failure>;  // by rank; the others are silent

Failure failure_of(Code code, int rank, int suspect, std::int64_t sequence = 5) {
  Failure failure;
  failure.code = code;
  failure.rank = rank;
  failure.suspect = suspect;
  failure.pass = 1;
  failure.sequence = sequence;
  failure.collective = "all_reduce";
  failure.detail = std::string("what it saw: ") + name_of(code);
  return failure;
}

// A rank that waited for another one, or does not know for whom.
Failure waited(int rank, int suspect, std::int64_t sequence = 5) {
  return failure_of(Code::kTimeout, suspect == kNone ? kNone : rank, suspect, sequence);
}
Failure lost(int suspect) { return failure_of(Code::kPeerLost, suspect, suspect); }
Failure broken(int suspect) { return failure_of(Code::kTransport, kNone, suspect); }
Failure heard_from(int rank) { return failure_of(Code::kAborted, rank, rank); }
Failure own_error(int rank) {
  Failure failure = failure_of(Code::kUserFailure, rank, kNone);
  failure.definite = true;
  return failure;
}

struct Rule {
  int number;
  const char* what;  // happened
  int size;
  Reports reports;
  int rank;     // that all have to name
  int suspect;  // whom all have to suspect
};

std::vector<Rule> rules_of_certain_and_silent_ranks() {
  return {
      {1, "a rank has an error of its own", 3, {{0, lost(2)}, {2, own_error(2)}}, 2, kNone},
      {1,
       "two have errors of their own: the lower one's",
       3,
       {{0, lost(1)}, {1, own_error(1)}, {2, own_error(2)}},
       1,
       kNone},
      {2,
       "nobody answered the roll call of a rank that suspects itself, and another one has waited",
       3,
       {{0, waited(0, kNone)}, {1, waited(1, 1)}, {2, waited(2, 0)}},
       1,
       1},
      {8, "one rank is silent, and others lost it", 3, {{0, lost(2)}, {1, lost(2)}}, 2, 2},
      {8,
       "two are silent: the one that more ranks suspect",
       5,
       {{0, lost(4)}, {1, lost(4)}, {2, lost(3)}},
       4,
       4},
      {8,
       "as many ranks suspect each of two: the one that has closed its connections",
       4,
       {{0, waited(0, 2)}, {1, lost(3)}},
       3,
       3},
      {7,
       "nobody suspects the silent rank, which may have been done: where others' suspicions end",
       4,
       {{0, waited(0, 1)}, {1, waited(1, 2)}, {2, waited(2, kNone)}},
       2,
       2},
  };
}

std::vector<Rule> other_rules() {
  const Failure lost_somebody = failure_of(Code::kPeerLost, kNone, kNone);
  return {
      {3,
       "all have reported: what the one that got least far reports",
       3,
       {{0, waited(0, kNone, 9)},
        {1, failure_of(Code::kTransport, 1, kNone, 4)},
        {2, waited(2, kNone, 9)}},
       1,
       kNone},
      {4,
       "the one that got least far waited itself: where its suspicions end",
       4,
       {{0, waited(0, 1, 4)}, {1, waited(1, 2)}, {2, broken(3)}, {3, broken(2)}},
       kNone,
       3},
      {4,
       "suspicions run in a circle: what the rank reports whose link broke",
       3,
       {{0, lost(1)}, {1, broken(0)}, {2, lost(0)}},
       kNone,
       0},
      {4,
       "without a broken link: what a rank says of the one that is silent to the most",
       3,
       {{0, waited(0, 1)}, {1, waited(1, 2)}, {2, waited(2, 1)}},
       1,
       1},
      {5,
       "a rank waited without knowing for whom, and a rank is silent",
       3,
       {{0, waited(0, kNone)}, {1, heard_from(0)}},
       2,
       2},
      {6,
       "ranks lost a peer without a name, and one is silent",
       3,
       {{0, lost_somebody}, {1, lost_somebody}},
       2,
       2},
      {6,
       "ranks lost a peer without a name, and several are silent: nobody is named",
       4,
       {{0, lost_somebody}, {1, lost_somebody}},
       kNone,
       kNone},
      {9,
       "others wait for a rank that waited, and does not know for whom",
       3,
       {{0, waited(0, 1)}, {1, waited(1, kNone, 4)}, {2, waited(2, 1)}},
       1,
       1},
  };
}

std::vector<Rule> rules() {
  std::vector<Rule> all = rules_of_certain_and_silent_ranks();
  for (Rule& rule : other_rules()) all.push_back(std::move(rule));
  return all;
}

std::map<int, Failure> settle_all(const Rule& rule) {
  const auto store = std::make_shared<HashStore>();
  for (const auto& [rank, report] : rule.reports)
    FailureBoard(store, rank, rule.size).publish(report);
  std::map<int, Failure> raised;
  for (const auto& [rank, report] : rule.reports)
    raised[rank] = FailureBoard(store, rank, rule.size).settle(report, platform::Duration(0));
  return raised;
}

// Counts what is read, and may be out of reach.
class CountingStore final : public HashStore {
 public:
  explicit CountingStore(bool is_there) : is_there_(is_there) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    if (!is_there_) return failed(Status(Code::kTransport, "the store is gone"));
    return HashStore::set(key, value);
  }
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    ++reads_;
    if (!is_there_) return failed(Status(Code::kTransport, "the store is gone"));
    return HashStore::get(key, deadline);
  }
  int reads() const { return reads_; }

 private:
  const bool is_there_;
  int reads_ = 0;
};

TEST(FailureBoard, F2_3ARankThatIsAloneOrHasAnErrorOfItsOwnWaitsForNobody) {
  const auto store = std::make_shared<CountingStore>(true);
  const platform::Duration grace = std::chrono::hours(1);
  EXPECT_EQ(FailureBoard(store, 0, 1).settle(waited(0, kNone), grace).code, Code::kTimeout);
  EXPECT_EQ(FailureBoard(store, 0, 3).settle(own_error(0), grace).code, Code::kUserFailure);
  EXPECT_EQ(store->reads(), 0);
}

TEST(FailureBoard, F2_12AStoreThatFailsCostsNamesAlone) {
  const auto store = std::make_shared<CountingStore>(false);
  FailureBoard board(store, 0, 2);
  board.publish(broken(1));
  const Failure settled = board.settle(broken(1), platform::Duration(0));
  EXPECT_EQ(settled.code, Code::kTransport);
  EXPECT_EQ(settled.suspect, 1);
  EXPECT_GT(store->reads(), 0);
}

TEST(FailureBoard, EveryRuleHasReportsHere) {
  std::set<int> numbers;
  for (const Rule& rule : rules()) numbers.insert(rule.number);
  EXPECT_EQ(numbers, (std::set<int>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(FailureBoard, F2EachRuleNamesWhoStoppedTheOthersOnAllRanks) {
  for (const Rule& rule : rules()) {
    for (const auto& [rank, raised] : settle_all(rule)) {
      const std::string where = "rule " + std::to_string(rule.number) + ", " + rule.what +
                                ", on rank " + std::to_string(rank) + ": " + raised.to_string();
      if (rule.reports.at(rank).definite) continue;  // It raises its own error.
      EXPECT_EQ(raised.rank, rule.rank) << where;
      EXPECT_EQ(raised.suspect, rule.suspect) << where;
    }
  }
}

// Rank 2 lost rank 1, and rank 0 waited for rank 2 in the same collective.
TEST(FailureBoard, F2_4WhatFollowedSaysSomethingNew) {
  Failure left = lost(1);
  left.detail = "rank 1 had left the group in peace";
  const auto raised = settle_all({8, "a rank has left", 3, {{0, waited(0, 2)}, {2, left}}, 1, 1});
  EXPECT_EQ(raised.at(0).rank, 1);
  EXPECT_EQ(raised.at(0).detail,
            "rank 1 has reported no cause of its own; rank 2 saw: " + left.detail);
  ASSERT_EQ(raised.at(0).later.size(), 1u);
  EXPECT_EQ(raised.at(0).later[0], "rank 0 saw: " + waited(0, 2).to_string());
  EXPECT_EQ(raised.at(2).detail, left.detail);
  EXPECT_EQ(raised.at(2).later, std::vector<std::string>()) << raised.at(2).to_string();
}

}  // namespace
}  // namespace lockstep
