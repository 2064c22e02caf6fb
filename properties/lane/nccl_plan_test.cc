// Faults of a case, in the terms of NCCL's net plug-in.
#include "properties/lane/nccl_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "properties/generate/generate.h"
#include "properties/lane/nccl_lane.h"

namespace lockstep::properties {
namespace {

using faults::Fault;
using faults::Kind;
using faults::net::NetKind;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Case with(std::vector<Fault> faults, std::uint32_t world = 3) {
  Case c;
  c.program.world = world;
  c.program.steps.resize(4);
  c.faults.faults = std::move(faults);
  return c;
}

Fault fault_of(Kind kind) {
  Fault fault;
  fault.kind = kind;
  fault.rank = 1;
  fault.step = 2;
  fault.site = 5;
  return fault;
}

TEST(NcclPlan, FaultsOfMessagesConcernWhatTheRankSendsInThatStep) {
  Fault delay = fault_of(Kind::kMessageDelay);
  delay.duration_us = 300;
  const std::vector<PlannedNetFault> planned =
      net_faults_of(with({fault_of(Kind::kRankExit), delay, fault_of(Kind::kMessageStall),
                          fault_of(Kind::kLinkReset), fault_of(Kind::kOperationError)}));
  ASSERT_THAT(planned, SizeIs(4));
  EXPECT_EQ(planned[0].index, 1u);
  EXPECT_EQ(planned[0].step, 2u);
  EXPECT_EQ(planned[0].fault.amount, 300);
  const std::vector<NetKind> kinds{NetKind::kDelay, NetKind::kStall, NetKind::kClose,
                                   NetKind::kError};
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const faults::net::NetFault& net = planned[i].fault;
    EXPECT_EQ(net.kind, kinds[i]);
    EXPECT_EQ(net.rank, 1);
    EXPECT_EQ(net.peer, LOCKSTEP_NET_ANY);
    EXPECT_EQ(net.connection, LOCKSTEP_NET_ANY);
    EXPECT_EQ(net.end, faults::net::End::kSender);
    EXPECT_EQ(net.message, 5);
    EXPECT_TRUE(net.waits);
    EXPECT_TRUE(check(net).ok());
  }
}

TEST(NcclPlan, FlipIsForTheConnectionOfPayloads) {
  Fault flip = fault_of(Kind::kPayloadFlip);
  flip.at = 77;
  flip.peer = 2;  // the next one: the ring has the first connection
  EXPECT_EQ(net_faults_of(with({flip})).at(0).fault.connection, 1);
  EXPECT_EQ(net_faults_of(with({flip})).at(0).fault.peer, 2);
  EXPECT_EQ(net_faults_of(with({flip})).at(0).fault.amount, 77);
  flip.peer = 0;  // nothing else goes there
  EXPECT_EQ(net_faults_of(with({flip})).at(0).fault.connection, LOCKSTEP_NET_ANY);
  EXPECT_EQ(net_faults_of(with({flip}, 2)).at(0).fault.connection, 1);
}

TEST(NcclPlan, FlipIsLeftOutWhereItsConnectionIsNotKnown) {
  Fault flip = fault_of(Kind::kPayloadFlip);
  flip.peer = 2;
  Case c = with({flip}, 4);
  c.program.options.two_groups = true;  // 1 and 3, 0 and 2
  EXPECT_THAT(net_faults_of(c), IsEmpty());
  c.faults.faults[0].peer = 3;
  EXPECT_EQ(net_faults_of(c).at(0).fault.connection, 1);
  c.program.options.launch = reference::Launch::kAfterBackward;
  c.program.options.own_group = true;  // a second group
  EXPECT_THAT(net_faults_of(c), IsEmpty());
}

TEST(NcclPlan, KindsWithoutACounterpartAreLeftToTheRankOrOut) {
  for (const Kind kind :
       {Kind::kOperationDelay, Kind::kOperationStall, Kind::kRankExit, Kind::kRankPause,
        Kind::kNodeThrows, Kind::kSlowThread, Kind::kPayloadTruncate, Kind::kPayloadSwap,
        Kind::kPayloadStale, Kind::kPayloadShift})
    EXPECT_THAT(net_faults_of(with({fault_of(kind)})), IsEmpty()) << faults::name_of(kind);
}

// Whoever runs cases kills a process that hangs or is too late, and cleans up after it.
TEST(NcclPlan, OfAProcessThatWasKilledNothingIsLeft) {
  using faults::net::NetPlan;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Result<NetPlan> plan = NetPlan::create(net_plan_of(::getpid()), {});
    const char made = plan ? 1 : 0;
    if (::write(ends[1], &made, 1) == 1) ::pause();
    ::_exit(1);
  }
  char made = 0;
  EXPECT_EQ(::read(ends[0], &made, 1), 1);
  EXPECT_EQ(made, 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_TRUE(NetPlan::attach(net_plan_of(child)).has_value());
  remove_net_plan_of(child);
  EXPECT_FALSE(NetPlan::attach(net_plan_of(child)).has_value());
}

TEST(NcclPlan, GeneratedCasesAreSmallOnAGpuAndTheirFaultsCanBeCarriedOut) {
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kNccl;
  std::size_t net = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Case c = generate(7, i, options);
    EXPECT_EQ(c.program.options.transport, reference::Transport::kNccl);
    EXPECT_LE(c.program.world, 3u);
    EXPECT_LE(c.program.steps.size(), 6u);
    for (const Fault& fault : c.faults.faults)
      EXPECT_TRUE(!faults::is_payload(fault.kind) || fault.kind == Kind::kPayloadFlip);
    for (const PlannedNetFault& planned : net_faults_of(c)) {
      EXPECT_TRUE(check(planned.fault).ok());
      ++net;
    }
    Case again = c;
    normalize(again);
    EXPECT_TRUE(equal(again, c)) << i;
  }
  EXPECT_GT(net, 100u);
}

TEST(NcclPlan, NetworkErrorsThatNcclLosesAreKnownByItsVersion) {
  for (const int version : {22602, 22707, 22802}) EXPECT_TRUE(loses_network_errors(version));
  for (const int version : {22304, 22501, 22803, 22809, 23203})
    EXPECT_FALSE(loses_network_errors(version));
  EXPECT_TRUE(is_network_error(faults::Kind::kOperationError));
  EXPECT_TRUE(is_network_error(faults::Kind::kLinkReset));
  EXPECT_FALSE(is_network_error(faults::Kind::kMessageStall));
}

}  // namespace
}  // namespace lockstep::properties
