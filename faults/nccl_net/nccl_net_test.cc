// What NCCL relies on: the tables, how connections come to be, and that messages arrive.
#include <algorithm>
#include <limits>

#include "faults/nccl_net/interface.h"
#include "faults/nccl_net/test_net_ends.h"

namespace lockstep::faults::net::testing {
namespace {

using ::testing::HasSubstr;

class NcclNet : public NcclNetTest {};
INSTANTIATE_TEST_SUITE_P(Table, NcclNet, ::testing::Values(6, 11), table_name);

// NCCL itself is not in these tests: without a GPU its initialization ends before it looks for
// plug-ins (seen with 2.28.9, whose log names none).
TEST(NcclNetLibrary, IsFoundByItsShortNameOnceItIsLoaded) {
  const Plugin plugin(11);
  EXPECT_NE(::dlopen("libnccl-net-lockstep.so", RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST(NcclNetLibrary, StaysLoadedWhenItIsClosed) {
  void* library = ::dlopen(LOCKSTEP_NET_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  int closed = 0;  // with those that other tests of this process left open
  while (::dlclose(library) == 0 && closed < 10'000) ++closed;
  EXPECT_GE(closed, 1);
  EXPECT_NE(::dlopen(LOCKSTEP_NET_PLUGIN, RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST(NcclNetLibrary, ShowsItsTablesAndNothingOfItsInside) {
  const Plugin plugin(11);
  EXPECT_STREQ(plugin.v6().name, "Lockstep");
  EXPECT_STREQ(plugin.v11().name, "Lockstep");
  EXPECT_EQ(plugin.symbol<std::uint32_t()>("lockstep_net_version")(), 2u);
  EXPECT_EQ(plugin.symbol<void()>("ncclCollNetPlugin_v6"), nullptr);
  EXPECT_EQ(plugin.symbol<void()>("_ZN8lockstep6faults3net6countsEv"), nullptr);
}

TEST(NcclNetLibrary, PropertiesOfBothTablesAreThoseOfASimpleHostTransport) {
  Plugin plugin(11);
  ASSERT_EQ(plugin.become(0), kSuccess);
  int count = 0;
  ASSERT_EQ(plugin.v11().devices(&count), kSuccess);
  EXPECT_EQ(count, 1);
  PropertiesV6 v6{};
  ASSERT_EQ(plugin.v6().get_properties(0, &v6), kSuccess);
  EXPECT_STREQ(v6.name, "lo");
  EXPECT_EQ(v6.pointer_support, kHostMemory);
  EXPECT_EQ(v6.max_receives, 1);
  PropertiesV11 v11{};
  ASSERT_EQ(plugin.v11().get_properties(0, &v11), kSuccess);
  EXPECT_STREQ(v11.name, "lo");
  EXPECT_EQ(v11.pointer_support, kHostMemory);
  EXPECT_EQ(v11.max_receives, 1);
  EXPECT_EQ(v11.virtual_device.count, 1);
  EXPECT_GE(v11.max_point_to_point_bytes, std::size_t{1} << 20);
  EXPECT_EQ(plugin.v11().get_properties(1, &v11), kInternalError);
}

TEST(NcclNetLibrary, WrongArgumentsAreErrors) {
  Plugin plugin(11);
  ASSERT_EQ(plugin.become(0), kSuccess);
  int done = 7;
  void* out = nullptr;
  char handle[kHandleBytes] = {};
  EXPECT_EQ(plugin.v11().test(nullptr, &done, nullptr), kInternalError);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(plugin.v11().listen(plugin.context(), 1, handle, &out), kInternalError);
  EXPECT_EQ(plugin.v11().accept(nullptr, &out, nullptr), kInternalError);
  EXPECT_EQ(plugin.connect(handle, &out), kInternalError);
  EXPECT_EQ(out, nullptr);
  EXPECT_EQ(plugin.v11().register_memory(nullptr, handle, 1, 2, &out), kInternalError);
  EXPECT_EQ(plugin.v11().register_memory(nullptr, handle, 1, kHostMemory, &out), kSuccess);
  const Pair pair = plugin.link(0, 1);
  EXPECT_EQ(plugin.v6().isend(pair.sender, handle, -1, 0, nullptr, &out), kInternalError);
  const std::size_t too_large = (std::size_t{1} << 30) + 1;
  EXPECT_EQ(plugin.isend(pair.sender, handle, too_large, &out), kInternalError);
  void* data[2] = {handle, handle};
  int sizes[2] = {1, 1};
  EXPECT_EQ(plugin.v6().irecv(pair.receiver, 2, data, sizes, sizes, nullptr, &out), kInternalError);
  EXPECT_EQ(plugin.v6().close_send(nullptr), kSuccess);
  plugin.close(pair);
}

TEST_P(NcclNet, ConnectAndAcceptGiveNothingUntilTheOtherSideIsThere) {
  char handle[kHandleBytes];
  void* listener = nullptr;
  void* receiver = nullptr;
  void* sender = nullptr;
  ASSERT_EQ(plugin_.become(1), kSuccess);
  ASSERT_EQ(plugin_.listen(handle, &listener), kSuccess);
  ASSERT_NE(listener, nullptr);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(plugin_.accept(listener, &receiver), kSuccess);
    ASSERT_EQ(receiver, nullptr);
  }
  ASSERT_EQ(plugin_.become(0), kSuccess);
  const auto start = steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(plugin_.connect(handle, &sender), kSuccess);
    ASSERT_EQ(sender, nullptr) << "nobody accepted yet";
  }
  EXPECT_LT(steady_clock::now() - start, seconds(5));
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(plugin_.accept(listener, &receiver), kSuccess);
    return receiver != nullptr;
  }));
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(plugin_.connect(handle, &sender), kSuccess);
    return sender != nullptr;
  }));
  const Pair pair{listener, sender, receiver};
  plugin_.expect_carried(pair, pattern(1000, 1));
  plugin_.close(pair);
}

TEST_P(NcclNet, OneListenerServesSeveralConnections) {
  char handle[kHandleBytes];
  void* listener = nullptr;
  ASSERT_EQ(plugin_.become(0), kSuccess);
  ASSERT_EQ(plugin_.listen(handle, &listener), kSuccess);
  std::vector<Pair> pairs(20);  // more than are heard at a time
  std::vector<std::vector<char>> handles(pairs.size(),
                                         std::vector<char>(handle, handle + kHandleBytes));
  std::vector<void*> receivers;
  EXPECT_TRUE(eventually([&] {
    std::size_t connected = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i].sender == nullptr) {
        EXPECT_EQ(plugin_.connect(handles[i].data(), &pairs[i].sender), kSuccess);
      }
      if (pairs[i].sender != nullptr) ++connected;
      void* receiver = nullptr;
      EXPECT_EQ(plugin_.accept(listener, &receiver), kSuccess);
      if (receiver != nullptr) receivers.push_back(receiver);
    }
    return connected == pairs.size() && receivers.size() == pairs.size();
  }));
  ASSERT_EQ(receivers.size(), pairs.size());
  // The order in which they were accepted is open: the first message tells who is who.
  std::vector<int> values(pairs.size());
  std::vector<void*> requests(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const int value = static_cast<int>(i);
    void* request = nullptr;
    ASSERT_EQ(plugin_.isend(pairs[i].sender, &value, sizeof value, &request), kSuccess);
    EXPECT_TRUE(plugin_.wait(request).is_done());
    ASSERT_EQ(plugin_.irecv(receivers[i], &values[i], sizeof value, &requests[i]), kSuccess);
  }
  for (void* request : requests) EXPECT_TRUE(plugin_.wait(request).is_done());
  std::sort(values.begin(), values.end());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<int>(i));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    plugin_.close_send(pairs[i].sender);
    plugin_.close_receive(receivers[i]);
  }
  plugin_.close_listen(listener);
}

TEST_P(NcclNet, MessagesOfAllSizesArrive) {
  const Pair pair = plugin_.link(0, 1);
  for (const std::size_t size : {0u, 1u, 15u, 16u, 17u, 4096u, 65'537u, 3'000'001u})
    plugin_.expect_carried(pair, pattern(size, static_cast<unsigned>(size)));
  plugin_.close(pair);
}

TEST_P(NcclNet, LargeMessageArrivesWithoutAnyCallTakingLong) {
  const Pair pair = plugin_.link(0, 1);
  plugin_.expect_carried(pair, pattern(std::size_t{64} << 20, 64));
  plugin_.close(pair);
}

TEST_P(NcclNet, ReceiveMayHaveMoreRoomThanTheMessageNeeds) {
  const Pair pair = plugin_.link(0, 1);
  const std::vector<std::byte> data = pattern(100, 3);
  Plugin::Carried carried = plugin_.carry(pair, data, 300);
  EXPECT_EQ(carried.sent.size, 100);
  EXPECT_EQ(carried.received.size, 100);
  for (std::size_t i = 100; i < 300; ++i) EXPECT_EQ(carried.data[i], std::byte{0});
  carried.data.resize(100);
  EXPECT_EQ(carried.data, data);
  plugin_.expect_carried(pair, pattern(200, 4));
  plugin_.close(pair);
}

TEST_P(NcclNet, ReceiveWithTooLittleRoomIsAnErrorAndWritesNothingBehindIt) {
  const Pair pair = plugin_.link(0, 1);
  const std::vector<std::byte> data = pattern(100, 3);
  std::vector<std::byte> room(100);
  void* in = nullptr;
  void* out = nullptr;
  ASSERT_EQ(plugin_.irecv(pair.receiver, room.data(), 99, &in), kSuccess);
  ASSERT_EQ(plugin_.isend(pair.sender, data.data(), 100, &out), kSuccess);
  EXPECT_EQ(plugin_.wait(in).code, kInvalidUsage);
  EXPECT_EQ(room, std::vector<std::byte>(100));
  EXPECT_THAT(plugin_.last_warning(), HasSubstr("100 bytes and does not fit into the 99"));
  // That end is over, and says so again.
  EXPECT_EQ(plugin_.irecv(pair.receiver, room.data(), 100, &in), kInvalidUsage);
  EXPECT_EQ(in, nullptr);
  plugin_.close(pair);
}

TEST_P(NcclNet, ThirtyTwoRequestsAreInFlightAndTheNextHasToWait) {
  const Pair pair = plugin_.link(0, 1);
  std::vector<int> out(33), in(33, -1);
  std::vector<void*> sends(33), receives(33);
  for (std::size_t i = 0; i < 33; ++i) {
    out[i] = static_cast<int>(i * i);
    ASSERT_EQ(plugin_.irecv(pair.receiver, &in[i], sizeof(int), &receives[i]), kSuccess);
    ASSERT_EQ(receives[i] != nullptr, i < 32) << i;
  }
  for (std::size_t i = 0; i < 33; ++i) {
    ASSERT_EQ(plugin_.isend(pair.sender, &out[i], sizeof(int), &sends[i]), kSuccess);
    ASSERT_EQ(sends[i] != nullptr, i < 32) << i;
  }
  // Completions may be asked for in any order; messages keep theirs.
  for (std::size_t i = 32; i-- > 0;) EXPECT_EQ(plugin_.wait(receives[i]).size, 4);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(plugin_.wait(sends[i]).size, 4);
  ASSERT_EQ(plugin_.isend(pair.sender, &out[32], sizeof(int), &sends[32]), kSuccess);
  ASSERT_EQ(plugin_.irecv(pair.receiver, &in[32], sizeof(int), &receives[32]), kSuccess);
  EXPECT_EQ(plugin_.wait(receives[32]).size, 4);
  EXPECT_EQ(plugin_.wait(sends[32]).size, 4);
  EXPECT_EQ(in, out);
  plugin_.close(pair);
}

TEST_P(NcclNet, NothingBlocksWhileThePeerDoesNothing) {
  const Pair pair = plugin_.link(0, 1);
  // More than the kernel keeps for a peer that does not read.
  const std::vector<std::byte> data = pattern(std::size_t{32} << 20, 1);
  std::vector<std::byte> room(data.size());
  void* out = nullptr;
  void* in = nullptr;
  const auto start = steady_clock::now();
  ASSERT_EQ(plugin_.irecv(pair.receiver, room.data(), room.size(), &in), kSuccess);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(plugin_.test(in).is_done());
  ASSERT_EQ(plugin_.isend(pair.sender, data.data(), data.size(), &out), kSuccess);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(plugin_.test(out).is_done());
  EXPECT_LT(steady_clock::now() - start, seconds(5));
  plugin_.close(pair);
}

TEST_P(NcclNet, ReceiverThatWaitsHearsOfAPeerThatCloses) {
  const Pair pair = plugin_.link(0, 1);
  plugin_.expect_carried(pair, pattern(10, 1));
  std::byte room{};
  void* in = nullptr;
  ASSERT_EQ(plugin_.irecv(pair.receiver, &room, 1, &in), kSuccess);
  EXPECT_EQ(plugin_.test(in).code, kSuccess);
  EXPECT_EQ(plugin_.close_send(pair.sender), kSuccess);
  EXPECT_EQ(plugin_.wait(in).code, kRemoteError);
  EXPECT_THAT(plugin_.last_warning(), HasSubstr("rank 1 <- 0 (connection 0), message 1"));
  plugin_.close_receive(pair.receiver);
  plugin_.close_listen(pair.listener);
}

TEST_P(NcclNet, SenderHearsOfAPeerThatCloses) {
  const Pair pair = plugin_.link(0, 1);
  EXPECT_EQ(plugin_.close_receive(pair.receiver), kSuccess);
  const std::vector<std::byte> data = pattern(1000, 1);
  EXPECT_TRUE(eventually([&] {
    void* out = nullptr;
    if (plugin_.isend(pair.sender, data.data(), data.size(), &out) == kRemoteError) return true;
    return out != nullptr && plugin_.test(out).code == kRemoteError;
  }));
  plugin_.close_send(pair.sender);
  plugin_.close_listen(pair.listener);
}

TEST_P(NcclNet, MessagesSentBeforeTheEndArriveAfterIt) {
  const Pair pair = plugin_.link(0, 1);
  const std::vector<std::byte> data = pattern(50'000, 1);
  void* out = nullptr;
  ASSERT_EQ(plugin_.isend(pair.sender, data.data(), data.size(), &out), kSuccess);
  ASSERT_TRUE(plugin_.wait(out).is_done());
  EXPECT_EQ(plugin_.close_send(pair.sender), kSuccess);
  std::vector<std::byte> room(data.size());
  void* in = nullptr;
  ASSERT_EQ(plugin_.irecv(pair.receiver, room.data(), room.size(), &in), kSuccess);
  EXPECT_TRUE(plugin_.wait(in).is_done());
  EXPECT_EQ(room, data);
  plugin_.close_receive(pair.receiver);
  plugin_.close_listen(pair.listener);
}

TEST_P(NcclNet, ConnectingToAListenerThatIsGoneIsAnError) {
  char handle[kHandleBytes];
  void* listener = nullptr;
  ASSERT_EQ(plugin_.become(1), kSuccess);
  ASSERT_EQ(plugin_.listen(handle, &listener), kSuccess);
  plugin_.close_listen(listener);
  void* sender = nullptr;
  int code = kSuccess;
  EXPECT_TRUE(eventually([&] { return (code = plugin_.connect(handle, &sender)) != kSuccess; }));
  EXPECT_TRUE(code == kRemoteError || code == kSystemError) << code;
  EXPECT_EQ(sender, nullptr);
}

TEST_P(NcclNet, ListenerThatGoesAwayFailsThoseWhoWaitForIt) {
  char handle[kHandleBytes];
  void* listener = nullptr;
  void* sender = nullptr;
  ASSERT_EQ(plugin_.become(1), kSuccess);
  ASSERT_EQ(plugin_.listen(handle, &listener), kSuccess);
  ASSERT_EQ(plugin_.become(0), kSuccess);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(plugin_.connect(handle, &sender), kSuccess);
  plugin_.close_listen(listener);
  EXPECT_TRUE(eventually([&] { return plugin_.connect(handle, &sender) == kRemoteError; }));
}

TEST_P(NcclNet, NoDescriptorAndNoObjectIsLeft) {
  const int before = open_descriptors();
  for (int round = 0; round < 5; ++round) {
    const Pair pair = plugin_.link(0, 1);
    const lockstep_net_counts sent = plugin_.counts();
    plugin_.expect_carried(pair, pattern(100, 1));
    EXPECT_EQ(plugin_.counts().sent_messages, sent.sent_messages + 1);
    EXPECT_EQ(plugin_.counts().sent_bytes, sent.sent_bytes + 100);
    EXPECT_EQ(plugin_.counts().senders, 1u);
    EXPECT_EQ(plugin_.counts().receivers, 1u);
    EXPECT_EQ(plugin_.counts().listeners, 1u);
    EXPECT_GT(open_descriptors(), before);
    plugin_.close(pair);
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(plugin_.counts().senders, 0u);
  EXPECT_EQ(plugin_.counts().receivers, 0u);
  EXPECT_EQ(plugin_.counts().listeners, 0u);
}

// As NCCL does: connections are made on one thread while another moves data, on each rank.
TEST_P(NcclNet, ConnectionsAreMadeWhileOthersMoveData) {
  Plugin other(GetParam());
  char handle[kHandleBytes];
  Pair pair;
  ASSERT_EQ(other.become(1), kSuccess);
  ASSERT_EQ(other.listen(handle, &pair.listener), kSuccess);
  ASSERT_EQ(plugin_.become(0), kSuccess);
  std::thread accepting([&] {
    eventually([&] {
      EXPECT_EQ(other.accept(pair.listener, &pair.receiver), kSuccess);
      return pair.receiver != nullptr;
    });
  });
  eventually([&] {
    EXPECT_EQ(plugin_.connect(handle, &pair.sender), kSuccess);
    return pair.sender != nullptr;
  });
  accepting.join();
  ASSERT_NE(pair.receiver, nullptr);

  constexpr int kCount = 300;
  std::vector<int> in(kCount, -1);
  std::thread receiving([&] {
    for (int& value : in) {
      void* request = nullptr;
      EXPECT_EQ(other.irecv(pair.receiver, &value, sizeof value, &request), kSuccess);
      EXPECT_EQ(other.wait(request).size, 4);
    }
  });
  std::thread sending([&] {
    for (int i = 0; i < kCount; ++i) {
      void* request = nullptr;
      EXPECT_EQ(plugin_.isend(pair.sender, &i, sizeof i, &request), kSuccess);
      EXPECT_EQ(plugin_.wait(request).size, 4);
    }
  });
  Plugin third(GetParam());
  for (int i = 0; i < 10; ++i) {
    const Pair more = third.link(2, 3);
    third.expect_carried(more, pattern(100, 1));
    third.close(more);
  }
  receiving.join();
  sending.join();
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(in[static_cast<std::size_t>(i)], i);
  plugin_.close(pair);
}

TEST(NcclNetLibrary, AttemptToConnectEndsWithItsContext) {
  const int before = open_descriptors();
  {
    Plugin plugin(11);
    char handle[kHandleBytes];
    void* listener = nullptr;
    void* sender = nullptr;
    ASSERT_EQ(plugin.become(1), kSuccess);
    ASSERT_EQ(plugin.listen(handle, &listener), kSuccess);
    ASSERT_EQ(plugin.become(0), kSuccess);
    ASSERT_EQ(plugin.connect(handle, &sender), kSuccess);
    plugin.close_listen(listener);
    EXPECT_EQ(open_descriptors(), before + 1);
    ASSERT_EQ(plugin.become(2), kSuccess);  // no longer the newest, which the process keeps
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(NcclNetLibrary, ConnectionOutlivesTheContextThatMadeIt) {
  Plugin plugin(11);
  ASSERT_EQ(plugin.become(0), kSuccess);
  Pair pair;
  {
    Plugin short_lived(11);
    pair = short_lived.link(3, 4);
  }
  plugin.expect_carried(pair, pattern(10, 1));
  plugin.close(pair);
}

TEST(NcclNetInterface, PatternsAreReadAsNcclReadsThem) {
  EXPECT_TRUE(nccl_pattern_matches("lo", "lo"));
  EXPECT_TRUE(nccl_pattern_matches("eth,lo", "eth0"));
  EXPECT_FALSE(nccl_pattern_matches("eth", "lo"));
  EXPECT_TRUE(nccl_pattern_matches("=eth0,lo", "lo"));
  EXPECT_FALSE(nccl_pattern_matches("=eth", "eth0"));
  EXPECT_FALSE(nccl_pattern_matches("^docker,lo", "docker0"));
  EXPECT_TRUE(nccl_pattern_matches("^docker,lo", "eth0"));
  EXPECT_TRUE(nccl_pattern_matches("^=lo", "lo2"));
}

class NcclNetEnvironment : public NcclNetTest {
 protected:
  void TearDown() override {
    ::unsetenv(LOCKSTEP_NET_IFNAME);
    ::unsetenv("NCCL_SOCKET_IFNAME");
    ::unsetenv(LOCKSTEP_NET_RANK);
  }
};
INSTANTIATE_TEST_SUITE_P(Table, NcclNetEnvironment, ::testing::Values(6, 11), table_name);

// Version 6 must not fail in init(): what is wrong comes out with the first connection.
TEST_P(NcclNetEnvironment, UnknownInterfaceIsAnErrorThatNamesIt) {
  ::setenv(LOCKSTEP_NET_IFNAME, "nosuch0", 1);
  char handle[kHandleBytes];
  void* listener = nullptr;
  const int code = plugin_.become(0);
  EXPECT_EQ(code, GetParam() == 6 ? kSuccess : kSystemError);
  if (GetParam() == 6) {
    EXPECT_EQ(plugin_.listen(handle, &listener), kSystemError);
  }
  EXPECT_EQ(listener, nullptr);
  EXPECT_THAT(plugin_.last_warning(), HasSubstr("'nosuch0'"));
  EXPECT_THAT(Logged::all(), HasSubstr("WARN NET/Lockstep : no network interface is up"));
}

TEST_P(NcclNetEnvironment, OwnVariableComesBeforeThatOfNccl) {
  ::setenv("NCCL_SOCKET_IFNAME", "nosuch", 1);
  EXPECT_EQ(plugin_.become(0), GetParam() == 6 ? kSuccess : kSystemError);
  EXPECT_THAT(plugin_.last_warning(), HasSubstr("NCCL_SOCKET_IFNAME"));
  ::setenv(LOCKSTEP_NET_IFNAME, "lo", 1);
  ASSERT_EQ(plugin_.become(0), kSuccess);
  PropertiesV6 properties{};
  ASSERT_EQ(plugin_.v6().get_properties(0, &properties), kSuccess);
  EXPECT_STREQ(properties.name, "lo");
}

TEST_P(NcclNetEnvironment, RankThatIsNoNumberIsAnError) {
  for (const std::string text : {"one", "1x", "-1", "99999999999999999999", "1000001"}) {
    ::setenv(LOCKSTEP_NET_RANK, text.c_str(), 1);
    EXPECT_EQ(plugin_.init(), GetParam() == 6 ? kSuccess : kInvalidUsage) << text;
    EXPECT_THAT(plugin_.last_warning(), HasSubstr("LOCKSTEP_RANK is '" + text + "'"));
  }
}

TEST(NcclNetLibrary, ContextThatCouldNotBeMadeCanBeFinalized) {
  Plugin plugin(11);
  ::setenv(LOCKSTEP_NET_RANK, "one", 1);
  void* context = &plugin;
  ConfigV11 config{-1};
  EXPECT_EQ(plugin.v11().init(&context, 1, &config, nullptr, nullptr), kInvalidUsage);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(plugin.v11().finalize(context), kSuccess);
}

}  // namespace
}  // namespace lockstep::faults::net::testing
