#include "properties/process/processor_time.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

class ProcessorTimeTest : public testing::Test {
 protected:
  ~ProcessorTimeTest() override { fs::remove_all(folder_); }

  // As the system writes it: nanoseconds on a processor, nanoseconds waiting for one, time slices.
  void set(const std::string& thread, double ran_s, double waited_s) {
    fs::create_directories(folder_ / thread);
    std::ofstream(folder_ / thread / "schedstat")
        << static_cast<std::uint64_t>(ran_s * 1e9) << ' '
        << static_cast<std::uint64_t>(waited_s * 1e9) << " 3\n";
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / ("processor_time." + std::to_string(::getpid()));
};

TEST_F(ProcessorTimeTest, OnlyWhatAThreadDidSinceTheFirstSampleCounts) {
  set("1", 100, 7);
  ProcessorClock clock(folder_.string());
  set("1", 103, 8);
  set("2", 2, 4);  // a new thread
  clock.sample();
  EXPECT_DOUBLE_EQ(clock.time().ran_s, 5);
  EXPECT_DOUBLE_EQ(clock.time().waited_s, 5);
}

TEST_F(ProcessorTimeTest, AThreadThatHasEndedKeepsWhatWasSeenOfIt) {
  ProcessorClock clock(folder_.string());
  set("2", 2, 4);
  clock.sample();
  fs::remove_all(folder_ / "2");
  clock.sample();
  EXPECT_DOUBLE_EQ(clock.time().waited_s, 4);
}

TEST_F(ProcessorTimeTest, TheLongestWaitIsThatOfOneThread) {
  set("1", 1, 7);
  ProcessorClock clock(folder_.string());
  set("1", 1, 9);
  set("2", 1, 1.5);
  clock.sample();
  EXPECT_DOUBLE_EQ(clock.longest_wait_s(), 2);
}

// Two threads that must share one processor: each waits about as long as it runs.
TEST_F(ProcessorTimeTest, AThreadThatSharesItsProcessorWaits) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  ProcessorClock clock("/no/such/folder");
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      ::sched_setaffinity(0, sizeof(one), &one);
      const std::clock_t end = std::clock() + CLOCKS_PER_SEC / 5;  // of both threads together
      while (std::clock() < end) {
      }
      clock.sample_this_thread();
    });
  for (std::thread& thread : threads) thread.join();
  if (clock.time().ran_s == 0) GTEST_SKIP() << "this system does not count the time of threads";
  EXPECT_GT(clock.longest_wait_s(), 0.02);
}

TEST_F(ProcessorTimeTest, WithoutSuchFilesNothingIsStarved) {
  ProcessorClock clock("/no/such/folder");
  clock.sample();
  EXPECT_EQ(clock.longest_wait_s(), 0);
  EXPECT_FALSE(is_starved(clock.time()));
}

TEST_F(ProcessorTimeTest, ThisProcessRuns) {
  ProcessorClock clock("/proc/self/task");
  for (int i = 0; i < 1000; ++i) clock.sample();
  if (clock.time().ran_s == 0) GTEST_SKIP() << "this system does not count the time of threads";
  EXPECT_GT(clock.time().ran_s, 0);
}

// What a rank of a case measured that the machine let run for 0.24 s in a minute, and others.
TEST_F(ProcessorTimeTest, WhoWaitsForAProcessorNearlyAlwaysIsStarved) {
  EXPECT_TRUE(is_starved({0.24, 61.2}));
  EXPECT_TRUE(is_starved({1, 20}));
  EXPECT_FALSE(is_starved({1.1, 20}));   // busy
  EXPECT_FALSE(is_starved({0.01, 4}));   // for a short time
  EXPECT_FALSE(is_starved({0.001, 0}));  // a deadlock: its threads sleep
  EXPECT_FALSE(is_starved({60, 60}));    // a loop
}

}  // namespace
}  // namespace lockstep::properties
