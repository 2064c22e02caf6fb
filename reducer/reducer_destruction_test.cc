// A reducer that is destroyed while a backward of its pass runs: a programmer error, which a check
// reports (F5). Destruction at all other points is tested in failure_sweep_test.cc and
// reducer_failure_test.cc.
#include <gtest/gtest.h>

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

TEST(ReducerDestructionDeathTest, F5ANodeThatDestroysItFailsACheck) {
  EXPECT_DEATH(run_backward([](TestRank& rank) { rank.parallel.reset(); }), kText);
}

TEST(ReducerDestruction, F5AfterTheBackwardItIsFine) {
  int calls = 0;
  run_backward([&](TestRank&) { ++calls; });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace lockstep::testing
