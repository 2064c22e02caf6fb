#include "properties/process/last_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

namespace lockstep::properties {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Runs the body in a child that has called listen(), and returns how the child ended.
int end_of(LastWords& words, void (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    words.listen();
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// The stack names the library in which the process was, and the process still ends by the signal.
TEST(LastWords, OfAProcessThatAbortsAreItsStack) {
  LastWords words;
  const int status = end_of(words, [] { std::abort(); });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_THAT(words.take(), HasSubstr("libc.so"));
  EXPECT_THAT(words.take(), IsEmpty()) << "it was taken";
}

TEST(LastWords, OfAProcessThatEndsWellAreNone) {
  LastWords words;
  EXPECT_EQ(end_of(words, [] {}), 0);
  EXPECT_THAT(words.take(), IsEmpty());
}

bool is_asleep(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  file >> number >> name >> state;
  return state == "S";
}

TEST(LastWords, OfAProcessThatHangsAreThereWhenItIsAsked) {
  LastWords words;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    words.listen();
    (void)!::write(ready[1], "x", 1);
    while (true) ::pause();
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  // On a busy machine it is still in write() then.
  for (int i = 0; i < 2000 && !is_asleep(child); ++i) ::usleep(1000);
  words.ask(child, std::chrono::seconds(20));
  EXPECT_THAT(words.take(), HasSubstr("pause"));
  EXPECT_EQ(::kill(child, 0), 0) << "asking has ended it";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace lockstep::properties
