#include "properties/process/hang_watch.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Found = HangWatch::Found;

constexpr pid_t kGroup = 40;

class HangWatchTest : public testing::Test {
 protected:
  ~HangWatchTest() override { fs::remove_all(folder_); }

  // A process with one thread of the same number, as the system shows it.
  void set(int process, pid_t group, double waited_s, double ran_s = 5e-9) {
    const fs::path at = folder_ / std::to_string(process);
    fs::create_directories(at / "task" / std::to_string(process));
    std::ofstream(at / "stat") << process << " (a ) (name) S 1 " << group << " 7 0";
    std::ofstream(at / "task" / std::to_string(process) / "schedstat")
        << static_cast<std::uint64_t>(ran_s * 1e9) << ' '
        << static_cast<std::uint64_t>(waited_s * 1e9) << " 3\n";
  }
  Found at(int seconds) {
    return watch_.look(kGroup, {milliseconds(1000 * seconds), milliseconds(20'000)});
  }

  Found idle_at(int seconds) {
    return watch_.look(kGroup, {milliseconds(1000 * seconds), milliseconds(20'000)},
                       milliseconds(5'000));
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / ("hang_watch." + std::to_string(::getpid()));
  HangWatch watch_{folder_.string()};
};

TEST_F(HangWatchTest, WhatWaitsForNoProcessorHangsAtItsLimit) {
  set(40, kGroup, 100);  // of earlier cases
  EXPECT_EQ(at(5), Found::kNothing);
  EXPECT_EQ(at(10), Found::kNothing);
  EXPECT_EQ(at(19), Found::kNothing);
  EXPECT_EQ(at(20), Found::kHung);
}

TEST_F(HangWatchTest, TheTimeThatOneThreadOfTheGroupWaitedDoesNotCount) {
  set(40, kGroup, 1);
  set(41, kGroup, 2);
  set(42, 7, 3);  // another group's
  at(10);
  set(40, kGroup, 4);  // 3 s more
  set(41, kGroup, 8);  // 6 s more
  set(42, 7, 90);
  EXPECT_EQ(at(20), Found::kNothing);
  EXPECT_EQ(at(25), Found::kNothing);
  EXPECT_EQ(at(26), Found::kHung);
}

TEST_F(HangWatchTest, AThreadThatIsNewSinceHalfTheLimitCountsFromItsBeginning) {
  at(10);
  set(43, kGroup, 5);
  EXPECT_EQ(at(24), Found::kNothing);
  EXPECT_EQ(at(25), Found::kHung);
}

TEST_F(HangWatchTest, AfterFourTimesItsLimitACaseThatWaitedProvesNothing) {
  set(40, kGroup, 0);
  at(10);
  set(40, kGroup, 65);
  EXPECT_EQ(at(79), Found::kNothing);
  EXPECT_EQ(at(80), Found::kStarved);
}

TEST_F(HangWatchTest, TheNextCaseHasItsOwnLimit) {
  set(40, kGroup, 0);
  at(10);
  set(40, kGroup, 15);
  EXPECT_EQ(at(20), Found::kNothing);
  EXPECT_EQ(at(1), Found::kNothing);  // the next case
  at(10);
  EXPECT_EQ(at(20), Found::kHung);
}

// Computing and waiting for a processor are work; sleeping is none.
TEST_F(HangWatchTest, WhatNeitherComputesNorWantsToIsIdleBeforeItsLimit) {
  set(40, kGroup, 0, 10);
  EXPECT_EQ(idle_at(1), Found::kNothing);
  set(40, kGroup, 0, 11);
  EXPECT_EQ(idle_at(2), Found::kNothing);
  set(40, kGroup, 1, 11);
  EXPECT_EQ(idle_at(3), Found::kNothing);
  EXPECT_EQ(idle_at(7), Found::kNothing);
  set(40, kGroup, 1, 11.1);  // a look at its watch now and then
  EXPECT_EQ(idle_at(8), Found::kIdle);
}

TEST_F(HangWatchTest, TheNextCaseIsNotIdleForWhatTheLastOneWas) {
  set(40, kGroup, 0, 10);
  EXPECT_EQ(idle_at(1), Found::kNothing);
  EXPECT_EQ(idle_at(5), Found::kNothing);
  EXPECT_EQ(idle_at(1), Found::kNothing);  // the next case
  EXPECT_EQ(idle_at(5), Found::kNothing);
  EXPECT_EQ(idle_at(6), Found::kIdle);
}

TEST_F(HangWatchTest, WhereTheSystemDoesNotCountNothingIsIdle) {
  EXPECT_EQ(idle_at(1), Found::kNothing);
  EXPECT_EQ(idle_at(9), Found::kNothing);
}

TEST_F(HangWatchTest, WithoutTheSystemsCountsTheLimitHolds) {
  at(10);
  EXPECT_EQ(at(20), Found::kHung);
}

// Two processes of a group that compute on one processor: each waits for half of the time.
TEST(HangWatch, SeesProcessesThatShareAProcessor) {
  const pid_t first = ::fork();
  ASSERT_GE(first, 0);
  if (first == 0) {
    ::setpgid(0, 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    (void)::fork();
    while (true) (void)::clock();
  }
  ::setpgid(first, first);
  HangWatch watch;
  EXPECT_EQ(watch.look(first, {milliseconds(100), milliseconds(200)}), Found::kNothing);
  std::this_thread::sleep_for(milliseconds(1000));
  // More than nothing of the last second was spent waiting, so the limit is not yet over.
  EXPECT_EQ(watch.look(first, {milliseconds(200), milliseconds(200)}), Found::kNothing);
  ::kill(-first, SIGKILL);
  ::waitpid(first, nullptr, 0);
}

}  // namespace
}  // namespace lockstep::properties
