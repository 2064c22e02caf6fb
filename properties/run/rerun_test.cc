#include "properties/run/rerun.h"

#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

using std::chrono::milliseconds;

// A rank of this run waited for a processor for a quarter of its timeout.
RunOfCase late(Failing failing) {
  RunOfCase run;
  run.failing = failing;
  run.waited_s = 0.25;
  run.timeout = milliseconds(1000);
  return run;
}

TEST(Rerun, WhatSucceedsDoesNotRunAgain) {
  EXPECT_EQ(next_after(late(Failing::kNothing)), Next::kAccept);
}

TEST(Rerun, WhatNeverDependsOnTimeCountsAtOnce) {
  for (const Failing each : {Failing::kWrongBits, Failing::kCrash, Failing::kRace,
                             Failing::kNotDeterministic, Failing::kInconclusive}) {
    RunOfCase run = late(each);
    EXPECT_EQ(next_after(run), Next::kAccept) << name_of(each);
    run.was_starved = true;
    EXPECT_EQ(next_after(run), Next::kAccept) << name_of(each);
  }
}

TEST(Rerun, ARankThatWaitedIsGivenTwoMoreRunsAndNoMore) {
  for (const Failing each : {Failing::kDeadlock, Failing::kLeak, Failing::kWrongError}) {
    RunOfCase run = late(each);
    EXPECT_EQ(next_after(run), Next::kRunAgain) << name_of(each);
    run.runs = 2;
    EXPECT_EQ(next_after(run), Next::kRunAgain) << name_of(each);
    run.runs = 3;
    EXPECT_EQ(next_after(run), Next::kAccept) << name_of(each);
  }
}

TEST(Rerun, RanksThatWaitedLongerThanTheirTimeoutInEachRunProveNothing) {
  RunOfCase run = late(Failing::kWrongError);
  run.runs = 3;
  run.waited_s = 7;
  run.least_wait_s = 1;
  EXPECT_EQ(next_after(run), Next::kInconclusive);
  run.least_wait_s = 0.9;
  EXPECT_EQ(next_after(run), Next::kAccept);
  run.least_wait_s = 1;
  run.failing = Failing::kWrongBits;
  EXPECT_EQ(next_after(run), Next::kAccept);
}

// On a machine with nothing else to do, threads wait for milliseconds.
TEST(Rerun, AFailureOfRanksThatHardlyWaitedCountsAtOnce) {
  RunOfCase run = late(Failing::kWrongError);
  run.waited_s = 0.24;
  EXPECT_EQ(next_after(run), Next::kAccept);
}

TEST(Rerun, TheNoteTellsOfAFailureThatCountsAlthoughARankWaited) {
  RunOfCase run = late(Failing::kWrongError);
  run.runs = 3;
  EXPECT_EQ(
      note_of_wait(run),
      "\n(a rank waited 0.2 s for a processor, with a timeout of 1.0 s; the case ran 3 times, "
      "and failed each time)");
  run.waited_s = 0.24;
  EXPECT_EQ(note_of_wait(run), "");
  EXPECT_EQ(note_of_wait(late(Failing::kWrongBits)), "");
  EXPECT_EQ(note_of_wait(late(Failing::kNothing)), "");
}

TEST(Rerun, ARankThatNearlyAlwaysWaitsMakesTheCaseInconclusive) {
  RunOfCase run = late(Failing::kDeadlock);
  run.was_starved = true;
  EXPECT_EQ(next_after(run), Next::kRunAgain);
  run.runs = 2;
  EXPECT_EQ(next_after(run), Next::kInconclusive);
}

}  // namespace
}  // namespace lockstep::properties
