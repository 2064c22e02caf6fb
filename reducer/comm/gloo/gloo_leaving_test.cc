// Ranks that leave a group directly after their last collective has succeeded: it succeeds on the
// other ranks, too, whatever its size is (F2, F5).
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "reducer/comm/gloo/device.h"
#include "reducer/comm/gloo/forwarding_transport.h"
#include "reducer/comm/gloo/group_test_util.h"
#include "reducer/comm/gloo/slots.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using platform::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience{20};

// Rank 1 has sent its header to rank 2, and sends it to rank 0 only after rank 2 has left. Rank 2
// needs no more for a collective of no elements.
TEST(GlooLeaving, F5ARankLeavesBeforeAnotherHasSentItsLastHeader) {
  const auto device = shared_device("127.0.0.1");
  ASSERT_TRUE(device.has_value()) << device.error().to_string();
  const auto store = std::make_shared<HashStore>();
  std::array<Status, 3> statuses;
  statuses.fill(Status(Code::kInternal, "the test has not come to its collective"));
  on_ranks(3, [&](int rank) {
    GlooContextOptions connection = tested_connection();
    bool is_connected = false;
    if (rank == 1)
      connection.device =
          std::make_shared<ForwardingDevice>(*device, [&](const ForwardedSend& send) {
            const bool is_header = send.part_of == static_cast<std::uint8_t>(Channel::kNeighbours);
            if (!is_connected || !is_header || send.to != 0) return;
            EXPECT_TRUE(store->get("left", Deadline::in(kPatience)).has_value());
          });
    auto group = GlooProcessGroup::connect(store, rank, 3, {}, connection);
    ASSERT_TRUE(group.has_value()) << group.error().to_string();
    is_connected = true;
    statuses[static_cast<std::size_t>(rank)] = run(**group, Collective());
    if (rank != 2) return;
    group->reset();
    EXPECT_TRUE(store->set("left", "").value());
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
}

// Here nothing is timed: ranks leave as chance has it, after every operation, with several sizes,
// and after sums that are verified.
TEST(GlooLeaving, F5EveryRankSucceedsWhereAllLeaveAtOnce) {
  for (const int ranks : {2, 3})
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1000}})
      for (const Op op : {Op::kAllReduceSum, Op::kBroadcast, Op::kAllGather})
        for (const bool verify : {false, true}) {
          SCOPED_TRACE(std::string(name_of(op)) + " of " + std::to_string(count) + " among " +
                       std::to_string(ranks) + (verify ? ", checked" : ""));
          const auto store = std::make_shared<HashStore>();
          on_ranks(ranks, [&](int rank) {
            auto group = connect_rank(store, rank, ranks, {});
            ASSERT_TRUE(group.has_value()) << group.error().to_string();
            std::vector<float> data(count, 1);
            std::vector<float> gathered(count * static_cast<std::uint64_t>(ranks));
            Collective collective;
            collective.op = op;
            collective.count = count;
            collective.verify = verify;
            collective.data = reinterpret_cast<std::byte*>(data.data());
            collective.gathered = reinterpret_cast<std::byte*>(gathered.data());
            const Status status = run(**group, collective);
            EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status.to_string();
          });
        }
}

// The last bucket of a step may have no elements (B6).
TEST(GlooLeaving, F5AStepWithAnEmptyParameterSucceedsWhereRanksLeaveDirectlyAfterIt) {
  for (int round = 0; round < 10; ++round) {
    const auto store = std::make_shared<HashStore>();
    on_ranks(2, [&](int rank) {
      auto group = connect_rank(store, rank, 2, {});
      ASSERT_TRUE(group.has_value()) << group.error().to_string();
      TestRank replica;
      ParameterSpec empty;
      empty.shape = Shape::row_major({0});
      const auto p = replica.add("p", empty);
      const auto q = replica.add("q");
      const Status created = replica.create(
          {std::shared_ptr<ProcessGroup>(std::move(*group)), store}, quick_options(false));
      ASSERT_TRUE(created.ok()) << created.to_string();
      const std::vector<Tensor> gradients = {replica.tensor({}), replica.tensor({1, 2})};
      const Status status = replica.engine.backward(replica.forward_of({p, q}), gradients, false);
      EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status.to_string();
      EXPECT_EQ(values_of(q->grad()), (Values{1, 2}));
    });
  }
}

}  // namespace
}  // namespace lockstep::testing
