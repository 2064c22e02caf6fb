// Claims: a child is done only when it reports so; any other end of it, or of its line, is reported
// within a limit; a process that it leaves behind delays nothing.
#include "properties/process/child.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep::properties {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Received = Child::Received;

constexpr milliseconds kLong(60'000);  // that no test waits for

TEST(Child, AnswersAndIsDone) {
  Child child;
  ASSERT_TRUE(child
                  .start([](ChildLine& line) {
                    std::string text;
                    while (line.receive(text)) {
                      if (text == "end") return;
                      line.send(text + "!");
                    }
                  })
                  .ok());
  std::string text;
  ASSERT_TRUE(child.send("hello"));
  ASSERT_EQ(child.receive(text, kLong), Received::kMessage);
  EXPECT_EQ(text, "hello!");
  EXPECT_EQ(child.receive(text, milliseconds(20)), Received::kNothing);
  ASSERT_TRUE(child.send("end"));
  EXPECT_EQ(child.receive(text, kLong), Received::kFinished);
  EXPECT_FALSE(child.is_running());
}

// How a child is lost that does this.
template <class Body>
std::string loss(Body body) {
  Child child;
  EXPECT_TRUE(child.start([&body](ChildLine&) { body(); }).ok());
  std::string text;
  EXPECT_EQ(child.receive(text, kLong), Received::kLost);
  EXPECT_FALSE(child.is_running());
  return child.how_lost();
}

TEST(Child, ThatExitsIsLostWhateverItsStatus) {
  EXPECT_THAT(loss([] { ::_exit(0); }), HasSubstr("exited with status 0, without having said"));
  EXPECT_THAT(loss([] { ::_exit(65); }), HasSubstr("exited with status 65, without having said"));
}

TEST(Child, ThatCrashesIsLost) {
  EXPECT_THAT(loss([] { ::raise(SIGKILL); }), HasSubstr("killed by signal 9"));
}

extern "C" void note_the_signal(int signal, siginfo_t* info, void*) {
  if (!is_signal_of_child(signal, info->si_pid)) ::_exit(3);
}

void watch_for_sigterm() {
  struct sigaction action = {};
  action.sa_sigaction = note_the_signal;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGTERM, &action, nullptr);
}

TEST(Child, ThatSignalsItsParentIsLost) {
  watch_for_sigterm();
  const pid_t self = ::getpid();
  const auto signal_test = [self] {
    ::kill(self, SIGTERM);
    ::pause();
  };
  const std::string expected = "sent signal 15 (Terminated) to the program that runs it";
  EXPECT_EQ(loss(signal_test), expected);
  EXPECT_EQ(loss([&signal_test] {  // A process of its own does so.
              if (::fork() == 0) signal_test();
              ::pause();
            }),
            expected);
  ::signal(SIGTERM, SIG_DFL);
}

TEST(Child, ASignalFromAnotherProcessIsNotOfAChild) {
  Child child;
  ASSERT_TRUE(child.start([](ChildLine&) { ::pause(); }).ok());
  EXPECT_FALSE(is_signal_of_child(SIGTERM, ::getpid()));
  EXPECT_FALSE(is_signal_of_child(SIGTERM, ::getppid()));
  EXPECT_FALSE(is_signal_of_child(SIGTERM, 0));  // The kernel's, as for Ctrl-C.
  std::string text;
  EXPECT_EQ(child.receive(text, milliseconds(20)), Received::kNothing);
}

TEST(Child, ThatClosesItsLineIsLost) {
  EXPECT_THAT(loss([] {
                for (int fd = 3; fd < 256; ++fd) ::close(fd);
                ::pause();
              }),
              HasSubstr("closed its connection"));
}

TEST(Child, ThatClosesItsLineIsEndedAtTheNextCheck) {
  Child child;
  ASSERT_TRUE(child
                  .start([](ChildLine& line) {
                    for (int fd = 3; fd < 256; ++fd) ::close(fd);
                    line.check();
                    ::pause();
                  })
                  .ok());
  std::string text;
  EXPECT_EQ(child.receive(text, kLong), Received::kLost);
  EXPECT_THAT(child.how_lost(), HasSubstr("closed its connection"));
}

TEST(Child, ThatWritesToItsLineIsLost) {
  EXPECT_THAT(loss([] {
                for (int fd = 3; fd < 256; ++fd)
                  if (::write(fd, "a line of a log", 15) < 0) continue;
                ::pause();
              }),
              HasSubstr("wrote to a descriptor"));
}

// Writes fewer bytes than any message has to every socket of the process.
void write_to_sockets() {
  for (int fd = 3; fd < 256; ++fd)
    if (::send(fd, "log", 3, MSG_NOSIGNAL) < 0) continue;
}

TEST(Child, WhoseLineIsWrittenToIsEndedAtTheNextCheck) {
  Child child;
  ASSERT_TRUE(child
                  .start([](ChildLine& line) {
                    std::string text;
                    line.send("mine");
                    line.receive(text);  // The parent has read the message.
                    line.check();
                    write_to_sockets();
                    line.check();
                    ::_exit(99);
                  })
                  .ok());
  std::string text;
  ASSERT_EQ(child.receive(text, kLong), Received::kMessage);
  EXPECT_EQ(text, "mine");
  EXPECT_FALSE(child.has_news());
  ASSERT_TRUE(child.send("go on"));
  while (!child.has_ended()) ::usleep(1000);
  EXPECT_TRUE(child.has_news());
  EXPECT_EQ(child.receive(text, kLong), Received::kLost);
  EXPECT_THAT(child.how_lost(), HasSubstr("wrote to a descriptor"));
}

TEST(Child, WhoseLineIsWrittenToBehindAnUnreadMessageIsEndedToo) {
  Child child;
  ASSERT_TRUE(child
                  .start([](ChildLine& line) {
                    line.send("mine");
                    write_to_sockets();
                    line.check();
                    ::_exit(99);
                  })
                  .ok());
  while (!child.has_ended()) ::usleep(1000);
  std::string text;
  ASSERT_EQ(child.receive(text, kLong), Received::kMessage);
  EXPECT_EQ(text, "mine");
  EXPECT_EQ(child.receive(text, kLong), Received::kLost);
  EXPECT_THAT(child.how_lost(), HasSubstr("wrote to a descriptor"));
}

TEST(Child, WhoseOwnMessagesAreNotReadYetPassesEachCheck) {
  Child child;
  ASSERT_TRUE(child
                  .start([](ChildLine& line) {
                    for (const char* each : {"one", "two", "three"}) {
                      line.check();
                      line.send(each);
                      line.check();
                    }
                  })
                  .ok());
  while (!child.has_ended()) ::usleep(1000);
  std::string text;
  for (const char* each : {"one", "two", "three"}) {
    ASSERT_EQ(child.receive(text, kLong), Received::kMessage);
    EXPECT_EQ(text, each);
  }
  EXPECT_EQ(child.receive(text, kLong), Received::kFinished);
}

// Its socket stays open in a process that it has left behind.
TEST(Child, ThatLeavesAProcessBehindIsLostAllTheSame) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  EXPECT_THAT(loss([&fds] {
                if (::fork() == 0) {
                  ::setsid();  // out of the group that is killed
                  char byte = 0;
                  ::close(fds[1]);
                  if (::read(fds[0], &byte, 1) <= 0) ::_exit(0);  // until the test is over
                }
                ::_exit(0);
              }),
              HasSubstr("exited with status 0"));
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST(Child, ThatIsStoppedIsNothingAndCanBeEnded) {
  Child child;
  ASSERT_TRUE(child.start([](ChildLine&) { ::raise(SIGSTOP); }).ok());
  std::string text;
  EXPECT_EQ(child.receive(text, milliseconds(100)), Received::kNothing);
  child.end();
  EXPECT_FALSE(child.is_running());
}

// A child that writes to all its descriptors must not reach another.
TEST(Child, HasNotTheLinesToOthers) {
  Child first;
  ASSERT_TRUE(first
                  .start([](ChildLine& line) {
                    std::string text;
                    if (line.receive(text)) line.send(text);
                  })
                  .ok());
  Child second;
  const int line_to_first = first.fd();
  ASSERT_TRUE(second
                  .start([line_to_first](ChildLine& line) {
                    line.send(::fcntl(line_to_first, F_GETFD) < 0 ? "closed" : "open");
                  })
                  .ok());
  std::string text;
  ASSERT_EQ(second.receive(text, kLong), Received::kMessage);
  EXPECT_EQ(text, "closed");
  ASSERT_TRUE(first.send("still there"));
  ASSERT_EQ(first.receive(text, kLong), Received::kMessage);
  EXPECT_EQ(text, "still there");
}

}  // namespace
}  // namespace lockstep::properties
