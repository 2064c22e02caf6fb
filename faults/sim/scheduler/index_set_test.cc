#include "faults/sim/scheduler/index_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace lockstep::simulation {
namespace {

std::vector<std::uint32_t> members_of(const IndexSet<4>& set) {
  std::vector<std::uint32_t> out;
  set.for_each([&](std::uint32_t index) { out.push_back(index); });
  return out;
}

std::uint32_t after_in(const std::set<std::uint32_t>& set, std::uint32_t index) {
  const auto next = set.upper_bound(index);
  return next == set.end() ? *set.begin() : *next;
}

TEST(IndexSet, AgreesWithAnOrderedSet) {
  std::mt19937 random(1);
  IndexSet<4> set;
  std::set<std::uint32_t> model;
  for (int step = 0; step < 20'000; ++step) {
    const auto index = static_cast<std::uint32_t>(random() % 256);
    ASSERT_EQ(set.contains(index), model.count(index) == 1);
    if (model.insert(index).second) {
      set.insert(index);
    } else {
      model.erase(index);
      set.erase(index);
    }
    ASSERT_EQ(set.count(), model.size());
    if (model.empty()) continue;
    ASSERT_EQ(set.lowest(), *model.begin());
    ASSERT_EQ(set.after(index), after_in(model, index));
    const auto n = static_cast<std::uint32_t>(random() % model.size());
    ASSERT_EQ(set.nth(n), *std::next(model.begin(), n));
    if (step % 100 == 0) {
      ASSERT_TRUE(std::ranges::equal(members_of(set), model));
    }
  }
}

// More members than one word of the mask of used words has bits for.
TEST(IndexSet, AgreesWithAnOrderedSetAcrossWordsOfWords) {
  std::mt19937 random(3);
  IndexSet<80> set;
  std::set<std::uint32_t> model;
  for (int step = 0; step < 20'000; ++step) {
    const auto index = static_cast<std::uint32_t>(random() % (80 * 64));
    // Few members, so that whole words of used words are empty.
    if (model.size() > 6) {
      set.erase(*model.begin());
      model.erase(model.begin());
    }
    if (model.insert(index).second) set.insert(index);
    ASSERT_EQ(set.lowest(), *model.begin());
    ASSERT_EQ(set.after(index), after_in(model, index));
    const auto n = static_cast<std::uint32_t>(random() % model.size());
    ASSERT_EQ(set.nth(n), *std::next(model.begin(), n));
    std::vector<std::uint32_t> members;
    set.for_each([&](std::uint32_t member) { members.push_back(member); });
    ASSERT_TRUE(std::ranges::equal(members, model));
    if (step % 50 == 49) {
      set.clear();
      model.clear();
      ASSERT_TRUE(set.empty());
    }
  }
}

TEST(IndexSet, AfterGoesRoundAtTheEnds) {
  IndexSet<4> set;
  for (const std::uint32_t index : {0U, 63U, 64U, 255U}) set.insert(index);
  EXPECT_EQ(set.after(0), 63U);
  EXPECT_EQ(set.after(63), 64U);
  EXPECT_EQ(set.after(64), 255U);
  EXPECT_EQ(set.after(255), 0U);
}

TEST(RunSet, AnyGivesEveryMemberOnce) {
  std::mt19937 random(2);
  RunSet<4> set;
  std::set<std::uint32_t> model;
  for (int step = 0; step < 20'000; ++step) {
    const auto index = static_cast<std::uint32_t>(random() % 40);
    if (model.insert(index).second) {
      set.insert(index);
    } else {
      model.erase(index);
      set.erase(index);
    }
    std::set<std::uint32_t> seen;
    for (std::uint32_t n = 0; n < set.count(); ++n) seen.insert(set.any(n));
    ASSERT_EQ(seen, model);
  }
}

}  // namespace
}  // namespace lockstep::simulation
