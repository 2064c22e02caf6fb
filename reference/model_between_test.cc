// The model against CONTRACT.md, what a rank does between the calls of a step (P1, P5, P10), and
// backwards of outputs of the step before (P1).
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "reference/model/engine.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;

constexpr Mode kModes[] = {Mode::kPlain, Mode::kDynamic, Mode::kStatic};

// Forward f is a use of parameter parameters[f]; the use has the key 10 + f.
RankPass forwards(const Indices& parameters, std::vector<Backward> backwards,
                  bool is_kept = false) {
  RankPass pass;
  for (const std::uint32_t parameter : parameters) {
    const auto key = static_cast<std::uint32_t>(10 + pass.forwards.size());
    pass.forwards.push_back(graph({use(parameter, key)}).forwards[0]);
  }
  return with_backwards(std::move(pass), std::move(backwards), is_kept);
}

Backward call(Indices roots) { return {std::move(roots)}; }

Backward zeroing(Indices roots) {
  Backward made = call(std::move(roots));
  made.zeroes = true;
  return made;
}

Backward dropping(Indices roots) {
  Backward made = call(std::move(roots));
  made.drops = true;
  return made;
}

Backward of_held(Indices roots = {}) {
  Backward made = call(std::move(roots));
  made.held = true;
  return made;
}

// A step under no_sync, whose second forward, a use of parameter 0 with the key 11, is held.
RankPass holding() {
  RankPass pass = forwards({0, 0}, {call({0})}, true);
  pass.hold_outputs = true;
  return pass;
}

TEST(ModelBetween, P10ZeroGradBetweenAForwardAndItsBackwardForgetsWhatCameBefore) {
  const RankPass local = forwards({0}, {});
  for (const Mode mode : kModes)
    for (const ZeroGrad way : {ZeroGrad::kUndefine, ZeroGrad::kFill}) {
      const Case t = Case(1, mode, 1)
                         .step({local}, PassKind::kNoSync)
                         .step({forwards({0}, {zeroing({0})})}, PassKind::kSynced, way)
                         .run();
      EXPECT_EQ(t.value(1, 0, 0), t.c(1, 0, 0, 10));
    }
}

// The gradient is not used any more, so that in dynamic mode it is left alone.
TEST(ModelBetween, P10ZeroGradAfterTheForwardClearsUse) {
  const Case t = Case(1, Mode::kDynamic, 2)
                     .step({uses({0, 1})}, PassKind::kNoSync)
                     .step({forwards({0}, {zeroing({0})})}, PassKind::kSynced, ZeroGrad::kFill)
                     .run();
  EXPECT_EQ(t.value(1, 0, 1), 0.0F);
  EXPECT_FALSE(t.gradient(1, 0, 1).reduced);
  EXPECT_TRUE(t.gradient(1, 0, 0).reduced);
}

TEST(ModelBetween, P10ZeroGradBetweenTwoLocalBackwardsKeepsTheSecond) {
  const Case t = Case(1, Mode::kPlain, 1)
                     .step({forwards({0, 0}, {call({0}), zeroing({1})})}, PassKind::kNoSync,
                           ZeroGrad::kUndefine)
                     .run();
  EXPECT_EQ(t.value(0, 0, 0), t.c(0, 0, 0, 11));
}

TEST(ModelBetween, P10OnlyCallsBeforeThePassMayZero) {
  const auto zeroes = [](RankPass pass, ZeroGrad way) {
    Case t(1, Mode::kPlain, 2);
    t.step({std::move(pass)}, PassKind::kSynced, way).run();
    const std::vector<Backward>& calls = t.program.steps[0].variants[0].backwards;
    return std::pair(calls[0].zeroes, calls[1].zeroes);
  };
  const RankPass both = forwards({0, 1}, {zeroing({0}), zeroing({1})});
  EXPECT_EQ(zeroes(both, ZeroGrad::kUndefine), std::pair(true, false));
  EXPECT_EQ(zeroes(both, ZeroGrad::kFill), std::pair(true, false));
  for (const ZeroGrad way : {ZeroGrad::kKeep, ZeroGrad::kReplace, ZeroGrad::kSwap})
    EXPECT_EQ(zeroes(both, way), std::pair(false, false));
  EXPECT_EQ(zeroes(discarded(both), ZeroGrad::kFill), std::pair(false, false));
}

// Parameter 1 can come from the second forward alone.
TEST(ModelBetween, P5ADroppedForwardKeepsNoPassOpen) {
  const auto run = [](Backward first) {
    return Case(1, Mode::kPlain, 2).step({forwards({0, 1}, {std::move(first)}, true)}).run();
  };
  const Case kept = run(call({0}));
  EXPECT_EQ(kept.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(kept.at(0, 0).error_call, 1U);  // check_complete()
  const Case dropped = run(dropping({0}));
  EXPECT_EQ(dropped.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(dropped.at(0, 0).error_call, 0U);
  EXPECT_EQ(dropped.at(0, 0).parameters, (Indices{1}));
}

TEST(ModelBetween, ACallDropsTheForwardsThatNoLaterCallStartsFrom) {
  const RankPass pass = forwards({0, 0, 0}, {call({0}), dropping({1}), call({1})}, true);
  EXPECT_EQ(dropped_outputs(pass, 0), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(dropped_outputs(pass, 1), (std::vector<bool>{true, false, true}));
  RankPass early = forwards({0, 0}, {dropping({0}), call({0})}, true);
  EXPECT_EQ(dropped_outputs(early, 0), (std::vector<bool>{false, true}));
  early.backwards[0].forwards = 1;  // the second forward has not run
  EXPECT_EQ(dropped_outputs(early, 1), (std::vector<bool>{false, false}));
}

// A checkpoint of another forward, seen by the unused search of dynamic mode as long as it lives.
TEST(ModelBetween, P6WhatIsDroppedIsNotSeenByTheUnusedSearch) {
  const auto run = [](bool drops) {
    RankPass pass = forwards({1, 0}, {drops ? dropping({0}) : call({0})}, true);
    pass.forwards[0] = graph({checkpoint({use(0, 10)})}).forwards[0];
    return Case(1, Mode::kDynamic, 1).step({pass}).run();
  };
  EXPECT_EQ(run(false).at(0, 0).error, Error::kNone);
  EXPECT_EQ(run(true).at(0, 0).error, Error::kReadyTwice);
}

TEST(ModelBetween, S3AnOptimizerStepChangesTheValuesOnceMore) {
  const auto state = [](bool updates) {
    RankPass pass = forwards({0}, {call({0})});
    pass.backwards[0].updates = updates;
    Case t(1, Mode::kPlain, 1);
    t.program.options.with_values = true;
    return t.step({pass}).run().at(0, 0).state;
  };
  EXPECT_NE(state(true), state(false));
}

TEST(ModelBetween, P1ABackwardOfTheStepBeforeAddsItsGradientLocally) {
  for (const Mode mode : kModes) {
    const Case t = Case(1, mode, 1)
                       .step({holding()}, PassKind::kNoSync)
                       .step({forwards({0}, {of_held(), call({0})})}, PassKind::kSynced)
                       .run();
    EXPECT_EQ(t.value(1, 0, 0), t.c(0, 0, 0, 10) + t.c(0, 0, 0, 11) + t.c(1, 0, 0, 10));
    EXPECT_TRUE(t.gradient(1, 0, 0).reduced);
    const Case after = Case(1, mode, 1)
                           .step({holding()}, PassKind::kNoSync)
                           .step({forwards({0}, {call({0}), of_held()})}, PassKind::kSynced)
                           .run();
    EXPECT_FALSE(after.gradient(1, 0, 0).reduced);
    EXPECT_EQ(after.value(1, 0, 0), t.c(0, 0, 0, 10) + after.c(1, 0, 0, 10) + after.c(0, 0, 0, 11));
  }
}

TEST(ModelBetween, NothingIsHeldAfterARecoveryOrPastTheNextStep) {
  const auto run = [](std::vector<Recovery> recoveries, PassKind between) {
    Case t = Case(1, Mode::kPlain, 1).step({holding()}, PassKind::kNoSync);
    if (between != PassKind::kSynced) t.step({uses({0})}, between, ZeroGrad::kKeep);
    return t.step({forwards({0}, {of_held(), call({0})})}, PassKind::kSynced, ZeroGrad::kUndefine)
        .run(recoveries);
  };
  const Case kept = run({}, PassKind::kSynced);
  EXPECT_EQ(kept.value(1, 0, 0), kept.c(0, 0, 0, 11) + kept.c(1, 0, 0, 10));
  const Case recovered = run({{1, {0}}}, PassKind::kSynced);
  EXPECT_EQ(recovered.value(1, 0, 0), recovered.c(1, 0, 0, 10));
  const Case later = run({}, PassKind::kNoGrad);
  EXPECT_EQ(later.value(2, 0, 0), later.c(2, 0, 0, 10));
}

TEST(ModelBetween, HeldAreTheOutputsOfLocalForwardsThatNoBackwardHasUsedUp) {
  RankPass pass = forwards({0, 0, 0}, {call({0}), call({2})}, true);
  pass.hold_outputs = true;
  EXPECT_EQ(held_outputs(PassKind::kNoSync, pass), (Indices{0, 1}));  // the first call retains
  EXPECT_EQ(held_outputs(PassKind::kSynced, pass), Indices{});
  pass.forwards[1].local = true;
  EXPECT_EQ(held_outputs(PassKind::kSynced, pass), (Indices{1}));
  EXPECT_EQ(held_outputs(PassKind::kSynced, pass, true), (Indices{0}));
  EXPECT_EQ(held_outputs(PassKind::kNoSync, pass, true), Indices{});
  pass.backwards[1].drops = true;
  EXPECT_EQ(held_outputs(PassKind::kSynced, pass), Indices{});
  pass.hold_outputs = false;
  EXPECT_EQ(held_outputs(PassKind::kNoSync, pass), Indices{});
}

// A synced step, whose second forward leads to a parameter that is ready, so that its pass is
// complete although the rank holds the output.
RankPass holding_of_pass() {
  RankPass pass = forwards({0, 0}, {call({0})}, true);
  pass.hold_outputs = true;
  return pass;
}

Backward of_complete_pass() {
  Backward made = of_held();
  made.held_synced = true;
  return made;
}

TEST(ModelBetween, P7ABackwardOfTheCompletePassOfTheStepBeforeIsRefused) {
  for (const Mode mode : kModes) {
    const Case first = Case(2, mode, 1)
                           .step({holding_of_pass()})
                           .step({forwards({0}, {of_complete_pass(), call({0})})})
                           .run();
    for (const std::uint32_t rank : {0U, 1U}) {
      EXPECT_EQ(first.at(0, rank).outcome, Outcome::kSuccess);
      EXPECT_EQ(first.at(1, rank).error, Error::kSecondBackward);
      EXPECT_EQ(first.at(1, rank).error_call, 0U);
    }
    const Case last = Case(2, mode, 1)
                          .step({holding_of_pass()})
                          .step({forwards({0}, {call({0}), of_complete_pass()})})
                          .run();
    EXPECT_EQ(last.at(1, 0).error, Error::kSecondBackward);
    EXPECT_EQ(last.at(1, 0).error_call, 1U);
  }
}

// The other rank cannot end its pass without the one whose call was refused before it began its
// own, but it can if that call came after it.
TEST(ModelBetween, P7ARefusalBeforeThePassKeepsTheOthersFromEndingIt) {
  for (const Mode mode : kModes) {
    const auto run = [mode](std::vector<Backward> calls) {
      return Case(2, mode, 1)
          .step({holding_of_pass(), forwards({0}, {call({0})})})
          .step({forwards({0}, std::move(calls)), forwards({0}, {call({0})})})
          .run();
    };
    const Case before = run({of_complete_pass(), call({0})});
    EXPECT_EQ(before.at(1, 0).outcome, Outcome::kOwnError);
    EXPECT_EQ(before.at(1, 1).outcome, Outcome::kPeerError);
    const Case after = run({call({0}), of_complete_pass()});
    EXPECT_EQ(after.at(1, 0).outcome, Outcome::kOwnError);
    EXPECT_EQ(after.at(1, 1).outcome, Outcome::kSuccessOrPeerError);
  }
}

TEST(ModelBetween, ABackwardOfAPassThatTheRankDoesNotHoldIsLeftOut) {
  const Case local = Case(1, Mode::kPlain, 1)
                         .step({holding()}, PassKind::kNoSync)
                         .step({forwards({0}, {of_complete_pass(), call({0})})})
                         .run();
  EXPECT_EQ(local.at(1, 0).outcome, Outcome::kSuccess);
  EXPECT_EQ(local.value(1, 0, 0), local.c(0, 0, 0, 10) + local.c(1, 0, 0, 10));
  Case in_no_sync(1, Mode::kPlain, 1);
  in_no_sync.step({holding_of_pass()})
      .step({forwards({0}, {of_complete_pass(), call({0})})}, PassKind::kNoSync)
      .run();
  EXPECT_FALSE(in_no_sync.program.steps[1].variants[0].backwards[0].held_synced);
}

TEST(ModelBetween, ASyncedStepKeepsACallOfItsOwnPass) {
  Case t(1, Mode::kPlain, 1);
  t.step({forwards({0}, {of_held(), of_held()})}).run();
  EXPECT_FALSE(t.program.steps[0].variants[0].backwards[0].held);
  EXPECT_EQ(t.at(0, 0).error, Error::kSecondBackward);
}

}  // namespace
}  // namespace lockstep::reference
