// AccessHistory: which earlier accesses are compared with a new one, and which are forgotten.
#include "faults/sim/device/access_history.h"

#include <gtest/gtest.h>

namespace lockstep::simulated {
namespace {

class History {
 public:
  // The next access of `line`, after all that it or `after` knows of; what it races with.
  std::string access(std::size_t line, std::size_t begin, std::size_t end, bool is_write,
                     std::initializer_list<std::size_t> after = {}) {
    if (clocks_.size() <= line) clocks_.resize(line + 1);
    for (const std::size_t other : after) clocks_[line].join(clocks_[other]);
    clocks_[line].set(line, clocks_[line].at(line) + 1);
    const auto actor = std::make_shared<Actor>(Actor{line, clocks_[line].at(line), "", ""});
    std::string races;
    history.add({actor, begin, end, is_write, 0}, clocks_[line], [&](const Access& earlier) {
      races += std::to_string(earlier.actor->line) + "[" + std::to_string(earlier.begin) + "," +
               std::to_string(earlier.end) + ")";
    });
    return races;
  }
  std::string write(std::size_t line, std::size_t begin, std::size_t end,
                    std::initializer_list<std::size_t> after = {}) {
    return access(line, begin, end, true, after);
  }
  std::string read(std::size_t line, std::size_t begin, std::size_t end,
                   std::initializer_list<std::size_t> after = {}) {
    return access(line, begin, end, false, after);
  }

  AccessHistory history;

 private:
  std::vector<VectorClock> clocks_ = std::vector<VectorClock>(4);
};

TEST(AccessHistory, KeepsWhatALaterWriteDoesNotCover) {
  History of;
  EXPECT_EQ(of.write(0, 0, 10), "");
  EXPECT_EQ(of.write(0, 4, 6), "");
  EXPECT_EQ(of.history.kept(), 3u);
  EXPECT_EQ(of.read(1, 0, 4), "0[0,4)");
  EXPECT_EQ(of.read(2, 6, 10), "0[6,10)");
  EXPECT_EQ(of.read(3, 0, 10, {0}), "");
}

TEST(AccessHistory, TheSameAgainAndAgainIsKeptOnce) {
  History of;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(of.write(0, 0, 8, {1}), "");
    EXPECT_EQ(of.read(1, 0, 8, {0}), "");
  }
  EXPECT_EQ(of.history.kept(), 2u);
}

TEST(AccessHistory, AWriteIsRememberedBehindAReadThatCameAfterIt) {
  History of;
  EXPECT_EQ(of.write(0, 0, 8), "");
  EXPECT_EQ(of.read(1, 0, 8, {0}), "");
  EXPECT_EQ(of.read(2, 0, 8), "0[0,8)");
}

TEST(AccessHistory, EveryReaderIsComparedWithAWriter) {
  History of;
  EXPECT_EQ(of.read(0, 0, 8), "");
  EXPECT_EQ(of.read(1, 0, 8), "");
  EXPECT_EQ(of.write(2, 7, 9), "0[0,8)1[0,8)");
  EXPECT_EQ(of.write(3, 8, 20), "2[7,9)");
}

}  // namespace
}  // namespace lockstep::simulated
