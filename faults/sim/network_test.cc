#include "faults/sim/network.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep::simulated {
namespace {

using faults::FaultPlan;
using faults::Injector;
using faults::Kind;
using simulation::End;
using simulation::kNever;
using simulation::Policy;
using simulation::Scheduler;
using namespace std::chrono_literals;

constexpr std::uint32_t kMembers[] = {0, 1, 2};

struct Fixture {
  Scheduler scheduler;
  Injector injector;
  SimNetwork network;

  void reset(const FaultPlan& plan, Latency latency = {}, std::uint64_t seed = 0) {
    scheduler.reset({Policy::kRandomWalk, seed, {}});
    injector.reset(plan, 3, 1);
    network.reset(scheduler, injector, latency, seed);
    for (const std::uint32_t rank : kMembers) injector.begin_step(rank, 0);
  }
  Mesh& mesh() { return network.mesh(0, kMembers); }
};

Trouble send_number(Mesh& mesh, int from, int to, std::uint32_t number) {
  return mesh.send(from, to, 7, number, std::as_bytes(std::span(&number, 1)));
}

// The numbers that come over the link, each with the time it came, until trouble.
struct Arrival {
  std::uint32_t number;
  Duration at;
};
std::vector<Arrival> receive_all(Scheduler& scheduler, Mesh& mesh, int to, int from, Duration until,
                                 Trouble& trouble) {
  std::vector<Arrival> out;
  for (;;) {
    const Mesh::Received received = mesh.receive(to, from, until);
    trouble = received.trouble;
    if (received.message == nullptr) return out;
    std::uint32_t number = 0;
    EXPECT_EQ(received.message->bytes, sizeof number);
    EXPECT_EQ(received.message->sequence, 7);
    std::memcpy(&number, received.message->data, sizeof number);
    EXPECT_EQ(received.message->part, number);
    mesh.release(received.message);
    out.push_back({number, scheduler.now()});
  }
}

// Sends 0..19 from rank 0 to rank 1, one a microsecond, then closes. Gives what arrived.
std::vector<Arrival> send_twenty(Fixture& fixture, Trouble& trouble, Duration until = kNever) {
  std::vector<Arrival> arrivals;
  Mesh& mesh = fixture.mesh();
  fixture.scheduler.spawn("sender", 0, [&] {
    for (std::uint32_t i = 0; i < 20; ++i) {
      send_number(mesh, 0, 1, i);
      fixture.scheduler.sleep_until(fixture.scheduler.now() + 1us);
    }
    mesh.close(0);
  });
  fixture.scheduler.spawn("receiver", 1, [&] {
    arrivals = receive_all(fixture.scheduler, mesh, 1, 0, until, trouble);
  });
  EXPECT_EQ(fixture.scheduler.run().end, End::kFinished);
  return arrivals;
}

TEST(Network, DeliversEverythingInOrderWhateverTheLatency) {
  Fixture fixture;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    fixture.reset({}, {500ns, 20us}, seed);
    Trouble trouble{};
    const std::vector<Arrival> arrivals = send_twenty(fixture, trouble);
    ASSERT_EQ(trouble, Trouble::kClosed);
    ASSERT_EQ(arrivals.size(), 20U);
    for (std::uint32_t i = 0; i < 20; ++i) {
      ASSERT_EQ(arrivals[i].number, i);
      ASSERT_GE(arrivals[i].at, i * 1us + 500ns);
    }
  }
}

TEST(Network, ADelayedMessageDelaysTheOnesBehindItAndKeepsTheOrder) {
  Fixture fixture;
  fixture.reset({{{Kind::kMessageDelay, 0, 0, 5, 100}}}, {10ns, 0ns});
  Trouble trouble{};
  const std::vector<Arrival> arrivals = send_twenty(fixture, trouble);
  ASSERT_EQ(arrivals.size(), 20U);
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_EQ(arrivals[i].number, i);
  EXPECT_LT(arrivals[4].at, 6us);
  EXPECT_GE(arrivals[5].at, 105us);
  EXPECT_GE(arrivals[6].at, arrivals[5].at);
}

TEST(Network, AfterAStallNothingArrivesAnyMore) {
  Fixture fixture;
  fixture.reset({{{Kind::kMessageStall, 0, 0, 5, 0}}});
  Trouble trouble{};
  const std::vector<Arrival> arrivals = send_twenty(fixture, trouble, 15us);
  EXPECT_EQ(arrivals.size(), 5U);
  EXPECT_EQ(trouble, Trouble::kTimeout);
  EXPECT_TRUE(fixture.injector.silenced(0));
}

TEST(Network, AResetGivesBothEndsAnError) {
  Fixture fixture;
  fixture.reset({{{Kind::kLinkReset, 0, 0, 3, 0}}});
  Mesh& mesh = fixture.mesh();
  Trouble at_receiver{};
  fixture.scheduler.spawn("sender", 0, [&] {
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(send_number(mesh, 0, 1, i), Trouble::kNone);
    EXPECT_EQ(send_number(mesh, 0, 1, 3), Trouble::kReset);
    EXPECT_EQ(mesh.receive(0, 1, kNever).trouble, Trouble::kReset);
    EXPECT_EQ(send_number(mesh, 0, 2, 0), Trouble::kNone);  // another link
  });
  fixture.scheduler.spawn("receiver", 1, [&] {
    receive_all(fixture.scheduler, mesh, 1, 0, kNever, at_receiver);
    EXPECT_EQ(send_number(mesh, 1, 0, 0), Trouble::kReset);
  });
  EXPECT_EQ(fixture.scheduler.run().end, End::kFinished);
  EXPECT_EQ(at_receiver, Trouble::kReset);
}

TEST(Network, AClosedLinkStillDeliversWhatWasSentBefore) {
  Fixture fixture;
  fixture.reset({}, {1us, 0ns});
  Mesh& mesh = fixture.mesh();
  fixture.scheduler.spawn("closer", 0, [&] {
    send_number(mesh, 0, 1, 0);
    send_number(mesh, 0, 1, 1);
    mesh.close(0);
    EXPECT_EQ(send_number(mesh, 0, 1, 2), Trouble::kClosed);
  });
  fixture.scheduler.spawn("receiver", 1, [&] {
    Trouble trouble{};
    EXPECT_EQ(receive_all(fixture.scheduler, mesh, 1, 0, kNever, trouble).size(), 2U);
    EXPECT_EQ(trouble, Trouble::kClosed);
    EXPECT_EQ(send_number(mesh, 1, 0, 0), Trouble::kClosed);
  });
  EXPECT_EQ(fixture.scheduler.run().end, End::kFinished);
}

TEST(Network, AnInterruptedSideNeitherSendsNorReceives) {
  Fixture fixture;
  fixture.reset({});
  Mesh& mesh = fixture.mesh();
  fixture.scheduler.spawn("waits", 1, [&] {
    EXPECT_EQ(mesh.receive(1, 0, kNever).trouble, Trouble::kInterrupted);
    EXPECT_EQ(send_number(mesh, 1, 0, 0), Trouble::kInterrupted);
    EXPECT_EQ(mesh.pause(1, "nothing", kNever), Trouble::kInterrupted);
  });
  fixture.scheduler.spawn("interrupts", 0, [&] {
    fixture.scheduler.sleep_until(1us);
    mesh.interrupt(1);
  });
  EXPECT_EQ(fixture.scheduler.run().end, End::kFinished);
}

TEST(Network, AnExitedRankIsGoneFromEveryMeshAlsoFromLaterOnes) {
  Fixture fixture;
  fixture.reset({{{Kind::kRankExit, 0, 0, 0, 0}}});
  Mesh& mesh = fixture.mesh();
  fixture.scheduler.spawn("exits", 0, [&] {
    EXPECT_TRUE(fixture.injector.on_operation(0).exit);
    fixture.network.exit_rank(0);
    EXPECT_EQ(send_number(mesh, 0, 1, 0), Trouble::kInterrupted);
    Mesh& later = fixture.network.mesh(1, kMembers);
    EXPECT_EQ(later.receive(0, 1, kNever).trouble, Trouble::kInterrupted);
    EXPECT_EQ(later.receive(1, 0, kNever).trouble, Trouble::kClosed);
  });
  fixture.scheduler.spawn("waits", 1,
                          [&] { EXPECT_EQ(mesh.receive(1, 0, kNever).trouble, Trouble::kClosed); });
  EXPECT_EQ(fixture.scheduler.run().end, End::kFinished);
}

TEST(Network, AMessageThatNeverComesIsADeadlockThatNamesTheLink) {
  Fixture fixture;
  fixture.reset({});
  Mesh& mesh = fixture.mesh();
  fixture.scheduler.spawn("receiver", 1, [&] { mesh.receive(1, 2, kNever); });
  const simulation::Outcome outcome = fixture.scheduler.run();
  ASSERT_EQ(outcome.end, End::kDeadlock);
  EXPECT_NE(outcome.wait_graph.find("\"receiver\" (group 1) waits for a message on link 2 -> 1"),
            std::string::npos)
      << outcome.wait_graph;
}

TEST(Network, LargeMessagesArriveWhole) {
  Fixture fixture;
  fixture.reset({});
  Mesh& mesh = fixture.mesh();
  std::vector<std::byte> sent(100'000);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7);
  fixture.scheduler.spawn("sender", 0, [&] { mesh.send(0, 1, 0, 0, sent); });
  fixture.scheduler.spawn("receiver", 1, [&] {
    const Mesh::Received received = mesh.receive(1, 0, kNever);
    ASSERT_NE(received.message, nullptr);
    ASSERT_EQ(received.message->bytes, sent.size());
    EXPECT_EQ(std::memcmp(received.message->data, sent.data(), sent.size()), 0);
    mesh.release(received.message);
  });
  EXPECT_EQ(fixture.scheduler.run().end, End::kFinished);
}

}  // namespace
}  // namespace lockstep::simulated
