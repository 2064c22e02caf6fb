#include "properties/process/last_words.h"

#include <dlfcn.h>
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

// Runs the body in a child that has called `before` and listen(). Returns how the child ended.
int end_of(
    LastWords& words, void (*body)(), void (*before)() = [] {}) {
  const pid_t child = ::fork();
  if (child == 0) {
    before();
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

void load_ucs() {
  if (::dlopen(LOCKSTEP_TEST_UCS, RTLD_NOW) == nullptr) ::_exit(1);
}

void crash() { ::raise(SIGSEGV); }

// A library that takes crashes hides them: such a process ends with 3, and leaves no words.
TEST(LastWords, AreThereWhereUcxHasTakenCrashes) {
  LastWords words;
  EXPECT_EQ(WEXITSTATUS(end_of(
                words, [] {}, load_ucs)),
            0);
  EXPECT_EQ(WEXITSTATUS(end_of(words, crash, load_ucs)), 3);
  EXPECT_THAT(words.take(), IsEmpty());
  const int status = end_of(words, crash, [] {
    load_ucs();
    drop_handlers_of_ucx();
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_THAT(words.take(), HasSubstr("libc.so"));
}

TEST(LastWords, HandlersOfOthersThanUcxStay) {
  LastWords words;
  EXPECT_EQ(WEXITSTATUS(end_of(words, crash,
                               [] {
                                 ::signal(SIGSEGV, [](int) { ::_exit(4); });
                                 drop_handlers_of_ucx();
                               })),
            4);
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
