#include "properties/case/calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/test_programs.h"

namespace lockstep::properties {
namespace {

using reference::Backward;
using reference::PassKind;
using reference::RankPass;

RankPass forwards(std::size_t count, std::vector<Backward> backwards) {
  RankPass pass = reference::testing::graph({reference::testing::use(0, 1)});
  pass.forwards.resize(count, pass.forwards[0]);
  pass.backwards = std::move(backwards);
  return pass;
}

std::string text_of(const RankPass& pass, PassKind kind = PassKind::kSynced,
                    const reference::Replicated& options = {}) {
  static constexpr const char* kNames[] = {"zero", "forward", "sync",     "evaluate",
                                           "step", "drop",    "backward", "check"};
  std::string text;
  for (const Call& call : calls_of(options, kind, pass))
    text += std::string(kNames[static_cast<int>(call.kind)]) + std::to_string(call.number) + " ";
  return text;
}

TEST(Calls, BackwardsComeAfterAllForwardsOrAsSoonAsTheirsHaveRun) {
  EXPECT_EQ(text_of(forwards(1, {})), "zero0 forward0 backward0 ");
  RankPass pass = forwards(2, {{{0}}, {{1}}});
  EXPECT_EQ(text_of(pass), "zero0 forward0 forward1 backward0 backward1 ");
  pass.backwards[0].forwards = 1;
  EXPECT_EQ(text_of(pass), "zero0 forward0 backward0 forward1 backward1 ");
}

TEST(Calls, WhatARankDoesBeforeABackwardHasItsNumber) {
  RankPass pass = forwards(2, {{{0}}, {{1}}});
  Backward& second = pass.backwards[1];
  second.evaluates = second.updates = second.drops = true;
  EXPECT_EQ(text_of(pass), "zero0 forward0 forward1 backward0 evaluate1 step1 drop1 backward1 ");
}

TEST(Calls, AFailureBelongsToTheBackwardThatTheCallComesBefore) {
  RankPass pass = forwards(1, {{{0}}});
  pass.backwards[0].zeroes = true;
  pass.keep_outputs = true;
  std::vector<std::int32_t> places;
  for (const Call& call : calls_of({}, PassKind::kSynced, pass)) places.push_back(call.place);
  EXPECT_EQ(places, (std::vector<std::int32_t>{-1, 0, 0, 1}));
}

TEST(Calls, GradientsAreZeroedOnceEarlyOrWhereTheCallsSaySo) {
  RankPass pass = forwards(2, {{{0}}, {{1}}});
  pass.backwards[1].zeroes = true;
  EXPECT_EQ(text_of(pass, PassKind::kNoSync), "forward0 forward1 backward0 zero1 backward1 ");
}

TEST(Calls, ManualSyncComesBeforeTheBackwards) {
  reference::Replicated options;
  options.manual_sync = true;
  EXPECT_EQ(text_of(forwards(1, {}), PassKind::kSynced, options),
            "zero0 forward0 sync0 backward0 ");
  EXPECT_EQ(text_of(forwards(1, {}), PassKind::kNoSync, options), "zero0 forward0 backward0 ");
}

TEST(Calls, WithoutKeptOutputsThereIsNoBackward) {
  EXPECT_EQ(text_of(reference::testing::discarded(forwards(1, {}))), "zero0 forward0 ");
  EXPECT_EQ(text_of(forwards(1, {}), PassKind::kNoGrad), "zero0 forward0 ");
  RankPass skipped = forwards(1, {});
  skipped.skip = true;
  EXPECT_EQ(text_of(skipped, PassKind::kNoGrad), "");
}

TEST(Calls, WhetherThePassIsCompleteIsAskedWhereOutputsAreKeptOrTheLastCallIsLocal) {
  RankPass pass = forwards(2, {{{0}}, {{1}}});
  pass.keep_outputs = true;
  EXPECT_EQ(text_of(pass), "zero0 forward0 forward1 backward0 backward1 check2 ");
  pass.keep_outputs = false;
  pass.forwards[1].local = true;
  EXPECT_EQ(text_of(pass), "zero0 forward0 forward1 backward0 backward1 check2 ");
  RankPass later = forwards(1, {{{0}}, {}});
  later.backwards[1].held = true;
  EXPECT_EQ(text_of(later), "zero0 forward0 backward0 backward1 check2 ");
}

}  // namespace
}  // namespace lockstep::properties
