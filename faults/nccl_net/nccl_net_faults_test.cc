// Each fault, beside the same messages without it: it happens to the messages of the plan, what
// else travels is as it was, and the plan knows what happened.
#include <algorithm>
#include <cstddef>
#include <optional>

#include "faults/nccl_net/test_net_ends.h"

namespace lockstep::faults::net::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NcclNetFault : public NcclNetTest {
 protected:
  void TearDown() override { ::unsetenv(LOCKSTEP_NET_PLAN); }

  // The connection from rank 0 to rank 1 is made under this plan.
  Pair link_with(const std::vector<NetFault>& faults) {
    Result<NetPlan> plan = NetPlan::create(plan_name(), faults);
    EXPECT_TRUE(plan.has_value()) << plan.error().to_string();
    plan_.emplace(std::move(*plan));
    ::setenv(LOCKSTEP_NET_PLAN, plan_->name().c_str(), 1);
    return plugin_.link(0, 1);
  }
  std::uint64_t fired(std::size_t fault = 0) const { return plan_->fired(fault); }

  static NetFault at_sender(NetKind kind, std::int64_t message, std::int64_t amount = 0) {
    return NetFault{kind, 0, 1, End::kSender, 0, message, 1, amount};
  }
  static NetFault at_receiver(NetKind kind, std::int64_t message, std::int64_t amount = 0) {
    return NetFault{kind, 1, 0, End::kReceiver, 0, message, 1, amount};
  }

  // Posts receives and sends of these messages at once, which may differ in size.
  struct Flight {
    std::vector<std::vector<std::byte>> data;
    std::vector<std::vector<std::byte>> rooms;
    std::vector<void*> sends;
    std::vector<void*> receives;
  };
  Flight post(const Pair& pair, std::vector<std::vector<std::byte>> data) {
    Flight flight;
    flight.data = std::move(data);
    const std::size_t count = flight.data.size();
    flight.rooms.resize(count);
    flight.sends.resize(count);
    flight.receives.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      flight.rooms[i].resize(flight.data[i].size());
      EXPECT_EQ(plugin_.irecv(pair.receiver, flight.rooms[i].data(), flight.rooms[i].size(),
                              &flight.receives[i]),
                kSuccess);
      EXPECT_EQ(plugin_.isend(pair.sender, flight.data[i].data(), flight.data[i].size(),
                              &flight.sends[i]),
                kSuccess);
    }
    return flight;
  }
  void expect_all_done(Flight& flight) {
    for (std::size_t i = 0; i < flight.data.size(); ++i) {
      EXPECT_TRUE(plugin_.wait(flight.sends[i]).is_done()) << i;
      EXPECT_TRUE(plugin_.wait(flight.receives[i]).is_done()) << i;
    }
  }

  // The second of three messages takes 300 ms or more, and it alone is held back.
  void expect_delay(const Pair& pair) {
    plugin_.expect_carried(pair, pattern(100, 1));
    EXPECT_EQ(fired(), 0u);
    const auto start = steady_clock::now();
    plugin_.expect_carried(pair, pattern(100, 2));
    EXPECT_GE(steady_clock::now() - start, milliseconds(300));
    EXPECT_EQ(fired(), 1u);
    plugin_.expect_carried(pair, pattern(100, 3));
    EXPECT_EQ(fired(), 1u);
  }

  std::optional<NetPlan> plan_;
};
INSTANTIATE_TEST_SUITE_P(Table, NcclNetFault, ::testing::Values(6, 11), table_name);

std::vector<std::vector<std::byte>> three_messages() {
  return {pattern(100, 1), pattern(100, 2), pattern(100, 3)};
}

// The number of bits in which they differ.
int distance(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  int bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    bits += __builtin_popcount(static_cast<unsigned>(a[i] ^ b[i]));
  return bits;
}

TEST_P(NcclNetFault, PlanWithoutFaultsChangesNothing) {
  const Pair pair = link_with({});
  for (unsigned i = 0; i < 10; ++i) plugin_.expect_carried(pair, pattern(std::size_t{1000} * i, i));
  EXPECT_GE(plan_->attached(), 2u);
  EXPECT_THAT(plan_->unfired(), IsEmpty());
  plugin_.close(pair);
}

TEST_P(NcclNetFault, FaultsOfOtherRanksPeersEndsAndConnectionsDoNotFire) {
  NetFault other_rank = at_sender(NetKind::kFlip, 0);
  other_rank.rank = 2;
  NetFault other_peer = at_sender(NetKind::kFlip, 0);
  other_peer.peer = 2;
  NetFault other_end = at_sender(NetKind::kFlip, 0);
  other_end.end = End::kReceiver;  // of rank 0, which receives nothing
  NetFault other_connection = at_sender(NetKind::kFlip, 0);
  other_connection.connection = 1;
  const NetFault later = at_sender(NetKind::kFlip, 3);
  const Pair pair = link_with({other_rank, other_peer, other_end, other_connection, later});
  for (unsigned i = 0; i < 3; ++i) plugin_.expect_carried(pair, pattern(100, i));
  EXPECT_THAT(
      plan_->unfired(),
      ElementsAre(HasSubstr("fault 0 (flip, rank 2 -> 1, connection 0, message 0) never fired: "
                            "no connection rank 2 -> 1"),
                  HasSubstr("fault 1 (flip, rank 0 -> 2, connection 0, message 0) never fired: "
                            "no connection rank 0 -> 2"),
                  HasSubstr("no connection rank 0 <- 1"),
                  HasSubstr("no connection rank 0 -> 1 with that number"),
                  HasSubstr("the connection carried 3 messages")));
  plugin_.close(pair);
}

TEST_P(NcclNetFault, FaultOfTheSecondConnectionLeavesTheFirstAndTheThirdAlone) {
  NetFault fault{NetKind::kFlip, 0, 0, End::kSender, 1, 0, 1, 5};
  Result<NetPlan> plan = NetPlan::create(plan_name(), {fault});
  ASSERT_TRUE(plan.has_value());
  plan_.emplace(std::move(*plan));
  ::setenv(LOCKSTEP_NET_PLAN, plan_->name().c_str(), 1);
  ASSERT_EQ(plugin_.become(0), kSuccess);
  const std::vector<std::byte> data = pattern(10, 1);
  std::vector<int> changed;
  for (int i = 0; i < 3; ++i) {
    Pair pair;
    char handle[kHandleBytes];
    ASSERT_EQ(plugin_.listen(handle, &pair.listener), kSuccess);
    ASSERT_TRUE(eventually([&] {
      if (pair.sender == nullptr) plugin_.connect(handle, &pair.sender);
      if (pair.receiver == nullptr) plugin_.accept(pair.listener, &pair.receiver);
      return pair.sender != nullptr && pair.receiver != nullptr;
    }));
    changed.push_back(distance(plugin_.carry(pair, data, 10).data, data));
    plugin_.close(pair);
  }
  EXPECT_THAT(changed, ElementsAre(0, 1, 0));
  EXPECT_EQ(fired(), 1u);
}

TEST_P(NcclNetFault, FlipAtTheSenderChangesThatBitOfThatMessageAndNotTheCallersMemory) {
  const Pair pair = link_with({at_sender(NetKind::kFlip, 1, 8 * 40 + 3)});
  Flight flight = post(pair, three_messages());
  expect_all_done(flight);
  EXPECT_EQ(flight.data[1], pattern(100, 2));
  EXPECT_EQ(flight.rooms[0], flight.data[0]);
  EXPECT_EQ(flight.rooms[2], flight.data[2]);
  EXPECT_EQ(distance(flight.rooms[1], flight.data[1]), 1);
  EXPECT_EQ(flight.rooms[1][40] ^ flight.data[1][40], std::byte{8});
  EXPECT_EQ(fired(), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, FlipAtTheReceiverCountsBitsModuloTheSize) {
  const Pair pair = link_with({at_receiver(NetKind::kFlip, 2, 800 + 9)});
  Flight flight = post(pair, three_messages());
  expect_all_done(flight);
  EXPECT_EQ(flight.rooms[0], flight.data[0]);
  EXPECT_EQ(flight.rooms[1], flight.data[1]);
  EXPECT_EQ(distance(flight.rooms[2], flight.data[2]), 1);
  EXPECT_EQ(flight.rooms[2][1] ^ flight.data[2][1], std::byte{2});
  EXPECT_EQ(fired(), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, FlipOfAnEmptyMessageDoesNotFireAndSaysWhy) {
  const Pair pair = link_with({at_sender(NetKind::kFlip, 0), at_receiver(NetKind::kFlip, 0)});
  plugin_.expect_carried(pair, {});
  EXPECT_EQ(fired(0), 0u);
  EXPECT_EQ(fired(1), 0u);
  EXPECT_THAT(plan_->unfired(),
              ElementsAre(HasSubstr("nothing to change"), HasSubstr("nothing to change")));
  plugin_.close(pair);
}

TEST_P(NcclNetFault, FaultOfManyMessagesFiresOnEachOfThem) {
  NetFault fault = at_sender(NetKind::kFlip, 1, 0);
  fault.messages = 3;
  const Pair pair = link_with({fault});
  std::vector<int> changed;
  for (unsigned i = 0; i < 6; ++i) {
    const std::vector<std::byte> data = pattern(10, i);
    changed.push_back(distance(plugin_.carry(pair, data, 10).data, data));
  }
  EXPECT_THAT(changed, ElementsAre(0, 1, 1, 1, 0, 0));
  EXPECT_EQ(fired(), 3u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, DelayAtTheSenderHoldsThatMessageBack) {
  const Pair pair = link_with({at_sender(NetKind::kDelay, 1, 300'000)});
  expect_delay(pair);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, DelayAtTheReceiverHoldsThatMessageBack) {
  const Pair pair = link_with({at_receiver(NetKind::kDelay, 1, 300'000)});
  expect_delay(pair);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, DelayedMessageHoldsBackThoseBehindIt) {
  const Pair pair = link_with({at_sender(NetKind::kDelay, 1, 600'000)});
  const auto start = steady_clock::now();
  Flight flight = post(pair, three_messages());
  EXPECT_TRUE(plugin_.wait(flight.receives[0]).is_done());
  EXPECT_FALSE(plugin_.test(flight.receives[2]).is_done());
  EXPECT_TRUE(plugin_.wait(flight.sends[2]).is_done());
  EXPECT_GE(steady_clock::now() - start, milliseconds(600));
  EXPECT_TRUE(plugin_.wait(flight.receives[2]).is_done());
  EXPECT_EQ(flight.rooms[2], flight.data[2]);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, BackPressureGivesNoRequestThatManyTimes) {
  const Pair pair = link_with(
      {at_sender(NetKind::kBackPressure, 1, 3), at_receiver(NetKind::kBackPressure, 0, 2)});
  const std::vector<std::byte> data = pattern(10, 1);
  std::vector<std::byte> room(10);
  void* request = nullptr;
  int refusals = 0;
  while (request == nullptr && refusals < 10) {
    ASSERT_EQ(plugin_.irecv(pair.receiver, room.data(), 10, &request), kSuccess);
    if (request == nullptr) ++refusals;
  }
  EXPECT_EQ(refusals, 2);
  void* first = nullptr;
  ASSERT_EQ(plugin_.isend(pair.sender, data.data(), 10, &first), kSuccess);
  EXPECT_NE(first, nullptr);
  EXPECT_TRUE(plugin_.wait(first).is_done());
  EXPECT_TRUE(plugin_.wait(request).is_done());
  EXPECT_EQ(room, data);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(plugin_.isend(pair.sender, data.data(), 10, &request), kSuccess);
    ASSERT_EQ(request, nullptr);
  }
  plugin_.expect_carried(pair, data);
  EXPECT_EQ(fired(0), 1u);
  EXPECT_EQ(fired(1), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, StallAtTheSenderEndsAllProgressBehindItButNotOfOtherConnections) {
  const Pair pair = link_with({at_sender(NetKind::kStall, 1)});
  const Pair other = plugin_.link(2, 3);
  Flight flight = post(pair, three_messages());
  EXPECT_TRUE(plugin_.wait(flight.sends[0]).is_done());
  EXPECT_TRUE(plugin_.wait(flight.receives[0]).is_done());
  for (const std::size_t i : {1u, 2u}) {
    for (void* request : {flight.sends[i], flight.receives[i]}) {
      const Told told = plugin_.wait(request, milliseconds(100));
      EXPECT_EQ(told.code, kSuccess);
      EXPECT_FALSE(told.is_done()) << i;
    }
  }
  EXPECT_EQ(fired(), 1u);
  plugin_.expect_carried(other, pattern(100, 9));
  plugin_.close(other);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, StallAtTheReceiverFiresWhenTheMessageIsThere) {
  const Pair pair = link_with({at_receiver(NetKind::kStall, 0)});
  std::vector<std::byte> room(10);
  void* in = nullptr;
  ASSERT_EQ(plugin_.irecv(pair.receiver, room.data(), 10, &in), kSuccess);
  EXPECT_FALSE(plugin_.wait(in, milliseconds(30)).is_done());
  EXPECT_EQ(fired(), 0u);
  EXPECT_THAT(plan_->unfired(), ElementsAre(HasSubstr("posted, but nothing came of it")));
  const std::vector<std::byte> data = pattern(10, 1);
  void* out = nullptr;
  ASSERT_EQ(plugin_.isend(pair.sender, data.data(), 10, &out), kSuccess);
  EXPECT_TRUE(plugin_.wait(out).is_done());
  EXPECT_FALSE(plugin_.wait(in, milliseconds(100)).is_done());
  EXPECT_EQ(fired(), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, ErrorComesFromTestWithItsCodeAndStays) {
  const Pair pair = link_with({at_sender(NetKind::kError, 1, 4)});
  Flight flight = post(pair, three_messages());
  EXPECT_TRUE(plugin_.wait(flight.sends[0]).is_done());
  EXPECT_TRUE(plugin_.wait(flight.receives[0]).is_done());
  EXPECT_EQ(flight.rooms[0], flight.data[0]);
  EXPECT_EQ(plugin_.wait(flight.sends[1]).code, 4);
  EXPECT_EQ(plugin_.wait(flight.sends[2]).code, 4);
  void* request = &plan_;
  EXPECT_EQ(plugin_.isend(pair.sender, flight.data[0].data(), 1, &request), 4);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(fired(), 1u);
  // The peer is told nothing: as with an error of a real plug-in, that is for NCCL to do.
  EXPECT_EQ(plugin_.wait(flight.receives[1], milliseconds(50)).code, kSuccess);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, ErrorAtTheReceiverComesWithTheMessage) {
  const Pair pair = link_with({at_receiver(NetKind::kError, 2, kRemoteError)});
  Flight flight = post(pair, three_messages());
  EXPECT_TRUE(plugin_.wait(flight.receives[1]).is_done());
  EXPECT_EQ(plugin_.wait(flight.receives[2]).code, kRemoteError);
  EXPECT_EQ(flight.rooms[1], flight.data[1]);
  EXPECT_EQ(fired(), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, RefusalComesFromIsendAndFromIrecv) {
  const Pair pair =
      link_with({at_sender(NetKind::kRefuse, 1, 2), at_receiver(NetKind::kRefuse, 2, 3)});
  const std::vector<std::byte> data = pattern(10, 1);
  plugin_.expect_carried(pair, data);
  std::vector<std::byte> room(10);
  void* request = nullptr;
  EXPECT_EQ(plugin_.isend(pair.sender, data.data(), 10, &request), 2);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(plugin_.irecv(pair.receiver, room.data(), 10, &request), kSuccess);
  EXPECT_NE(request, nullptr);
  EXPECT_EQ(plugin_.irecv(pair.receiver, room.data(), 10, &request), 3);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(fired(0), 1u);
  EXPECT_EQ(fired(1), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, CloseInTheMiddleOfAMessageIsAnErrorOnBothEnds) {
  const Pair pair = link_with({at_sender(NetKind::kClose, 1, 60)});
  Flight flight = post(pair, three_messages());
  EXPECT_TRUE(plugin_.wait(flight.receives[0]).is_done());
  EXPECT_TRUE(plugin_.wait(flight.sends[0]).is_done());
  EXPECT_EQ(plugin_.wait(flight.sends[1]).code, kRemoteError);
  EXPECT_EQ(plugin_.wait(flight.receives[1]).code, kRemoteError);
  EXPECT_EQ(plugin_.wait(flight.receives[2]).code, kRemoteError);
  EXPECT_EQ(flight.rooms[0], flight.data[0]);
  // The 60 bytes came, and no more.
  for (std::size_t i = 0; i < 100; ++i)
    EXPECT_EQ(flight.rooms[1][i], i < 60 ? flight.data[1][i] : std::byte{0}) << i;
  EXPECT_EQ(fired(), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, CloseAtTheReceiverIsAnErrorOnBothEnds) {
  const Pair pair = link_with({at_receiver(NetKind::kClose, 0)});
  const std::vector<std::byte> data = pattern(100, 1);
  const Plugin::Carried carried = plugin_.carry(pair, data, 100);
  EXPECT_EQ(carried.received.code, kRemoteError);
  EXPECT_TRUE(eventually([&] {
    void* out = nullptr;
    if (plugin_.isend(pair.sender, data.data(), 100, &out) == kRemoteError) return true;
    return out != nullptr && plugin_.test(out).code == kRemoteError;
  }));
  EXPECT_EQ(fired(), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, SwapExchangesThePayloadsOfTwoMessages) {
  const Pair pair = link_with({at_sender(NetKind::kSwap, 0)});
  Flight flight = post(pair, three_messages());
  expect_all_done(flight);
  EXPECT_EQ(flight.rooms[0], flight.data[1]);
  EXPECT_EQ(flight.rooms[1], flight.data[0]);
  EXPECT_EQ(flight.rooms[2], flight.data[2]);
  EXPECT_EQ(flight.data[0], pattern(100, 1)) << "the caller's memory";
  EXPECT_EQ(fired(), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, SwapOfDifferentSizesReachesAsFarAsTheShorterOne) {
  const Pair pair = link_with({at_sender(NetKind::kSwap, 0)});
  Flight flight = post(pair, {pattern(100, 1), pattern(40, 2)});
  expect_all_done(flight);
  std::vector<std::byte> first = flight.data[0];
  std::copy(flight.data[1].begin(), flight.data[1].end(), first.begin());
  EXPECT_EQ(flight.rooms[0], first);
  EXPECT_TRUE(std::equal(flight.rooms[1].begin(), flight.rooms[1].end(), flight.data[0].begin()));
  EXPECT_EQ(fired(), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, SwapWithoutAPartnerGivesUpAndDoesNotFire) {
  const Pair pair = link_with({at_sender(NetKind::kSwap, 0, 50'000)});
  const auto start = steady_clock::now();
  plugin_.expect_carried(pair, pattern(100, 1));
  EXPECT_GE(steady_clock::now() - start, milliseconds(50));
  EXPECT_EQ(fired(), 0u);
  EXPECT_THAT(plan_->unfired(), ElementsAre(HasSubstr("nothing to change")));
  plugin_.expect_carried(pair, pattern(100, 2));
  plugin_.close(pair);
}

TEST_P(NcclNetFault, ShortMessageLeavesTheEndOfTheBufferAndTellsItsSize) {
  const Pair pair = link_with({at_sender(NetKind::kShort, 1, 30)});
  plugin_.expect_carried(pair, pattern(100, 1));
  const std::vector<std::byte> data = pattern(100, 2);
  const Plugin::Carried carried = plugin_.carry(pair, data, 100);
  EXPECT_EQ(carried.sent.size, 100) << "the sender believes that all went out";
  EXPECT_EQ(carried.received.size, 70);
  for (std::size_t i = 0; i < 100; ++i)
    EXPECT_EQ(carried.data[i], i < 70 ? data[i] : std::byte{0}) << i;
  plugin_.expect_carried(pair, pattern(100, 3));
  EXPECT_EQ(fired(), 1u);
  plugin_.close(pair);
}

TEST_P(NcclNetFault, ChangeOfAMessageThatNeverWentOutHasNotFired) {
  const Pair pair = link_with({at_sender(NetKind::kStall, 0), at_sender(NetKind::kFlip, 1),
                               at_sender(NetKind::kShort, 1, 1), at_sender(NetKind::kSwap, 1)});
  Flight flight = post(pair, three_messages());
  EXPECT_FALSE(plugin_.wait(flight.sends[1], milliseconds(20)).is_done());
  EXPECT_EQ(fired(0), 1u);
  for (const std::size_t fault : {1u, 2u, 3u}) EXPECT_EQ(fired(fault), 0u) << fault;
  EXPECT_EQ(plan_->unfired().size(), 3u);
  plugin_.close(pair);
}

// --- Faults that wait ----------------------------------------------------------------------------

TEST_P(NcclNetFault, OneThatWaitsCountsMessagesFromWhereItWasArmedAndEndsWhereItWasDisarmed) {
  NetFault flip = at_sender(NetKind::kFlip, 1);
  flip.waits = true;
  NetFault late = flip;
  late.message = 100;
  const Pair pair = link_with({flip, late});
  for (unsigned i = 0; i < 3; ++i) plugin_.expect_carried(pair, pattern(10, i));
  plan_->arm(0);
  plan_->arm(1);
  plugin_.expect_carried(pair, pattern(10, 3));
  EXPECT_EQ(fired(), 0u);
  Flight flight = post(pair, {pattern(10, 4)});
  expect_all_done(flight);
  EXPECT_EQ(flight.rooms[0][0] ^ flight.data[0][0], std::byte{1});
  EXPECT_EQ(fired(), 1u);
  plan_->disarm(1);
  for (unsigned i = 0; i < 100; ++i) plugin_.expect_carried(pair, pattern(10, i));
  EXPECT_THAT(plan_->unfired(),
              ElementsAre(HasSubstr("the connection carried 2 messages while it was armed")));
  plugin_.close(pair);
}

TEST_P(NcclNetFault, OneThatWaitsAndHasFiredLeavesTheNextConnectionAlone) {
  NetFault flip = at_sender(NetKind::kFlip, 0);
  flip.waits = true;
  flip.connection = LOCKSTEP_NET_ANY;
  const Pair first = link_with({flip});
  plan_->arm(0);
  Flight flight = post(first, {pattern(10, 1)});
  expect_all_done(flight);
  EXPECT_EQ(fired(), 1u);
  const Pair second = plugin_.link(0, 1);
  plugin_.expect_carried(second, pattern(10, 2));
  EXPECT_EQ(fired(), 1u);
  plugin_.close(first);
  plugin_.close(second);
}

// --- Plans that cannot be used -----------------------------------------------------------------

// Version 11 fails init(). Version 6 must not: it goes on without the plan, and says so.
class NcclNetBadPlan : public NcclNetTest {
 protected:
  void TearDown() override {
    ::unsetenv(LOCKSTEP_NET_PLAN);
    ::unsetenv(LOCKSTEP_NET_RANK);
  }
  void expect_refused(const std::string& why) {
    const int code = plugin_.init();
    EXPECT_THAT(plugin_.last_warning(), HasSubstr(why));
    EXPECT_THAT(Logged::all(), HasSubstr("WARN NET/Lockstep : "));
    if (GetParam() == 11) {
      EXPECT_EQ(code, kInvalidUsage);
      EXPECT_EQ(plugin_.context(), nullptr);
      return;
    }
    EXPECT_EQ(code, kSuccess);
    EXPECT_THAT(plugin_.last_warning(), HasSubstr("THE FAULT PLAN IS IGNORED"));
    const Pair pair = plugin_.link(0, 1);
    plugin_.expect_carried(pair, pattern(10, 1));
    plugin_.close(pair);
  }
};
INSTANTIATE_TEST_SUITE_P(Table, NcclNetBadPlan, ::testing::Values(6, 11), table_name);

TEST_P(NcclNetBadPlan, MissingPlanIsSaid) {
  ::setenv(LOCKSTEP_NET_RANK, "0", 1);
  ::setenv(LOCKSTEP_NET_PLAN, "/lockstep-nobody-made-this", 1);
  expect_refused("cannot open '/lockstep-nobody-made-this': No such file");
}

TEST_P(NcclNetBadPlan, NameThatIsNoneIsSaid) {
  ::setenv(LOCKSTEP_NET_RANK, "0", 1);
  ::setenv(LOCKSTEP_NET_PLAN, "plan", 1);
  expect_refused("'plan' is no name");
}

TEST_P(NcclNetBadPlan, PlanWithoutARankIsSaid) {
  const Result<NetPlan> plan = NetPlan::create(plan_name(), {});
  ASSERT_TRUE(plan.has_value());
  ::unsetenv(LOCKSTEP_NET_RANK);
  ::setenv(LOCKSTEP_NET_PLAN, plan->name().c_str(), 1);
  const int code = plugin_.init();
  EXPECT_EQ(code, GetParam() == 6 ? kSuccess : kInvalidUsage);
  EXPECT_THAT(plugin_.last_warning(), HasSubstr("set LOCKSTEP_RANK"));
  EXPECT_THAT(plan->attached(), 0u);
}

}  // namespace
}  // namespace lockstep::faults::net::testing
