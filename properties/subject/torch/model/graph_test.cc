#include "properties/subject/torch/model/graph.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "reference/test_programs.h"

namespace lockstep::properties::torch_model {

using namespace reference;  // NOLINT
namespace {

using namespace testing;

// "p0:2*k7" is a tensor for parameter 0 with scalar 2 from node key 7, "p0!" its hook with a
// gradient, "p0?" without, "." the end of a nested call; a "'" for every nested call around.
std::string events_of(const RankPass& pass, std::uint32_t call = 0,
                      std::vector<std::uint32_t> owners = {0, 1, 2, 3},
                      bool is_whole_forward = false) {
  Graph under_test(owners);
  std::ostringstream text;
  for (const Event& event : under_test.backward(pass, call, is_whole_forward ? ~0U : 0)) {
    if (text.tellp() > 0) text << ' ';
    text << std::string(event.depth, '\'');
    if (event.kind == Event::Kind::kEnd) {
      text << '.';
      continue;
    }
    text << 'p' << event.parameter;
    if (event.kind == Event::Kind::kHook) {
      text << (event.defined ? '!' : '?');
    } else {
      text << (event.first ? ':' : '+') << event.scalar << "*k" << event.node_key;
    }
  }
  return text.str();
}

TEST(Graph, AUseSendsItsTensorAndFiresTheHook) {
  EXPECT_EQ(events_of(graph({use(1, 7)})), "p1:1*k7 p1!");
}

TEST(Graph, TensorsComeInDescendingCreationOrderAndTheHookAfterTheLast) {
  EXPECT_EQ(events_of(graph({use(0, 1), use(1, 2, {{0, 0}}), use(0, 3, {{0, 0}})})),
            "p0:1*k3 p1:1*k2 p1! p0+1*k1 p0!");
}

TEST(Graph, ANodeAddsWhatItsConsumersPass) {
  // Node 1 uses node 0 twice, node 2 once, and node 0 is an output as well.
  const RankPass pass =
      graph({use(0, 1), node(Kind::kSum, {{0, 0}, {0, 0}}), node(Kind::kSum, {{0, 0}, {1, 0}})},
            {{0, 0}, {2, 0}});
  EXPECT_EQ(events_of(pass), "p0:4*k1 p0!");
}

TEST(Graph, ScalesMultiplyAndZeroIsDefined) {
  EXPECT_EQ(events_of(graph({use(0, 1), node(Kind::kScale, {{0, 0}}, -2)})), "p0:-2*k1 p0!");
  EXPECT_EQ(events_of(graph({use(0, 1), node(Kind::kScale, {{0, 0}}, 0)})), "p0:0*k1 p0!");
  // What arrives alone is the sum: -1 * 0 is -0, and stays it.
  const std::vector<Node> negative = {use(0, 1), node(Kind::kScale, {{0, 0}}, 0),
                                      node(Kind::kScale, {{0, 0}}, -1)};
  EXPECT_EQ(events_of(graph(negative)), "p0:-0*k1 p0!");
}

TEST(Graph, BehindAStopHooksFireWithoutAGradient) {
  EXPECT_EQ(events_of(graph({use(0, 1), use(1, 2, {{0, 0}}), node(Kind::kStop, {{0, 0}}),
                             use(1, 3, {{0, 0}})})),
            "p1:1*k3 p1! p0?");
}

TEST(Graph, BehindADetachNothingIsReached) {
  EXPECT_EQ(events_of(graph({use(0, 1), node(Kind::kDetach, {{0, 0}}), use(1, 3, {{0, 0}})})),
            "p1:1*k3 p1!");
}

TEST(Graph, ASplitPassesItsFirstSlotAndTwiceItsSecond) {
  const std::vector<Node> nodes = {use(0, 1), node(Kind::kSplit, {{0, 0}})};
  EXPECT_EQ(events_of(graph(nodes, {{0, 0}})), "p0:1*k1 p0!");
  EXPECT_EQ(events_of(graph(nodes, {{0, 3}})), "p0:2*k1 p0!");
  EXPECT_EQ(events_of(graph(nodes, {{0, 0}, {0, 1}})), "p0:3*k1 p0!");
  // A stop makes the only slot that is reached undefined.
  EXPECT_EQ(
      events_of(graph({use(0, 1), node(Kind::kSplit, {{0, 0}}), node(Kind::kStop, {{0, 1}})})),
      "p0?");
}

TEST(Graph, InputsCountBackModuloTheNodesBefore) {
  // Node 2's inputs: back 5 is 5 % 2 = 1, so node 0; back 2 is node 1.
  EXPECT_EQ(events_of(graph({use(0, 1), use(1, 2), node(Kind::kSum, {{5, 9}})})), "p0:1*k1 p0!");
  EXPECT_EQ(events_of(graph({use(0, 1), use(1, 2), node(Kind::kSum, {{2, 0}})})), "p1:1*k2 p1!");
}

TEST(Graph, RootsAreModuloAndCountOnce) {
  RankPass pass = graph({use(0, 1), use(1, 2)}, {{0, 0}, {1, 0}});
  pass.backwards = {{{1, 3, 5}}, {{0}}, {{}}};
  EXPECT_EQ(events_of(pass, 0), "p0:1*k1 p0!");
  EXPECT_EQ(events_of(pass, 1), "p1:1*k2 p1!");
  EXPECT_EQ(events_of(pass, 2), "p1:1*k2 p1! p0:1*k1 p0!");
  EXPECT_EQ(call_count(pass), 3U);
}

TEST(Graph, LaterForwardsComeFirstAndDiscardedOnesNotAtAll) {
  RankPass pass = graph({use(0, 1)});
  pass.forwards.push_back(graph({use(1, 2)}).forwards[0]);
  pass.forwards.push_back(graph({use(0, 3)}).forwards[0]);
  EXPECT_EQ(events_of(pass), "p0:1*k3 p1:1*k2 p1! p0+1*k1 p0!");
  pass.forwards[1].discard = true;
  EXPECT_EQ(kept_outputs(pass), 2U);
  EXPECT_EQ(events_of(pass), "p0:1*k3 p0+1*k1 p0!");
  pass.backwards = {{{1}}};
  EXPECT_EQ(events_of(pass), "p0:1*k3 p0!");
}

TEST(Graph, FrozenParametersGetNothingAndSharedOnesGoToTheirOwner) {
  const RankPass pass = graph({use(0, 1), use(1, 2, {{0, 0}}), use(2, 3, {{0, 0}})});
  EXPECT_EQ(events_of(pass, 0, {0, kNotTrained, 0}), "p0:1*k3 p0+1*k1 p0!");
  EXPECT_EQ(events_of(graph({use(7, 1)}), 0, {0, 1, 2}), "p1:1*k1 p1!");
}

TEST(Graph, ACheckpointRunsItsBodyAsACallOfItsOwn) {
  EXPECT_EQ(events_of(graph({use(0, 1), checkpoint({use(1, 8), use(1, 9, {{0, 0}})}, {{0, 0}}),
                             node(Kind::kScale, {{0, 0}}, 2)})),
            "'p1:2*k9 'p1+2*k8 'p1! '. p0:2*k1 p0!");
}

TEST(Graph, WithoutAGradientACheckpointRunsNothing) {
  EXPECT_EQ(
      events_of(graph({use(0, 1), checkpoint({use(1, 8)}, {{0, 0}}), node(Kind::kStop, {{0, 0}})})),
      "p0?");
}

TEST(Graph, CheckpointsNest) {
  EXPECT_EQ(events_of(graph({checkpoint({use(0, 1), checkpoint({use(0, 2)}, {{0, 0}})})})),
            "''p0:1*k2 ''p0! ''. 'p0:1*k1 'p0! '.");
}

// E. Parameter 0 has its last sender before the checkpoint is visited, parameter 1 after it.
TEST(Graph, AccumulatorsThatAreReadyRunBeforeANestedCall) {
  EXPECT_EQ(events_of(graph({use(1, 1), checkpoint({use(0, 8), use(1, 9, {{0, 0}})}, {{0, 0}}),
                             use(1, 2, {{0, 0}}), use(0, 3, {{0, 0}})})),
            "p0:1*k3 p0! p1:1*k2 'p1:1*k9 'p1! 'p0:1*k8 'p0! '. p1+1*k1 p1!");
}

TEST(Graph, AWholeForwardIsReachedFromOneOfItsOutputs) {
  RankPass pass = graph({use(0, 1), use(1, 2)}, {{0, 0}, {1, 0}});
  pass.forwards.push_back(graph({use(2, 3)}).forwards[0]);
  pass.backwards = {{{0}}};
  EXPECT_EQ(events_of(pass), "p1:1*k2 p1!");
  EXPECT_EQ(events_of(pass, 0, {0, 1, 2, 3}, true), "p1:1*k2 p1! p0?");
}

}  // namespace
}  // namespace lockstep::properties::torch_model
