// Sub-groups over real sockets: several groups at once in one store, each under a tag of its own,
// with ranks that differ from those of the job; several reducers on one group. Clauses G1, F2, F3,
// F7. reducer/reducer_groups_test.cc tests the same without sockets.
#include <gtest/gtest.h>

#include <algorithm>

#include "reducer/comm/gloo/group_test_util.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{30000};  // A test must not need this timeout.
constexpr int kProcesses = 4;

// Makes a group of these processes; `self` is one of them, and its rank is its index in the list.
Membership join(const std::shared_ptr<Store>& job, const std::string& tag,
                const std::vector<int>& processes, int self) {
  const auto here = std::find(processes.begin(), processes.end(), self);
  const int rank = static_cast<int>(here - processes.begin());
  Membership membership;
  membership.store = std::make_shared<PrefixStore>(tag, job);
  GlooContextOptions connection = tested_connection();
  connection.timeout = kLong;
  auto group = GlooProcessGroup::connect(membership.store, rank, static_cast<int>(processes.size()),
                                         with_timeout(kLong), connection);
  EXPECT_TRUE(group.has_value()) << group.error().to_string();
  if (group) membership.group = std::move(*group);
  return membership;
}

class Process {
 public:
  std::unique_ptr<DataParallel> reduce(const Ref<Parameter>& parameter, Membership membership) {
    ReducerOptions options = quick_options(false);
    options.failure_grace = kLong;
    auto made = DataParallel::create({parameter}, rank.engine, options, std::move(membership));
    EXPECT_TRUE(made.has_value()) << made.error().to_string();
    return made ? std::move(*made) : nullptr;
  }
  std::vector<Edge> forward(DataParallel& parallel, const Ref<Parameter>& parameter) {
    std::vector<Edge> outputs;
    const Status status = parallel.forward(
        [&](std::vector<Edge>& made) {
          made.push_back({parameter, 0});
          return Status();
        },
        outputs);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return outputs;
  }

  TestRank rank;
  Ref<Parameter> p = rank.add("p");
  Ref<Parameter> q = rank.add("q");
};

// Waits for all processes: the others would take a process that leaves a group early for a loss.
void meet(Store& store, const std::string& place, int process) {
  ASSERT_TRUE(store.set(place + std::to_string(process), "").has_value());
  for (int r = 0; r < kProcesses; ++r)
    ASSERT_TRUE(store.get(place + std::to_string(r), platform::Deadline::in(kLong)).has_value());
}

// Reducers reduce p over all processes, in an order of their own, and q over the pairs 3 1 and 0 2.
// One backward serves both, and the order in which it reaches them differs between the processes.
TEST(GlooGroups, G1GroupsThatOverlapAreReducedInOneBackward) {
  const auto store = std::make_shared<HashStore>();
  on_ranks(kProcesses, [&](int self) {
    Process process;
    process.rank.engine.next_sequence();
    const bool is_odd = self % 2 == 1;
    const Membership world = join(store, "world", {2, 3, 0, 1}, self);
    const Membership pair =
        is_odd ? join(store, "odd", {3, 1}, self) : join(store, "even", {0, 2}, self);
    {
      const auto all = process.reduce(process.p, world);
      const auto two = process.reduce(process.q, pair);
      ASSERT_TRUE(all && two);
      for (int step = 0; step < 20; ++step) {
        process.rank.undefine_grads();
        const auto a = process.forward(*all, process.p);
        const auto b = process.forward(*two, process.q);
        const auto roots = is_odd ? std::vector<Edge>{a[0], b[0]} : std::vector<Edge>{b[0], a[0]};
        const Status status = process.rank.backward(roots, {4.0 * self, 8});
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(values_of(process.p->grad()), (Values{6, 8}));
        EXPECT_EQ(values_of(process.q->grad()), (Values{is_odd ? 8.0 : 4.0, 8}));
      }
    }
    meet(*store, "done", self);
  });
}

TEST(GlooGroups, F2ARankThatGivesUpIsNamedByItsNumberInTheGroupAndOtherGroupsGoOn) {
  const auto store = std::make_shared<HashStore>();
  on_ranks(kProcesses, [&](int self) {
    Process process;
    const bool is_odd = self % 2 == 1;
    const Membership pair =
        is_odd ? join(store, "odd", {3, 1}, self) : join(store, "even", {0, 2}, self);
    const auto two = process.reduce(process.q, pair);
    ASSERT_TRUE(two);
    meet(*store, "made", self);  // Others may still be in the agreement of construction.
    if (self == 1) two->abort(Status(Code::kUserFailure, "no more data"));
    if (self != 1) {
      const Status status =
          process.rank.backward(process.forward(*two, process.q), {4.0 * self, 8});
      EXPECT_EQ(status.ok(), !is_odd) << status.to_string();
      if (is_odd) {
        EXPECT_EQ(status.failure().rank, 1);
        EXPECT_EQ(status.failure().reported_by, 0);
        EXPECT_EQ(status.code(), Code::kUserFailure);
        EXPECT_NE(status.to_string().find("no more data"), std::string::npos);
      } else {
        EXPECT_EQ(values_of(process.q->grad()), (Values{4, 8}));
      }
    }
    meet(*store, "done", self);
  });
}

TEST(GlooGroups, F7TwoReducersOnOneGroupTakeTurns) {
  const auto store = std::make_shared<HashStore>();
  on_ranks(kProcesses, [&](int self) {
    Process process;
    const Membership world = join(store, "world", {0, 1, 2, 3}, self);
    {
      const auto first = process.reduce(process.p, world);
      const auto second = process.reduce(process.q, world);
      ASSERT_TRUE(first && second);
      for (int step = 0; step < 20; ++step) {
        process.rank.undefine_grads();
        const auto a = process.forward(*first, process.p);
        const auto b = process.forward(*second, process.q);
        ASSERT_TRUE(process.rank.backward(step % 2 ? a : b, {4.0 * self, 8}).ok());
        ASSERT_TRUE(process.rank.backward(step % 2 ? b : a, {8.0 * self, 8}).ok());
        EXPECT_EQ(values_of(process.p->grad()), (Values{step % 2 ? 6.0 : 12.0, 8}));
        EXPECT_EQ(values_of(process.q->grad()), (Values{step % 2 ? 12.0 : 6.0, 8}));
      }
    }
    meet(*store, "done", self);
  });
}

// The buckets are equal in everything but the reducer that they belong to.
TEST(GlooGroups, F3F7TwoReducersOnOneGroupAreNotMixedUp) {
  const auto store = std::make_shared<HashStore>();
  on_ranks(kProcesses, [&](int self) {
    Process process;
    const Membership world = join(store, "world", {0, 1, 2, 3}, self);
    {
      const auto first = process.reduce(process.p, world);
      const auto second = process.reduce(process.q, world);
      ASSERT_TRUE(first && second);
      meet(*store, "made", self);
      const auto a = process.forward(*first, process.p);
      const auto b = process.forward(*second, process.q);
      const Status status = process.rank.backward(self == 2 ? b : a, 1);
      EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
      EXPECT_NE(status.to_string().find("reducer 1"), std::string::npos) << status.to_string();
    }
    meet(*store, "done", self);
  });
}

}  // namespace
}  // namespace lockstep::testing
