// What NCCL's log proves, on lines in the form in which NCCL 2.28.9 writes them (src/debug.cc and
// the sources that nccl_log.cc names), and on a few of older versions.
#include "properties/lane/nccl_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

using ::testing::HasSubstr;

// The first rank of two, over the plug-in, as pinned.
constexpr const char* kGood =
    R"(gpu1:4711:4711 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to lo
gpu1:4711:4711 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>
gpu1:4711:4711 [0] NCCL INFO cudaDriverVersion 13000
gpu1:4711:4711 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
gpu1:4711:4720 [0] NCCL INFO NET/Plugin: Could not find: lockstep. 
gpu1:4711:4720 [0] NCCL INFO NET/Plugin: Loaded net plugin Lockstep (v11)
gpu1:4711:4720 [0] NCCL INFO NET/Lockstep : listens on lo
gpu1:4711:4720 [0] NCCL INFO Initialized NET plugin Lockstep
gpu1:4711:4720 [0] NCCL INFO Assigned NET plugin Lockstep to comm
gpu1:4711:4720 [0] NCCL INFO Using network Lockstep
gpu1:4711:4720 [0] NCCL INFO Channel 00/01 : 0 1
gpu1:4711:4720 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1
gpu1:4711:4725 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Lockstep/0
gpu1:4711:4725 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Lockstep/0
gpu1:4711:4720 [0] NCCL INFO Connected all rings
gpu1:4711:4711 [0] NCCL INFO AllGather: 112 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}
h:4711:4711 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}
)";

NcclLog read(const std::string& text) {
  NcclLog log;
  log.add(text);
  return log;
}

std::string without(const std::string& part) {
  std::string text = kGood;
  const std::size_t at = text.find(part);
  const std::size_t begin = text.rfind('\n', at) + 1;
  return text.erase(begin, text.find('\n', at) + 1 - begin);
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kGood;
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

constexpr NcclLog::Made kAll{true, true, true};

std::string complaint(const NcclLog& log, const char* network = "Lockstep",
                      const NcclLog::Made& made = kAll) {
  const Status status = log.check(network, network == std::string("Lockstep"), made);
  return status.ok() ? "" : status.failure().detail;
}
std::string complaint(const std::string& text, const char* network = "Lockstep") {
  return complaint(read(text), network);
}

TEST(NcclLog, RunAsPinnedIsProven) { EXPECT_EQ(complaint(kGood), ""); }

TEST(NcclLog, LinesThatComeInPartsAreTheSame) {
  NcclLog log;
  const std::string text = kGood;
  const std::size_t half = text.find('\n', text.size() / 2) + 1;
  log.add(text.substr(0, half));
  log.add(text.substr(half));
  EXPECT_EQ(complaint(log), "");
}

TEST(NcclLog, FallBackToSocketsIsNoticed) {
  EXPECT_THAT(complaint(changed("Lockstep", "Socket")),
              HasSubstr("NCCL uses the network Socket instead of Lockstep: the plug-in was not"));
}

TEST(NcclLog, PluginThatWasNotSaidToBeLoadedProvesNothing) {
  EXPECT_THAT(complaint(without("Loaded net plugin")), HasSubstr("loaded the plug-in Lockstep"));
}

TEST(NcclLog, SilenceProvesNothing) {
  EXPECT_THAT(complaint(""), HasSubstr("does not say which network"));
  EXPECT_EQ(complaint(NcclLog(), "Lockstep", {}), "");  // no communicator was made
}

TEST(NcclLog, FirstRankHasToTellOfTheRingAndOfTheWay) {
  const NcclLog no_ring = read(without("Channel 00/01"));
  EXPECT_THAT(complaint(no_ring), HasSubstr("tells of no ring"));
  EXPECT_EQ(complaint(no_ring, "Lockstep", {true, false, false}), "");
  std::string text = kGood;
  const NcclLog no_way = read(text.erase(text.find("gpu1:4711:4711 [0] NCCL INFO AllGather")));
  EXPECT_THAT(complaint(no_way), HasSubstr("tells of no collective by which way"));
  EXPECT_EQ(complaint(no_way, "Lockstep", {true, true, false}), "");
}

TEST(NcclLog, EachCaseIsProvenByItself) {
  NcclLog log = read(kGood);
  log.begin_case();
  EXPECT_THAT(complaint(log), HasSubstr("does not say which network"));
  log.add(without("Loaded net plugin"));  // once a process is enough
  EXPECT_EQ(complaint(log), "");

  log.add(changed("Algo RING", "Algo TREE"));
  EXPECT_NE(complaint(log), "");
  log.begin_case();
  log.add(kGood);
  EXPECT_EQ(complaint(log), "") << "what was wrong before is over";
}

TEST(NcclLog, SocketsNeedNoPlugin) {
  const std::string text = changed("Lockstep", "Socket");
  EXPECT_EQ(complaint(text, "Socket"), "");
  EXPECT_THAT(complaint(kGood, "Socket"), HasSubstr("network Lockstep instead of Socket"));
}

TEST(NcclLog, OtherWaysOfAddingAreNoticed) {
  EXPECT_THAT(complaint(changed("Algo RING", "Algo TREE")),
              HasSubstr("no formula is known of another way: AllGather"));
  EXPECT_THAT(complaint(changed("proto SIMPLE", "proto LL128")), HasSubstr("Ring and Simple"));
  EXPECT_THAT(complaint(changed("={0..0}", "={0..1}")), HasSubstr("one channel"));
  EXPECT_THAT(complaint(changed("Algo RING proto", "Algo")), HasSubstr("one channel"));
}

// What young NCCL says of the ways that are not its ring: each is refused, whatever else the log
// has.
TEST(NcclLog, WaysWithoutAFormulaAreNoticed) {
  for (const std::string way : {"AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R "
                                "nchannels 1 nthreads 512 nWorks 1",
                                "ReduceScatter [Symmetric]: 64 Bytes -> Kernel ReduceScatter_LD "
                                "nchannels 8 nthreads 512 nWorks 2",
                                "AllGather [Copy Engine]: 64 Bytes -> cudaMemcpyBatchAsync",
                                "AllGather [Hierarchical CE]: 64 Bytes -> RMA proxy + CE",
                                "AllGather [Hierarchical CE]: 64 Bytes -> Rail 0 RMA proxy + CE",
                                "AllReduce [Something new]: 64 Bytes -> nobody knows"})
    EXPECT_THAT(complaint(std::string(kGood) + "h:1:1 [0] NCCL INFO " + way + "\n"),
                HasSubstr("no formula is known of another way: " + way));
}

// 2.31 says more about a collective that went as it was pinned.
TEST(NcclLog, ClustersOfYoungVersionsArePassedOver) {
  EXPECT_EQ(complaint(changed("={0..0}", "={0..0} cgaClusterSize 4")), "");
  EXPECT_THAT(complaint(changed("={0..0}", "={0..1} cgaClusterSize 4")), HasSubstr("one channel"));
}

TEST(NcclLog, TunersAreNoticedInEveryCaseOfTheProcess) {
  const std::string line = "h:1:1 [0] NCCL INFO TUNER/Plugin: Using ";
  NcclLog log = read(line + "Fabric (v6)\n" + kGood);
  EXPECT_THAT(complaint(log), HasSubstr("uses the tuner plug-in Fabric (v6)"));
  log.begin_case();
  log.add(kGood);
  EXPECT_THAT(complaint(log), HasSubstr("uses the tuner plug-in")) << "it is loaded once a process";
  EXPECT_THAT(complaint(line + "tuner plugin Fabric\n" + kGood), HasSubstr("tuner plugin Fabric"));
  EXPECT_EQ(complaint(line + "internal tuner plugin.\n" + kGood), "");
}

TEST(NcclLog, SeveralChannelsAndOtherRingsAreNoticed) {
  EXPECT_THAT(complaint(changed("Channel 00/01 : 0 1", "Channel 00/02 : 0 1")),
              HasSubstr("2 channels instead of one"));
  EXPECT_THAT(complaint(changed("Channel 00/01 : 0 1", "Channel 00/01 : 0 2 1")),
              HasSubstr("the ring is not in the order of ranks"));
  // A communicator of one rank has rings, and adds nothing.
  EXPECT_EQ(complaint(std::string(kGood) + "h:1:1 [0] NCCL INFO Channel 03/64 : 0\n"), "");
}

TEST(NcclLog, ConnectionPastTheNetworkIsNoticed) {
  const std::string peer = "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via ";
  EXPECT_THAT(complaint(kGood + peer + "P2P/CUMEM\n"),
              HasSubstr("connected by P2P/CUMEM instead of NET/Lockstep"));
  EXPECT_THAT(complaint(kGood + peer + "SHM/direct/direct\n"), HasSubstr("by SHM/direct"));
}

TEST(NcclLog, WarningsProveNothingAndExplain) {
  const std::string warning =
      "\n[2026-11-22 10:00:00] gpu1:1:2 [0] plugin/net.cc:379 NCCL WARN Failed to initialize any "
      "NET plugin\n";
  EXPECT_EQ(complaint(kGood + warning), "");
  EXPECT_THAT(complaint(changed("Lockstep", "Socket") + warning),
              HasSubstr("NCCL's last warning: Failed to initialize any NET plugin"));
}

// 2.22 has numbers for names: Ring is 1 and Simple 2 (src/include/nccl_tuner.h).
TEST(NcclLog, NumbersOfOlderVersionsAreRead) {
  const auto line = [](const std::string& rest) {
    return without("AllReduce") + "h:1:1 [0] NCCL INFO 4096 Bytes -> Algo " + rest + "\n";
  };
  EXPECT_EQ(complaint(line("1 proto 2 time 12.5")), "");
  EXPECT_THAT(complaint(line("0 proto 2 time 12.5")), HasSubstr("Ring and Simple"));
}

TEST(NcclLog, AnythingElseIsPassedOver) {
  for (const std::string text :
       {"\n\n", "NCCL INFO ", "x NCCL INFO Channel", "x NCCL INFO Channel 1/", "\xff\xfe",
        "x NCCL INFO Channel 00/01 : a b", "no line end"})
    EXPECT_EQ(complaint(kGood + text), "") << text;
}

}  // namespace
}  // namespace lockstep::properties
