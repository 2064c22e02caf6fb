// What each fault of our net plug-in leads to in NCCL itself, on a GPU that is played: two ranks,
// three all-reduces of one message each way, and the fault in the second one. The plan names
// messages of the connection from rank 0 to rank 1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "faults/nccl_net/net_plan.h"
#include "properties/lane/nccl_plan.h"
#include "properties/lane/test_played_nccl.h"
#include "reducer/comm/nccl/test_nccl_processes.h"

namespace lockstep {
namespace {

using faults::net::End;
using faults::net::NetFault;
using faults::net::NetKind;
using faults::net::NetPlan;
using Ranks = NcclProcesses<testing::PlayedNccl<testing::PlayedNetwork::kPlugin>>;

constexpr std::size_t kFew = 100;                    // one message and an empty one each way
constexpr std::size_t kMany = std::size_t{3} << 20;  // several messages in flight

// What a rank saw: the state of the communicator, or kInProgress for an operation that did not end.
struct Seen {
  NcclResult state = NcclResult::kSuccess;
  int wrong_operations = 0;
  int operations = 0;  // that ended
};

// How often a rank looks whether a sum has ended, which takes a second or more; and how often where
// it has to be told of a failure, so that a busy machine has the time for it.
constexpr int kPolls = 5000;
constexpr int kPatientPolls = 100'000;

bool has_ended(NcclUnderTest& on, NcclComm comm, const Event& event, int polls, Seen& seen) {
  for (int i = 0; i < polls; ++i) {
    if (on.device().synchronize(event, platform::Deadline::in({})).ok()) return true;
    EXPECT_EQ(on.api().comm_get_async_error(comm, &seen.state), NcclResult::kSuccess);
    if (seen.state != NcclResult::kSuccess) return false;
    on.pause();
  }
  seen.state = NcclResult::kInProgress;
  return false;
}

Seen run_sums(NcclUnderTest& on, std::size_t count, int polls) {
  Seen seen;
  const NcclComm comm = on.connected();
  for (int i = 0; i < 3 && seen.state == NcclResult::kSuccess; ++i) {
    std::vector<float> values(count);
    for (std::size_t k = 0; k < count; ++k)
      values[k] = static_cast<float>(i + 1) + static_cast<float>(k % 1000);
    const Tensor data = on.made(values);
    seen.state = on.settled(comm, on.api().all_reduce(data.data(), data.data(), count, kNcclFloat,
                                                      NcclRedOp::kSum, comm, on.native()));
    if (seen.state != NcclResult::kSuccess) break;  // the network may fail at any time
    if (!has_ended(on, comm, on.device().record(on.stream()), polls, seen)) break;
    ++seen.operations;
    const std::vector<float> sums = on.values(data);
    bool is_wrong = false;
    for (std::size_t k = 0; k < count; ++k) is_wrong = is_wrong || sums[k] != 2 * values[k];
    seen.wrong_operations += is_wrong ? 1 : 0;
  }
  on.meet();  // the abort of one is an error of the other
  EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
  return seen;
}

// A plan with one fault, which the ranks of run() find by its name.
class PlayedNcclFaults : public ::testing::Test {
 protected:
  static void with(const NetFault& fault,
                   const std::function<void(NcclUnderTest&, const Seen&)>& expect,
                   std::size_t count = kFew) {
    const std::string name = "/lockstep-played-" + std::to_string(::getpid());
    NetPlan::remove(name);
    Result<NetPlan> plan = NetPlan::create(name, {fault});
    ASSERT_TRUE(plan.has_value()) << plan.error().to_string();
    ::setenv(LOCKSTEP_NET_PLAN, name.c_str(), 1);
    Ranks::run(2, [&](NcclUnderTest& on) {
      if (on.abort_hangs()) GTEST_SKIP() << "the abort of this NCCL hangs";
      const bool is_told = fault.kind == NetKind::kClose && on.rank() == fault.rank &&
                           !properties::loses_network_errors(on.api().version);
      const Seen seen = run_sums(on, count, is_told ? kPatientPolls : kPolls);
      expect(on, seen);
      on.end_here();
    });
    ::unsetenv(LOCKSTEP_NET_PLAN);
    if (!IsSkipped() && !HasFailure()) {
      EXPECT_GE(plan->fired(0), 1u) << plan->unfired().front();
    }
  }
  // An all-reduce sends two messages of one slice each, and one without data behind each.
  static NetFault fault(NetKind kind, End end, std::int64_t amount = 0) {
    NetFault it;
    it.kind = kind;
    it.rank = end == End::kSender ? 0 : 1;
    it.peer = end == End::kSender ? 1 : 0;
    it.end = end;
    it.connection = 0;
    it.message = 4;
    it.amount = amount;
    return it;
  }
  static void expect_good(NcclUnderTest&, const Seen& seen) {
    EXPECT_EQ(seen.state, NcclResult::kSuccess);
    EXPECT_EQ(seen.operations, 3);
    EXPECT_EQ(seen.wrong_operations, 0);
  }
  // A sum is wrong, and nobody says so.
  static void expect_silent(NcclUnderTest&, const Seen& seen) {
    EXPECT_EQ(seen.state, NcclResult::kSuccess);
    EXPECT_EQ(seen.operations, 3);
    EXPECT_GE(seen.wrong_operations, 1);
  }
  static void expect_hang(NcclUnderTest&, const Seen& seen) {
    EXPECT_EQ(seen.state, NcclResult::kInProgress);
    EXPECT_LT(seen.operations, 3);
  }
};

TEST_F(PlayedNcclFaults, ADelayIsNotSeen) {
  for (const End end : {End::kSender, End::kReceiver})
    with(fault(NetKind::kDelay, end, 20'000), expect_good);
}

TEST_F(PlayedNcclFaults, BackPressureIsNotSeen) {
  for (const End end : {End::kSender, End::kReceiver})
    with(fault(NetKind::kBackPressure, end, 5), expect_good);
}

TEST_F(PlayedNcclFaults, AStallHangsBothRanks) {
  for (const End end : {End::kSender, End::kReceiver})
    with(fault(NetKind::kStall, end), expect_hang);
}

TEST_F(PlayedNcclFaults, AnErrorIsToldToItsRank) {
  for (const NetKind kind : {NetKind::kError, NetKind::kRefuse})
    for (const End end : {End::kSender, End::kReceiver})
      with(fault(kind, end, static_cast<int>(NcclResult::kSystemError)),
           [end](NcclUnderTest& on, const Seen& seen) {
             const bool is_told = on.rank() == (end == End::kSender ? 0 : 1) &&
                                  !properties::loses_network_errors(on.api().version);
             EXPECT_EQ(seen.state, is_told ? NcclResult::kSystemError : NcclResult::kInProgress);
           });
}

// The rank whose end closes the connection is told, and so is the other one where it still sends or
// receives. A sender that has sent all by then is not.
TEST_F(PlayedNcclFaults, AConnectionThatClosesIsToldToWhoeverUsesIt) {
  for (const End end : {End::kSender, End::kReceiver})
    with(fault(NetKind::kClose, end), [end](NcclUnderTest& on, const Seen& seen) {
      if (properties::loses_network_errors(on.api().version))
        EXPECT_EQ(seen.state, NcclResult::kInProgress);
      else if (end == End::kReceiver && on.rank() == 0)
        EXPECT_TRUE(seen.state == NcclResult::kRemoteError ||
                    (seen.state == NcclResult::kInProgress && seen.operations == 1));
      else
        EXPECT_EQ(seen.state, NcclResult::kRemoteError);
    });
}

TEST_F(PlayedNcclFaults, AFlippedBitMakesAWrongSumInSilence) {
  with(fault(NetKind::kFlip, End::kSender, 22), expect_silent);
}

TEST_F(PlayedNcclFaults, AMissingEndMakesAWrongSumInSilence) {
  with(fault(NetKind::kShort, End::kSender, 100), expect_silent);
}

TEST_F(PlayedNcclFaults, SwappedPayloadsMakeWrongSumsInSilence) {
  with(fault(NetKind::kSwap, End::kSender), expect_silent, kMany);
}

}  // namespace
}  // namespace lockstep
