#include "reference/model/engine.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "reference/model/setting.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;

// "p0(2*k7 1*k3)" is a run of parameter 0's hook with two terms, the first one from the node with
// the key 7 and the scalar 2; "p0()" one without a gradient. A "'" marks a hook of a nested call.
std::string hooks_of(const RankPass& pass, std::uint32_t call = 0,
                     const Owners& owners = {0, 1, 2, 3}) {
  std::ostringstream text;
  for (const AutogradHook& hook : run_backward(owners, pass, call)) {
    text << (text.tellp() > 0 ? " " : "") << (hook.is_nested ? "'" : "") << 'p' << hook.parameter
         << '(';
    for (const UseGradient& term : hook.terms)
      text << (&term == hook.terms.data() ? "" : " ") << term.scalar << "*k" << term.use->key;
    text << ')';
  }
  return text.str();
}

TEST(Engine, AUseSendsItsTensorAndRunsTheHook) {
  EXPECT_EQ(hooks_of(graph({use(1, 7)})), "p1(1*k7)");
}

TEST(Engine, TermsComeInDescendingCreationOrderAndTheHookAfterTheLast) {
  EXPECT_EQ(hooks_of(graph({use(0, 1), use(1, 2, {{0, 0}}), use(0, 3, {{0, 0}})})),
            "p1(1*k2) p0(1*k3 1*k1)");
}

TEST(Engine, ANodeAddsWhatItsConsumersPass) {
  // Node 1 uses node 0 twice, node 2 once, and node 0 is an output as well.
  const RankPass pass =
      graph({use(0, 1), node(Kind::kSum, {{0, 0}, {0, 0}}), node(Kind::kSum, {{0, 0}, {1, 0}})},
            {{0, 0}, {2, 0}});
  EXPECT_EQ(hooks_of(pass), "p0(4*k1)");
}

TEST(Engine, ScalesMultiplyAndZeroIsDefined) {
  EXPECT_EQ(hooks_of(graph({use(0, 1), node(Kind::kScale, {{0, 0}}, -2)})), "p0(-2*k1)");
  EXPECT_EQ(hooks_of(graph({use(0, 1), node(Kind::kScale, {{0, 0}}, 0)})), "p0(0*k1)");
  // A gradient that arrives alone is the sum: -1 * 0 is -0, and stays it.
  EXPECT_EQ(hooks_of(graph(
                {use(0, 1), node(Kind::kScale, {{0, 0}}, 0), node(Kind::kScale, {{0, 0}}, -1)})),
            "p0(-0*k1)");
}

TEST(Engine, HooksBehindAStopRunWithoutAGradient) {
  EXPECT_EQ(hooks_of(graph({use(0, 1), use(1, 2, {{0, 0}}), node(Kind::kStop, {{0, 0}}),
                            use(1, 3, {{0, 0}})})),
            "p1(1*k3) p0()");
}

TEST(Engine, NothingIsReachedBehindADetach) {
  EXPECT_EQ(hooks_of(graph({use(0, 1), node(Kind::kDetach, {{0, 0}}), use(1, 3, {{0, 0}})})),
            "p1(1*k3)");
}

TEST(Engine, ASplitPassesItsFirstSlotAndTwiceItsSecond) {
  const std::vector<Node> nodes = {use(0, 1), node(Kind::kSplit, {{0, 0}})};
  EXPECT_EQ(hooks_of(graph(nodes, {{0, 0}})), "p0(1*k1)");
  EXPECT_EQ(hooks_of(graph(nodes, {{0, 3}})), "p0(2*k1)");
  EXPECT_EQ(hooks_of(graph(nodes, {{0, 0}, {0, 1}})), "p0(3*k1)");
  // A stop makes the only slot that is reached undefined.
  EXPECT_EQ(hooks_of(graph({use(0, 1), node(Kind::kSplit, {{0, 0}}), node(Kind::kStop, {{0, 1}})})),
            "p0()");
}

TEST(Engine, InputsCountBackModuloTheNodesBefore) {
  // Node 2's inputs: back 5 is 5 % 2 = 1, so node 0; back 2 is node 1.
  EXPECT_EQ(hooks_of(graph({use(0, 1), use(1, 2), node(Kind::kSum, {{5, 9}})})), "p0(1*k1)");
  EXPECT_EQ(hooks_of(graph({use(0, 1), use(1, 2), node(Kind::kSum, {{2, 0}})})), "p1(1*k2)");
}

TEST(Engine, RootsAreModuloAndCountOnce) {
  RankPass pass = graph({use(0, 1), use(1, 2)}, {{0, 0}, {1, 0}});
  pass.backwards = {{{1, 3, 5}}, {{0}}, {{}}};
  EXPECT_EQ(hooks_of(pass, 0), "p0(1*k1)");
  EXPECT_EQ(hooks_of(pass, 1), "p1(1*k2)");
  EXPECT_EQ(hooks_of(pass, 2), "p1(1*k2) p0(1*k1)");
  EXPECT_EQ(call_count(pass), 3U);
}

TEST(Engine, LaterForwardsComeFirstAndDiscardedOnesNotAtAll) {
  RankPass pass = graph({use(0, 1)});
  pass.forwards.push_back(graph({use(1, 2)}).forwards[0]);
  pass.forwards.push_back(graph({use(0, 3)}).forwards[0]);
  EXPECT_EQ(hooks_of(pass), "p1(1*k2) p0(1*k3 1*k1)");
  pass.forwards[1].discard = true;
  EXPECT_EQ(kept_outputs(pass), 2U);
  EXPECT_EQ(hooks_of(pass), "p0(1*k3 1*k1)");
  pass.backwards = {{{1}}};
  EXPECT_EQ(hooks_of(pass), "p0(1*k3)");
}

TEST(Engine, FrozenParametersGetNothingAndSharedOnesGoToTheirOwner) {
  const RankPass pass = graph({use(0, 1), use(1, 2, {{0, 0}}), use(2, 3, {{0, 0}})});
  EXPECT_EQ(hooks_of(pass, 0, {0, kNotTrained, 0}), "p0(1*k3 1*k1)");
  EXPECT_EQ(hooks_of(graph({use(7, 1)}), 0, {0, 1, 2}), "p1(1*k1)");
}

TEST(Engine, ACheckpointRunsItsBodyAsACallOfItsOwn) {
  EXPECT_EQ(hooks_of(graph({use(0, 1), checkpoint({use(1, 8), use(1, 9, {{0, 0}})}, {{0, 0}}),
                            node(Kind::kScale, {{0, 0}}, 2)})),
            "'p1(2*k9 2*k8) p0(2*k1)");
  EXPECT_EQ(
      hooks_of(graph({use(0, 1), checkpoint({use(1, 8)}, {{0, 0}}), node(Kind::kStop, {{0, 0}})})),
      "p0()");
}

TEST(Engine, CheckpointsNest) {
  EXPECT_EQ(hooks_of(graph({checkpoint({use(0, 1), checkpoint({use(0, 2)}, {{0, 0}})})})),
            "'p0(1*k2) 'p0(1*k1)");
}

// Parameter 0 has its last sender before the checkpoint is visited, parameter 1 after it (E).
TEST(Engine, HooksThatAreReadyRunBeforeANestedCall) {
  EXPECT_EQ(hooks_of(graph({use(1, 1), checkpoint({use(0, 8), use(1, 9, {{0, 0}})}, {{0, 0}}),
                            use(1, 2, {{0, 0}}), use(0, 3, {{0, 0}})})),
            "p0(1*k3) 'p1(1*k9) 'p0(1*k8) p1(1*k2 1*k1)");
}

TEST(Engine, AnotherForwardReachesWhatTheFirstCallLeavesToIt) {
  const Owners owners = {0, 1, 2};
  RankPass pass = graph({use(0, 1), use(1, 2, {{0, 0}})});
  pass.forwards.push_back(graph({use(1, 3), use(2, 4, {{0, 0}})}).forwards[0]);
  pass.backwards = {{{0}}, {{1}}};
  EXPECT_EQ(search_unused(owners, pass, 0).seen_elsewhere, (std::vector<bool>{false, false, true}));
  pass.backwards = {{{0}}};  // the rank lets go of the other output before the call
  EXPECT_EQ(search_unused(owners, pass, 0).seen_elsewhere,
            (std::vector<bool>{false, false, false}));
  pass.keep_outputs = true;
  EXPECT_EQ(search_unused(owners, pass, 0).seen_elsewhere, (std::vector<bool>{false, false, true}));
}

TEST(Engine, ACallIsOfThePassIfARootIsAnOutputOfASyncedForward) {
  const Owners owners = {0, 1, 2};
  RankPass pass = graph({use(0, 1)});
  pass.forwards.push_back(graph({use(0, 2), use(1, 3)}, {{0, 0}, {1, 0}}).forwards[0]);
  pass.forwards.push_back(graph({use(1, 4), use(2, 5, {{0, 0}})}).forwards[0]);
  pass.forwards[0].local = pass.forwards[2].local = true;
  pass.backwards = {{{0}}, {{1, 3}}, {{0, 3}}};
  EXPECT_FALSE(is_synced_call(pass, 0));
  EXPECT_TRUE(is_synced_call(pass, 1));
  EXPECT_FALSE(is_synced_call(pass, 2));
  EXPECT_EQ(first_synced_call(pass), 1U);
  // Root 1 leads to parameter 1; root 3, which is local, to parameters 1 and 2. The unused search
  // goes through the other output of the synced forward, too, and so sees parameter 0.
  EXPECT_EQ(search_unused(owners, pass, 1).reached_beside, (std::vector<bool>{false, false, true}));
  pass.backwards = {{{1}}, {{3}}};
  EXPECT_EQ(search_unused(owners, pass, 0).reached_beside,
            (std::vector<bool>{false, false, false}));
  // An output of a local forward keeps no pass open, and is no other forward of it.
  EXPECT_EQ(search_unused(owners, pass, 0).seen_elsewhere,
            (std::vector<bool>{false, false, false}));
  EXPECT_TRUE(live_output_reaches(owners, pass, 0, {0}));
  EXPECT_FALSE(live_output_reaches(owners, pass, 0, {2}));
}

// Output 0 leads to parameter 1, output 1 to parameter 0 (P5).
TEST(Engine, AWayIsLeftByOutputsThatLiveAreNotUsedUpAndLeadThere) {
  const Owners owners = {0, 1, kNotTrained};
  RankPass pass = graph({use(0, 1), use(1, 2)}, {{0, 0}, {1, 0}});
  pass.backwards = {{{0}}, {{1}}};
  EXPECT_TRUE(live_output_reaches(owners, pass, 0, {0}));
  EXPECT_TRUE(live_output_reaches(owners, pass, 0, {1}));   // the call retains the graph
  EXPECT_FALSE(live_output_reaches(owners, pass, 1, {1}));  // the rank let go of it before
  pass.keep_outputs = true;
  EXPECT_TRUE(live_output_reaches(owners, pass, 1, {1}));
  EXPECT_FALSE(live_output_reaches(owners, pass, 1, {0}));  // used up
  pass.backwards = {};
  EXPECT_FALSE(live_output_reaches(owners, pass, 0, {0, 1}));
}

TEST(Engine, AWayGoesByEdgesAndMayHideInACheckpoint) {
  const auto leads = [](std::vector<Node> nodes, std::uint32_t parameter) {
    RankPass pass = graph(std::move(nodes), {{0, 0}, {1, 0}});
    pass.backwards = {{{1}}};
    pass.keep_outputs = true;
    return live_output_reaches({0, 1, kNotTrained}, pass, 0, {parameter});
  };
  EXPECT_TRUE(leads({use(0, 1), node(Kind::kStop, {{0, 0}})}, 0));
  EXPECT_FALSE(leads({use(0, 1), node(Kind::kDetach, {{0, 0}})}, 0));
  EXPECT_FALSE(leads({use(0, 1), use(2, 2)}, 0));
  EXPECT_FALSE(leads({use(0, 1), use(1, 2, {{0, 0}})}, 2));  // frozen
  EXPECT_TRUE(leads({use(0, 1), checkpoint({use(0, 2)})}, 1));
  RankPass constant = graph({use(0, 1)});
  constant.forwards[0].constants = 1;
  constant.keep_outputs = true;
  EXPECT_FALSE(live_output_reaches({0, 1, kNotTrained}, constant, 0, {0, 1}));
}

}  // namespace
}  // namespace lockstep::reference
