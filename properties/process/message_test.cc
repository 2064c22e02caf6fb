// Claims: a message arrives as it was sent; foreign bytes are reported at once, however few or many
// they are; and no wait is longer than its limit.
#include "properties/process/message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace lockstep::properties {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSoonRead(100);
constexpr milliseconds kLongRead(60'000);  // that no test waits for

class Message : public ::testing::Test {
 protected:
  Message() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds_.data()), 0); }
  ~Message() override {
    hang_up();
    ::close(fds_[1]);
  }
  void hang_up() {
    if (fds_[0] >= 0) ::close(fds_[0]);
    fds_[0] = -1;
  }
  void write_bytes(const std::string& bytes) {
    ASSERT_EQ(::write(fds_[0], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  Receive receive(milliseconds limit) { return receive_message(fds_[1], text_, limit); }

  std::array<int, 2> fds_{-1, -1};
  std::string text_;
};

TEST_F(Message, ComesAsItWasSent) {
  for (const std::string& sent : {std::string(), std::string("a"), std::string(50'000, '\0')}) {
    ASSERT_TRUE(send_message(fds_[0], sent, kLongRead));
    ASSERT_EQ(receive(kLongRead), Receive::kMessage);
    EXPECT_EQ(text_, sent);
  }
}

TEST_F(Message, ForeignBytesAreNone) {
  write_bytes("01234567");  // as long as a mark
  EXPECT_EQ(receive(kLongRead), Receive::kForeign);
  write_bytes("a line that some subject prints\n");
  EXPECT_EQ(receive(kLongRead), Receive::kForeign);
}

TEST_F(Message, FewForeignBytesEndAtTheLimit) {
  write_bytes("abc");
  EXPECT_EQ(receive(kSoonRead), Receive::kTimeout);
}

TEST_F(Message, OneThatBreaksOffEndsAtTheLimit) {
  std::array<int, 2> other{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other.data()), 0);
  ASSERT_TRUE(send_message(other[0], "all of it", kLongRead));
  std::array<char, 64> bytes{};
  const ssize_t got = ::read(other[1], bytes.data(), bytes.size());
  ASSERT_GT(got, 4);
  write_bytes(std::string(bytes.data(), static_cast<std::size_t>(got) - 4));
  EXPECT_EQ(receive(kSoonRead), Receive::kTimeout);
  ::close(other[0]);
  ::close(other[1]);
}

TEST_F(Message, NothingEndsAtTheLimit) { EXPECT_EQ(receive(kSoonRead), Receive::kTimeout); }

TEST_F(Message, AnEndThatIsGoneIsTold) {
  hang_up();
  EXPECT_EQ(receive(kLongRead), Receive::kClosed);
  EXPECT_FALSE(send_message(fds_[1], "to nobody", kLongRead));
}

// As to a process that is stopped.
TEST_F(Message, SendingToOneWhoDoesNotReadEndsAtTheLimit) {
  EXPECT_FALSE(send_message(fds_[0], std::string(16 << 20, 'x'), kSoonRead));
}

TEST_F(Message, TakesNoMemoryForWhatIsAnnouncedAlone) {
  std::array<int, 2> other{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other.data()), 0);
  ASSERT_TRUE(send_message(other[0], "text", kLongRead));
  std::string bytes(64, '\0');
  ASSERT_EQ(::read(other[1], bytes.data(), bytes.size()), 20);
  ::close(other[0]);
  ::close(other[1]);
  bytes.resize(20);
  constexpr std::uint64_t kAnnounced = std::uint64_t{1} << 30;
  std::memcpy(bytes.data() + 8, &kAnnounced, sizeof kAnnounced);
  write_bytes(bytes);
  EXPECT_EQ(receive(kSoonRead), Receive::kTimeout);
  EXPECT_LT(text_.capacity(), kAnnounced / 16);
}

}  // namespace
}  // namespace lockstep::properties
