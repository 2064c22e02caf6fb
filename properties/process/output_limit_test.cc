// Claims: what a process prints goes on as it comes, up to a limit; of more than that the first and
// the last part come, and how much was left out; a process that goes on printing delays nobody.
// Method: the streams of this process are files while children print.
#include "properties/process/output_limit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

namespace lockstep::properties {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string text_of(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

// What comes out on standard output and for errors where a child does this.
std::pair<std::string, std::string> printed(const std::function<void()>& body) {
  std::FILE* files[2] = {std::tmpfile(), std::tmpfile()};
  int kept[2];
  for (int i = 0; i < 2; ++i) {
    kept[i] = ::dup(1 + i);
    ::dup2(::fileno(files[i]), 1 + i);
  }
  OutputLimit limit;
  EXPECT_TRUE(limit.start().ok());
  const pid_t child = ::fork();
  if (child == 0) {
    limit.take_over();
    body();
    std::fflush(nullptr);
    ::_exit(0);
  }
  limit.let_go();
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  limit.finish();
  std::pair<std::string, std::string> texts(text_of(files[0]), text_of(files[1]));
  for (int i = 0; i < 2; ++i) {
    ::dup2(kept[i], 1 + i);
    ::close(kept[i]);
    std::fclose(files[i]);
  }
  return texts;
}

TEST(OutputLimit, LetsALittleThroughAsItIs) {
  const auto [out, error] = printed([] {
    std::puts("to standard output");
    std::fputs("for errors", stderr);
  });
  EXPECT_EQ(out, "to standard output\n");
  EXPECT_EQ(error, "for errors");
}

TEST(OutputLimit, KeepsTheFirstAndTheLastPartOfMuchAndSaysHowMuchIsLeftOut) {
  constexpr std::uint64_t kLines = 1 << 20;
  constexpr std::uint64_t kBytes = 8;  // of a line
  const auto [out, error] = printed([] {
    for (std::uint64_t line = 0; line < kLines; ++line) fmt::print(stderr, "{:07}\n", line);
    fmt::print("this stream has little\n");
  });
  EXPECT_EQ(out, "this stream has little\n");
  EXPECT_THAT(error, StartsWith("0000000\n0000001\n"));
  EXPECT_THAT(error, HasSubstr("this process prints much"));
  EXPECT_THAT(error, HasSubstr(fmt::format("\n({} bytes are left out)\n",
                                           kLines * kBytes - kFirstOutput - kLastOutput)));
  EXPECT_THAT(error, EndsWith(fmt::format("{:07}\n", kLines - 1)));
  EXPECT_LT(error.size(), kFirstOutput + kLastOutput + 200);
}

TEST(OutputLimit, WaitsForNoProcessThatGoesOn) {
  const auto begin = std::chrono::steady_clock::now();
  pid_t left = 0;
  const auto [out, error] = printed([] {
    std::puts("before");
    std::fflush(stdout);
    const pid_t other = ::fork();
    if (other == 0) {
      ::sleep(60);
      ::_exit(0);
    }
    fmt::print(stderr, "{}", other);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(out, "before\n");
  left = std::stoi(error);
  EXPECT_EQ(::kill(left, SIGKILL), 0);
}

}  // namespace
}  // namespace lockstep::properties
