// Peers that are not the plug-in, or lie: the connection they are on ends with an error, all others
// go on, nothing crashes, and nothing grows by what they say.
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>

#include "faults/nccl_net/socket.h"
#include "faults/nccl_net/test_net_ends.h"
#include "faults/nccl_net/wire.h"

namespace lockstep::faults::net::testing {
namespace {

using ::testing::HasSubstr;

// A blocking TCP connection of our own to what a handle names.
class Stranger {
 public:
  explicit Stranger(const char* handle_bytes) {
    std::memcpy(&handle_, handle_bytes, sizeof handle_);
    sockaddr_storage address{};
    std::memcpy(&address, handle_.address, sizeof handle_.address);
    descriptor_ = ::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), handle_.address_size),
              0);
  }
  ~Stranger() { close(); }
  Stranger(Stranger&& other) noexcept
      : handle_(other.handle_), descriptor_(std::exchange(other.descriptor_, -1)) {}

  void say(const void* bytes, std::size_t size) {
    EXPECT_EQ(::send(descriptor_, bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  }
  template <typename T>
  void say(const T& value) {
    say(&value, sizeof value);
  }
  // What a right sender says first.
  Hello hello() const {
    Hello right;
    right.token = handle_.token;
    right.rank = 5;
    return right;
  }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

 private:
  Handle handle_;
  int descriptor_;
};

class NcclNetHostile : public NcclNetTest {
 protected:
  void SetUp() override {
    NcclNetTest::SetUp();
    rejected_before_ = plugin_.counts().rejected_peers;
    ASSERT_EQ(plugin_.become(1), kSuccess);
    ASSERT_EQ(plugin_.listen(handle_, &listener_), kSuccess);
  }
  void TearDown() override {
    plugin_.close_listen(listener_);
    ::unsetenv(LOCKSTEP_NET_HANDSHAKE_MS);
  }

  std::uint64_t rejected() { return plugin_.counts().rejected_peers - rejected_before_; }

  void expect_nobody_accepted() {
    void* receiver = nullptr;
    EXPECT_EQ(plugin_.accept(listener_, &receiver), kSuccess);
    EXPECT_EQ(receiver, nullptr);
  }
  void expect_turned_away(std::uint64_t count, const std::string& why) {
    EXPECT_TRUE(eventually([&] {
      expect_nobody_accepted();
      return rejected() >= count;
    }));
    EXPECT_EQ(rejected(), count);
    EXPECT_THAT(plugin_.last_warning(), HasSubstr(why));
  }
  // A right peer gets in and its messages arrive.
  void expect_welcome() {
    Pair pair;
    char handle[kHandleBytes];
    std::memcpy(handle, handle_, sizeof handle);
    EXPECT_TRUE(eventually([&] {
      if (pair.sender == nullptr) {
        EXPECT_EQ(plugin_.connect(handle, &pair.sender), kSuccess);
      }
      if (pair.receiver == nullptr) {
        EXPECT_EQ(plugin_.accept(listener_, &pair.receiver), kSuccess);
      }
      return pair.sender != nullptr && pair.receiver != nullptr;
    }));
    ASSERT_NE(pair.receiver, nullptr);
    plugin_.expect_carried(pair, pattern(1000, 1));
    plugin_.close_send(pair.sender);
    plugin_.close_receive(pair.receiver);
  }
  // The receiver for a stranger that knows how to say hello.
  void* accept_stranger(Stranger& stranger) {
    stranger.say(stranger.hello());
    void* receiver = nullptr;
    EXPECT_TRUE(eventually([&] {
      EXPECT_EQ(plugin_.accept(listener_, &receiver), kSuccess);
      return receiver != nullptr;
    }));
    return receiver;
  }

  char handle_[kHandleBytes] = {};
  void* listener_ = nullptr;
  std::uint64_t rejected_before_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Table, NcclNetHostile, ::testing::Values(6, 11), table_name);

TEST_P(NcclNetHostile, OtherProtocolIsTurnedAway) {
  Stranger stranger(handle_);
  stranger.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 35);
  expect_turned_away(1, "not the Lockstep plug-in");
  expect_welcome();
}

TEST_P(NcclNetHostile, WrongTokenIsTurnedAway) {
  Stranger stranger(handle_);
  Hello hello = stranger.hello();
  hello.token ^= 1;
  stranger.say(hello);
  expect_turned_away(1, "wants another listener");
  expect_welcome();
}

TEST_P(NcclNetHostile, NegativeRankIsTurnedAway) {
  Stranger stranger(handle_);
  Hello hello = stranger.hello();
  hello.rank = -7;
  stranger.say(hello);
  expect_turned_away(1, "its rank is negative");
  expect_welcome();
}

TEST_P(NcclNetHostile, PeerThatGoesAwayEarlyIsTurnedAway) {
  Stranger stranger(handle_);
  stranger.say(stranger.hello().magic);
  expect_nobody_accepted();
  stranger.close();
  expect_turned_away(1, "went away before it said");
  expect_welcome();
}

TEST_P(NcclNetHostile, SlowPeerDoesNotKeepOthersOutAndHasToGoInTime) {
  ::setenv(LOCKSTEP_NET_HANDSHAKE_MS, "1500", 1);
  plugin_.close_listen(listener_);
  ASSERT_EQ(plugin_.become(1), kSuccess);
  ASSERT_EQ(plugin_.listen(handle_, &listener_), kSuccess);
  Stranger slow(handle_);
  slow.say(slow.hello().magic);
  expect_nobody_accepted();
  expect_welcome();
  EXPECT_EQ(rejected(), 0u);
  expect_turned_away(1, "did not say in time");
}

TEST_P(NcclNetHostile, HelloInPiecesIsUnderstood) {
  Stranger stranger(handle_);
  const Hello hello = stranger.hello();
  const char* bytes = reinterpret_cast<const char*>(&hello);
  for (std::size_t i = 0; i + 1 < sizeof hello; ++i) {
    stranger.say(bytes + i, 1);
    expect_nobody_accepted();
  }
  stranger.say(bytes + sizeof hello - 1, 1);
  void* receiver = nullptr;
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(plugin_.accept(listener_, &receiver), kSuccess);
    return receiver != nullptr;
  }));
  plugin_.close_receive(receiver);
}

TEST_P(NcclNetHostile, CrowdThatSaysNothingTakesNoMoreThanItsPlaces) {
  const int before = open_descriptors();
  std::vector<Stranger> crowd;
  for (int i = 0; i < 60; ++i) {
    crowd.emplace_back(handle_);
    expect_nobody_accepted();
  }
  EXPECT_TRUE(eventually([&] {
    expect_nobody_accepted();
    return rejected() >= 60 - 16;
  }));
  EXPECT_EQ(rejected(), 60u - 16);
  EXPECT_EQ(open_descriptors(), before + 60 + 16);
  expect_welcome();
}

TEST_P(NcclNetHostile, BytesThatAreNoMessageEndThatConnectionAlone) {
  Stranger stranger(handle_);
  void* receiver = accept_stranger(stranger);
  const std::vector<std::byte> garbage = pattern(4096, 9);
  stranger.say(garbage.data(), garbage.size());
  std::vector<std::byte> room(1000);
  void* request = nullptr;
  ASSERT_EQ(plugin_.irecv(receiver, room.data(), room.size(), &request), kSuccess);
  EXPECT_EQ(plugin_.wait(request).code, kRemoteError);
  EXPECT_EQ(room, std::vector<std::byte>(1000));
  EXPECT_THAT(plugin_.last_warning(), HasSubstr("rank 1 <- 5 (connection 0), message 0"));
  expect_welcome();
  plugin_.close_receive(receiver);
}

TEST_P(NcclNetHostile, HeaderWithoutItsMarkEndsThatConnection) {
  Stranger stranger(handle_);
  void* receiver = accept_stranger(stranger);
  FrameHeader header;
  header.magic ^= 1;
  header.size = 8;
  stranger.say(header);
  stranger.say(header.size);
  std::vector<std::byte> room(1000);
  void* request = nullptr;
  ASSERT_EQ(plugin_.irecv(receiver, room.data(), room.size(), &request), kSuccess);
  EXPECT_EQ(plugin_.wait(request).code, kRemoteError);
  plugin_.close_receive(receiver);
}

TEST_P(NcclNetHostile, MessageOfAnotherNumberEndsThatConnection) {
  Stranger stranger(handle_);
  void* receiver = accept_stranger(stranger);
  FrameHeader header;
  header.number = 1;
  header.size = 8;
  stranger.say(header);
  stranger.say(header.size);
  std::vector<std::byte> room(1000);
  void* request = nullptr;
  ASSERT_EQ(plugin_.irecv(receiver, room.data(), room.size(), &request), kSuccess);
  EXPECT_EQ(plugin_.wait(request).code, kRemoteError);
  EXPECT_THAT(plugin_.last_warning(), HasSubstr("or another one"));
  plugin_.close_receive(receiver);
}

TEST_P(NcclNetHostile, SizesBeyondAllReasonTakeNoMemory) {
  rusage before{};
  rusage after{};
  ::getrusage(RUSAGE_SELF, &before);
  for (const std::uint64_t size : {std::uint64_t{1001}, std::uint64_t{1} << 40, ~std::uint64_t{0},
                                   ~std::uint64_t{0} - 15, std::uint64_t{1} << 63}) {
    Stranger stranger(handle_);
    void* receiver = accept_stranger(stranger);
    FrameHeader header;
    header.size = size;
    stranger.say(header);
    std::vector<std::byte> room(1000);
    void* request = nullptr;
    ASSERT_EQ(plugin_.irecv(receiver, room.data(), room.size(), &request), kSuccess);
    EXPECT_EQ(plugin_.wait(request).code, kInvalidUsage) << size;
    plugin_.close_receive(receiver);
  }
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 100'000) << "kilobytes";
  expect_welcome();
}

TEST_P(NcclNetHostile, PeerThatEndsInTheMiddleOfAMessageIsAnError) {
  Stranger stranger(handle_);
  void* receiver = accept_stranger(stranger);
  FrameHeader header;
  header.size = 1000;
  stranger.say(header);
  stranger.say(header);  // 16 of 1000 bytes
  std::vector<std::byte> room(1000);
  void* request = nullptr;
  ASSERT_EQ(plugin_.irecv(receiver, room.data(), room.size(), &request), kSuccess);
  EXPECT_FALSE(plugin_.wait(request, milliseconds(30)).is_done());
  stranger.close();
  EXPECT_EQ(plugin_.wait(request).code, kRemoteError);
  plugin_.close_receive(receiver);
}

TEST_P(NcclNetHostile, SendingToAPeerThatAnswersWithGarbageIsAnError) {
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(server, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(server, 1), 0);
  ASSERT_EQ(::getsockname(server, reinterpret_cast<sockaddr*>(&address), &size), 0);
  Handle handle;
  handle.address_size = size;
  std::memcpy(handle.address, &address, size);
  char bytes[kHandleBytes] = {};
  std::memcpy(bytes, &handle, sizeof handle);
  void* sender = nullptr;
  ASSERT_EQ(plugin_.connect(bytes, &sender), kSuccess);
  const int peer = ::accept(server, nullptr, nullptr);
  ASSERT_EQ(::send(peer, "220 mail.example.org ESMTP", 26, MSG_NOSIGNAL), 26);
  EXPECT_TRUE(eventually([&] { return plugin_.connect(bytes, &sender) == kRemoteError; }));
  EXPECT_EQ(sender, nullptr);
  EXPECT_THAT(plugin_.last_warning(), HasSubstr("not the Lockstep plug-in"));
  ::close(peer);
  ::close(server);
}

TEST_P(NcclNetHostile, HandlesThatNoListenerMadeAreErrors) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::vector<std::byte> bytes = pattern(kHandleBytes, seed);
    Handle handle;
    std::memcpy(&handle, seed % 2 == 0 ? static_cast<void*>(bytes.data()) : handle_, sizeof handle);
    if (seed % 2 == 1) handle.address_size = seed;
    if (seed % 4 == 3) handle.connector = seed;
    if (seed == 5) handle = Handle{};
    if (seed == 7) {
      std::memcpy(&handle, handle_, sizeof handle);
      handle.magic ^= 1;
    }
    std::memcpy(bytes.data(), &handle, sizeof handle);
    void* sender = nullptr;
    EXPECT_EQ(plugin_.connect(bytes.data(), &sender), kInternalError) << seed;
    EXPECT_EQ(sender, nullptr);
  }
}

}  // namespace
}  // namespace lockstep::faults::net::testing
