// Two ranks as processes, each with a plug-in of its own: what crosses the process boundary is the
// handle, the connection and the plan.
#include <optional>

#include "faults/nccl_net/test_net_ends.h"
#include "reducer/comm/gloo/test_util.h"

namespace lockstep::faults::net::testing {
namespace {

using ::lockstep::testing::Processes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kMessages = 200;
constexpr int kWrongBits = 11;  // exit codes of the receiver
constexpr int kPeerLost = 12;

std::vector<std::byte> message(int number) {
  return pattern(static_cast<std::size_t>(number) * 37, static_cast<unsigned>(number));
}

// Rank 0 sends `count` messages, 8 in flight.
int run_sender(Plugin& plugin, const char* handle_from, int count) {
  char handle[kHandleBytes];
  std::memcpy(handle, handle_from, sizeof handle);
  void* sender = nullptr;
  if (!eventually([&] { return plugin.connect(handle, &sender) != kSuccess || sender != nullptr; }))
    return 2;
  std::vector<std::vector<std::byte>> data;
  for (int i = 0; i < count; ++i) data.push_back(message(i));
  std::vector<void*> requests(data.size());
  for (std::size_t i = 0; i < data.size() + 8; ++i) {
    if (i < data.size() &&
        plugin.isend(sender, data[i].data(), data[i].size(), &requests[i]) != kSuccess)
      return 3;
    if (i >= 8 && plugin.wait(requests[i - 8]).code != kSuccess) return 4;
  }
  return plugin.close_send(sender);
}

// Rank 1 receives them. `differing` are those with other bits.
int run_receiver(Plugin& plugin, void* listener, int count, std::vector<int>& differing) {
  void* receiver = nullptr;
  if (!eventually(
          [&] { return plugin.accept(listener, &receiver) != kSuccess || receiver != nullptr; }))
    return 2;
  for (int i = 0; i < count; ++i) {
    const std::vector<std::byte> expected = message(i);
    std::vector<std::byte> room(10'000);
    void* request = nullptr;
    if (plugin.irecv(receiver, room.data(), room.size(), &request) != kSuccess) return 3;
    const Told told = plugin.wait(request);
    if (told.code == kRemoteError) return kPeerLost;
    if (told.size != static_cast<int>(expected.size())) return 5;
    room.resize(expected.size());
    if (room != expected) differing.push_back(i);
  }
  plugin.close_receive(receiver);
  plugin.close_listen(listener);
  return differing.empty() ? 0 : kWrongBits;
}

class NcclNetProcess : public NcclNetTest {
 protected:
  void TearDown() override { ::unsetenv(LOCKSTEP_NET_PLAN); }

  // Runs both ranks to their ends; their exit codes.
  std::pair<int, int> run(const std::vector<NetFault>& faults, int first_differing = -1) {
    Result<NetPlan> plan = NetPlan::create(plan_name(), faults);
    EXPECT_TRUE(plan.has_value());
    plan_.emplace(std::move(*plan));
    ::setenv(LOCKSTEP_NET_PLAN, plan_->name().c_str(), 1);
    int pipe_ends[2];
    EXPECT_EQ(::pipe(pipe_ends), 0);
    Processes ranks(2, [&](int rank) {
      char handle[kHandleBytes];
      if (plugin_.become(rank) != kSuccess) return 1;
      if (rank == 0) {
        if (::read(pipe_ends[0], handle, sizeof handle) != sizeof handle) return 1;
        return run_sender(plugin_, handle, kMessages);
      }
      void* listener = nullptr;
      if (plugin_.listen(handle, &listener) != kSuccess) return 1;
      if (::write(pipe_ends[1], handle, sizeof handle) != sizeof handle) return 1;
      std::vector<int> differing;
      const int code = run_receiver(plugin_, listener, kMessages, differing);
      if (code == kWrongBits && differing != std::vector<int>{first_differing}) return 6;
      return code;
    });
    const std::pair<int, int> codes{ranks.wait(0), ranks.wait(1)};
    ::close(pipe_ends[0]);
    ::close(pipe_ends[1]);
    return codes;
  }

  std::optional<NetPlan> plan_;
};
INSTANTIATE_TEST_SUITE_P(Table, NcclNetProcess, ::testing::Values(6, 11), table_name);

TEST_P(NcclNetProcess, MessagesArriveInOrder) {
  EXPECT_EQ(run({}), std::make_pair(0, 0));
  EXPECT_EQ(plan_->attached(), 2u);
}

TEST_P(NcclNetProcess, FaultOfOneRankChangesOneMessageAndTheRunnerSeesIt) {
  EXPECT_EQ(run({{NetKind::kFlip, 0, 1, End::kSender, 0, 150, 1, 1234}}, 150),
            std::make_pair(0, kWrongBits));
  EXPECT_EQ(plan_->fired(0), 1u);
  EXPECT_THAT(plan_->unfired(), IsEmpty());
}

TEST_P(NcclNetProcess, FaultForMissingRanksAndMessagesIsReported) {
  EXPECT_EQ(run({{NetKind::kFlip, 0, 2, End::kSender, 0, 0, 1, 0},
                 {NetKind::kFlip, 1, 0, End::kReceiver, 0, kMessages, 1, 0}}),
            std::make_pair(0, 0));
  EXPECT_THAT(plan_->unfired(),
              ElementsAre(HasSubstr("never fired: no connection rank 0 -> 2"),
                          HasSubstr("never fired: the connection carried 200 messages")));
}

TEST_P(NcclNetProcess, ConnectionThatClosesIsNoticedByTheOtherProcess) {
  EXPECT_EQ(run({{NetKind::kClose, 0, 1, End::kSender, 0, 100, 1, 1000}}),
            std::make_pair(4, kPeerLost));
  EXPECT_EQ(plan_->fired(0), 1u);
}

}  // namespace
}  // namespace lockstep::faults::net::testing
