// Tests the model against CONTRACT.md for checkpoints around the whole model (P1, P4, P12).
#include <gtest/gtest.h>

#include <utility>

#include "reference/model.h"
#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;

RankPass recomputed(Recompute recompute) {
  RankPass pass = uses({0, 1});
  pass.recompute = recompute;
  return pass;
}

Case two_steps(Mode mode, Recompute recompute, Launch launch = Launch::kOverlapped) {
  Case t(2, mode, 2);
  t.program.options.launch = launch;
  t.step({recomputed(recompute), uses({0, 1})}).step({uses({0, 1})});
  t.run();
  return t;
}

// The pass begins with the nested backward, and ends with the outermost one (P4). A forward that is
// refused runs nothing (P1).
TEST(ModelRecompute, P4ACheckpointAroundTheWholeModelChangesNoGradient) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic, Mode::kStatic}) {
    const Case plain = two_steps(mode, Recompute::kNone);
    for (const Recompute recompute : {Recompute::kOnce, Recompute::kTwice}) {
      const Case t = two_steps(mode, recompute);
      EXPECT_EQ(t.program.steps[0].variants[0].recompute, recompute);
      EXPECT_EQ(t.expectation.bits, plain.expectation.bits);
      EXPECT_FALSE(t.expectation.steps[0].any_error);
      EXPECT_EQ(t.expectation.steps[0].collectives.size(),
                plain.expectation.steps[0].collectives.size());
    }
  }
}

TEST(ModelRecompute, P12ARefusalThatANodePassesOnFailsTheBackward) {
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic, Mode::kStatic}) {
    const Case t = two_steps(mode, Recompute::kTwiceFails);
    EXPECT_EQ(t.at(0, 0).outcome, Outcome::kOwnError);
    EXPECT_EQ(t.at(0, 0).error, Error::kForwardInBackward);
    EXPECT_EQ(t.at(0, 0).error_call, 0U);
    // The first static pass would reduce when its backward ends, so rank 1 waits in vain. In the
    // other modes the nested backward has launched all buckets.
    EXPECT_EQ(t.at(0, 1).outcome,
              mode == Mode::kStatic ? Outcome::kPeerError : Outcome::kSuccessOrPeerError);
  }
}

TEST(ModelRecompute, P14AfterBackwardAFailedBackwardReducesNothing) {
  const Case t = two_steps(Mode::kPlain, Recompute::kTwiceFails, Launch::kAfterBackward);
  EXPECT_EQ(t.at(0, 0).error, Error::kForwardInBackward);
  EXPECT_EQ(t.at(0, 1).outcome, Outcome::kPeerError);
}

// An error of a hook of the nested backward is raised before the second node runs. An error that
// would be found at the end comes after the refusal.
TEST(ModelRecompute, P1TheFirstErrorOfTheBackwardIsRaised) {
  Case missing(1, Mode::kPlain, 3);
  missing.step({recomputed(Recompute::kTwiceFails)}).run();
  EXPECT_EQ(missing.at(0, 0).error, Error::kForwardInBackward);
  Case requiring(1, Mode::kPlain, 2);
  RankPass pass = recomputed(Recompute::kTwiceFails);
  for (Node& node : pass.forwards[0].nodes) node.requires_grad = true;
  requiring.step({pass}).run();
  EXPECT_EQ(requiring.at(0, 0).error, Error::kRequiresGrad);
}

// If no hook runs, gradients of unused parameters are copied to their buckets, and examined, when
// the backward ends.
TEST(ModelRecompute, P16AnUnusedGradientIsExaminedWithTheFirstHookOrAtTheEnd) {
  RankPass local = uses({0});
  local.forwards[0].nodes.back().requires_grad = true;
  for (const bool has_hook : {false, true}) {
    Case t(1, Mode::kDynamic, 2);
    RankPass refused = has_hook ? uses({1}) : nothing();
    refused.recompute = Recompute::kTwiceFails;
    t.step({local}, PassKind::kNoSync).step({refused}).run();
    EXPECT_EQ(t.at(1, 0).error, has_hook ? Error::kRequiresGrad : Error::kForwardInBackward);
  }
}

TEST(ModelRecompute, OnlyAPassOfOneForwardAndOneBackwardRunsInACheckpoint) {
  const auto stays = [](const auto& change) {
    Program program;
    program.steps.resize(1);
    program.steps[0].variants = {recomputed(Recompute::kOnce)};
    change(program, program.steps[0].variants[0]);
    normalize(program);
    return program.steps[0].variants[0].recompute != Recompute::kNone;
  };
  EXPECT_TRUE(stays([](Program&, RankPass&) {}));
  EXPECT_FALSE(stays([](Program& p, RankPass&) { p.options.manual_sync = true; }));
  EXPECT_FALSE(stays([](Program& p, RankPass&) { p.steps[0].kind = PassKind::kNoSync; }));
  EXPECT_FALSE(stays([](Program&, RankPass& pass) { pass.keep_outputs = true; }));
  EXPECT_FALSE(stays([](Program&, RankPass& pass) { pass.backwards.resize(2); }));
  EXPECT_FALSE(stays([](Program&, RankPass& pass) { pass.forwards.resize(2); }));
  EXPECT_FALSE(stays([](Program& p, RankPass&) {
    p.options.join = Join::kByAll;
    p.options.early_termination = true;
  }));
}

}  // namespace
}  // namespace lockstep::reference
