// A reducer that is destroyed while a backward of its pass runs: a programmer error, which a check
// reports (F5). Destruction at all other points is tested in failure_sweep_test.cc and
// reducer_failure_test.cc.
#include <gtest/gtest.h>

#include <latch>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

constexpr const char* kText = "a reducer is destroyed while a backward uses it";

// Runs a backward in which `act` is called between the hooks of p and q.
void run_backward(const std::function<void(TestRank&)>& act) {
  TestRank rank;
  const auto p = rank.add("p");
  const auto q = rank.add("q");
  auto group = std::make_shared<ScriptedGroup>();
  ASSERT_TRUE(rank.create({group, std::make_shared<HashStore>()}, quick_options(false)).ok());
  const auto node = make_ref<FunctionNode>(
      rank.engine, std::vector<Edge>{{q, 0}},
      [&](std::span<const Tensor> incoming, std::span<Tensor> outgoing, const BackwardContext&) {
        act(rank);
        outgoing[0] = incoming[0];
        return Status();
      });
  std::vector<Edge> outputs;
  const auto module = [&](std::vector<Edge>& made) {
    made = {{p, 0}, {node, 0}};
    return Status();
  };
  ASSERT_TRUE(rank.parallel->forward(module, outputs).ok());
  const std::vector<Tensor> gradients(outputs.size(), rank.tensor({2, 2}));
  rank.engine.backward(outputs, gradients, false).ignore();
}

TEST(ReducerDestructionDeathTest, F5ASecondThreadThatDestroysItInABackwardFailsACheck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(run_backward([](TestRank& rank) {
                 platform::Thread second("second", [&rank] { rank.parallel.reset(); });
                 second.join();
               }),
               kText);
}

TEST(ReducerDestructionDeathTest, F5_6ANodeThatDestroysItFailsACheck) {
  EXPECT_DEATH(run_backward([](TestRank& rank) { rank.parallel.reset(); }), kText);
}

TEST(ReducerDestruction, F5_3InTheMiddleOfAPassItEndsTheGroupAndPeersNameTheRank) {
  const auto memberships = local_memberships(2);
  std::latch is_gone(1);
  on_ranks(2, [&](int r) {
    TestRank rank;
    rank.add("p");
    rank.add("q");
    const auto index = static_cast<std::size_t>(r);
    ASSERT_TRUE(rank.create(memberships[index], quick_options(false)).ok());
    if (r == 1) is_gone.wait();  // so that the bucket of the other rank is in flight
    const auto outputs = rank.forward_of(rank.parameters);
    const Status status = rank.backward({outputs[1]}, 1);
    if (r == 1) {
      const Status last = status.ok() ? rank.backward({outputs[0]}, 1) : status;
      EXPECT_EQ(last.failure().rank, 0) << last.to_string();
      return;
    }
    EXPECT_TRUE(status.ok()) << status.to_string();
    rank.parallel.reset();
    is_gone.count_down();
  });
}

TEST(ReducerDestruction, F5_5ABackwardOfAPassWhoseReducerIsGoneIsRefused) {
  TestRank rank;
  rank.add("p");
  ASSERT_TRUE(rank.create(local_memberships(1)[0], quick_options(false)).ok());
  const auto outputs = rank.forward_of(rank.parameters);
  rank.parallel.reset();
  EXPECT_EQ(rank.backward(outputs, 1).code(), Code::kSecondBackward);
}

TEST(ReducerDestruction, F5_14AnAbortLeavesTheGradientsOfAStepThatEndedWell) {
  TestRank rank;
  const auto p = rank.add("p");
  ASSERT_TRUE(rank.create(local_memberships(1)[0], quick_options(false)).ok());
  ASSERT_TRUE(rank.backward(rank.forward_of(rank.parameters), 3).ok());
  const double before = values_of(p->grad())[0];
  rank.parallel->abort(Status(Code::kAborted, "the user gives up"));
  EXPECT_EQ(values_of(p->grad())[0], before);
  (void)rank.forward_of(rank.parameters);
  EXPECT_FALSE(rank.forward_status.ok());
}

TEST(ReducerDestruction, F5AfterTheBackwardItIsFine) {
  int calls = 0;
  run_backward([&](TestRank&) { ++calls; });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace lockstep::testing
