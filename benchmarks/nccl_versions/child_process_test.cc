#include "benchmarks/nccl_versions/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace lockstep::benchmarks {
namespace {

using End = ChildResult::End;
constexpr double kLong = 100;
constexpr double kShort = 0.2;

TEST(ChildProcess, WhatTheBodyReturnsIsTheOutput) {
  const std::string large(1 << 20, 'x');
  const ChildResult result = run_in_child(kLong, [&] { return large; });
  EXPECT_TRUE(result.is_fine());
  EXPECT_EQ(result.output, large);
}

TEST(ChildProcess, ABodyThatEndsItsProcessHasNotReturned) {
  const ChildResult exited = run_in_child(kLong, []() -> std::string { ::_exit(0); });
  EXPECT_EQ(exited.end, End::kExited);
  EXPECT_EQ(exited.describe(), "ended the process with code 0");
  const ChildResult killed = run_in_child(kLong, []() -> std::string {
    ::raise(SIGKILL);
    return "";
  });
  EXPECT_EQ(killed.end, End::kSignal);
  EXPECT_EQ(killed.code, SIGKILL);
}

TEST(ChildProcess, ABodyThatHangsIsEnded) {
  const ChildResult result = run_in_child(kShort, []() -> std::string {
    while (true) ::pause();
  });
  EXPECT_EQ(result.end, End::kTimeout);
  EXPECT_EQ(result.describe(), "did not return within 0.2 s");
}

TEST(ChildProcess, WhatAChildStartedEndsWithIt) {
  const ChildResult result = run_in_child(kShort, []() -> std::string {
    return run_in_child(kLong,
                        []() -> std::string {
                          while (true) ::pause();
                        })
        .output;
  });
  EXPECT_EQ(result.end, End::kTimeout);
}

TEST(ChildProcess, AProgramEndsWellWithItsExitCode) {
  EXPECT_EQ(run_program({"sh", "-c", "echo out; echo err >&2"}, kLong).output, "out\nerr\n");
  EXPECT_EQ(run_program({"sh", "-c", "exit 3"}, kLong).code, 3);
  EXPECT_FALSE(run_program({"sh", "-c", "exit 3"}, kLong).is_fine());
  EXPECT_FALSE(run_program({"/no/such/program"}, kLong).is_fine());
}

TEST(ChildProcess, TheLineWithTheWordIsFound) {
  EXPECT_EQ(first_line_with("one\nan error\nmore", "error"), "an error");
  EXPECT_EQ(first_line_with("one\ntwo", "error"), "one");
}

}  // namespace
}  // namespace lockstep::benchmarks
