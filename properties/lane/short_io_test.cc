// Short reads and writes: every call that moves bytes moves fewer than it was asked for, and some
// are interrupted by a signal before they have moved any. Claims: a message between processes, a
// case file, a result of a rank and a value in the FileStore come as they were sent, and a child
// process answers and is done.
//
// Method: this program has its own read(), write(), send(), recv(), sendmsg(), recvmsg() and
// waitpid(), which take the place of the system's library's. A failure means that a caller takes a
// part for the whole, or an interruption for an end.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "properties/case/case_json.h"
#include "properties/generate/generate.h"
#include "properties/lane/rank_json.h"
#include "properties/process/child.h"
#include "properties/process/message.h"
#include "reducer/comm/gloo/file_store.h"
#include "reducer/comm/gloo/test_util.h"

namespace {

std::atomic<bool> is_short{false};
std::atomic<unsigned> calls{0};
std::atomic<unsigned> interruptions{0};
std::atomic<unsigned> parts{0};

// Whether this call is interrupted. Never twice in a row for one thread, so that every loop ends.
bool interrupts() {
  thread_local bool was_interrupted = false;
  if (!is_short) return false;
  was_interrupted = !was_interrupted && calls++ % 3 == 0;
  if (!was_interrupted) return false;
  ++interruptions;
  errno = EINTR;
  return true;
}

// How many of so many bytes a call moves.
std::size_t part_of(std::size_t bytes) {
  if (!is_short || bytes < 2) return bytes;
  ++parts;
  return std::min<std::size_t>(bytes - 1, 1 + calls++ % 7 * 600);
}

}  // namespace

extern "C" {

ssize_t read(int fd, void* data, size_t bytes) {
  if (interrupts()) return -1;
  return ::syscall(SYS_read, fd, data, part_of(bytes));
}
ssize_t write(int fd, const void* data, size_t bytes) {
  if (interrupts()) return -1;
  return ::syscall(SYS_write, fd, data, part_of(bytes));
}
ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  if (interrupts()) return -1;
  return ::syscall(SYS_sendto, fd, data, part_of(bytes), flags, nullptr, 0);
}
ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  if (interrupts()) return -1;
  return ::syscall(SYS_recvfrom, fd, data, part_of(bytes), flags, nullptr, nullptr);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (interrupts()) return -1;
  return ::syscall(SYS_sendmsg, fd, message, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  if (interrupts()) return -1;
  return ::syscall(SYS_recvmsg, fd, message, flags);
}
pid_t waitpid(pid_t child, int* status, int options) {
  if ((options & WNOHANG) == 0 && interrupts()) return -1;
  return static_cast<pid_t>(::syscall(SYS_wait4, child, status, options, nullptr));
}

}  // extern "C"

namespace lockstep::properties {
namespace {

using std::chrono::milliseconds;
using Received = Child::Received;

constexpr milliseconds kLong(60'000);  // that no test waits for

class ShortIo : public ::testing::Test {
 protected:
  ShortIo() {
    interruptions = parts = 0;
    is_short = true;
  }
  ~ShortIo() override { is_short = false; }
  // The positive control: the calls went through this program's functions.
  static void expect_disturbed() {
    is_short = false;
    EXPECT_GT(interruptions, 0u);
    EXPECT_GT(parts, 0u);
  }
};

std::string text_of(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 256);
  return text;
}

TEST_F(ShortIo, AMessageComesAsItWasSent) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{300'000}}) {
    const std::string sent = text_of(bytes);
    std::thread sender([&] { EXPECT_TRUE(send_message(ends[0], sent, kLong)); });
    std::string got;
    EXPECT_EQ(receive_message(ends[1], got, kLong), Receive::kMessage);
    sender.join();
    EXPECT_EQ(got, sent);
  }
  for (const int end : ends) ::close(end);
  expect_disturbed();
}

TEST_F(ShortIo, AChildAnswersAndIsDone) {
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
  const std::string asked = text_of(100'000);
  std::string text;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(child.send(asked));
    ASSERT_EQ(child.receive(text, kLong), Received::kMessage) << child.how_lost();
    ASSERT_EQ(text, asked + "!");
  }
  ASSERT_TRUE(child.send("end"));
  EXPECT_EQ(child.receive(text, kLong), Received::kFinished) << child.how_lost();
  EXPECT_FALSE(child.is_running());
  expect_disturbed();
}

TEST_F(ShortIo, ACaseFileIsReadAsItWasWritten) {
  const testing::TemporaryDirectory folder;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Case value = generate(3, i);
    const std::string path = folder.path() + "/case.json";
    const Status written = write_case(path, value);
    ASSERT_TRUE(written.ok()) << written.to_string();
    const Result<Case> got = read_case(path);
    ASSERT_TRUE(got.has_value()) << got.error().to_string();
    EXPECT_TRUE(equal(*got, value));
  }
  expect_disturbed();
}

TEST_F(ShortIo, AResultOfARankComesAsItWasSent) {
  RankObservation sent;
  for (std::uint64_t i = 0; i < 50'000; ++i) sent.bits.push_back(i * 0x9e3779b97f4a7c15u);
  sent.construction = Status(Code::kTimeout, "late");
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  std::thread sender([&] { EXPECT_TRUE(send_message(ends[0], to_bytes(sent, {}), kLong)); });
  std::string bytes;
  EXPECT_EQ(receive_message(ends[1], bytes, kLong), Receive::kMessage);
  sender.join();
  for (const int end : ends) ::close(end);
  RankObservation got;
  faults::Fired fired;
  ASSERT_TRUE(from_bytes(bytes, got, fired));
  EXPECT_EQ(got.bits, sent.bits);
  EXPECT_EQ(got.construction.to_string(), sent.construction.to_string());
  expect_disturbed();
}

TEST_F(ShortIo, AValueOfTheFileStoreIsReadAsItWasSet) {
  const testing::TemporaryDirectory folder;
  FileStore store(folder.path());
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, std::size_t{200'000}}) {
    const std::string key = "key/" + std::to_string(bytes);
    const std::string value = text_of(bytes);
    std::thread setter([&] { EXPECT_TRUE(store.set(key, value).has_value()); });
    const Result<std::string> got = store.get(key, platform::Deadline::in(kLong));
    setter.join();
    ASSERT_TRUE(got.has_value()) << got.error().to_string();
    EXPECT_EQ(*got, value);
    const Result<bool> is_there = store.contains(key);
    EXPECT_TRUE(is_there && *is_there);
  }
  expect_disturbed();
}

}  // namespace
}  // namespace lockstep::properties
