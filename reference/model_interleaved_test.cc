// The model against CONTRACT.md, forwards and backward calls that interleave (P1): local forwards
// in a synced step, with backward calls before, between and after those of the pass.
#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "reference/test_programs.h"

namespace lockstep::reference {
namespace {

using namespace testing;

// A pass of several forwards, each a use of one parameter; the use in forward f has the key 10 + f.
struct OneUse {
  std::uint32_t parameter = 0;
  bool is_local = false;
};
RankPass forwards(std::initializer_list<OneUse> uses, std::vector<Backward> backwards) {
  RankPass pass;
  for (const OneUse& each : uses) {
    const auto key = static_cast<std::uint32_t>(10 + pass.forwards.size());
    pass.forwards.push_back(graph({use(each.parameter, key)}).forwards[0]);
    pass.forwards.back().local = each.is_local;
  }
  return with_backwards(std::move(pass), std::move(backwards));
}

constexpr bool kLocal = true;

float mean(float a, float b) { return a * 0.5F + b * 0.5F; }

TEST(ModelInterleaved, P1_7ALocalBackwardBeforeThePassIsReducedWithIt) {
  const RankPass before = forwards({{0, kLocal}, {0}}, {{{0}, 1}, {{1}}});
  const RankPass later = forwards({{0}, {0, kLocal}}, {{{1}}, {{0}}});
  const RankPass plain = forwards({{0}}, {});
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic, Mode::kStatic})
    for (const bool comes_first : {true, false}) {
      const RankPass& pass = comes_first ? before : later;
      const Case t = Case(2, mode, 1).step({pass, plain}).run();
      EXPECT_EQ(t.at(0, 0).outcome, Outcome::kSuccess);
      const float sum =
          comes_first ? t.c(0, 0, 0, 10) + t.c(0, 0, 0, 11) : t.c(0, 0, 0, 11) + t.c(0, 0, 0, 10);
      EXPECT_EQ(t.value(0, 0, 0), mean(sum, t.c(0, 1, 0, 10)));
      EXPECT_EQ(t.bits(0, 1, 0), t.bits(0, 0, 0));
      EXPECT_TRUE(t.gradient(0, 0, 0).reduced);
    }
}

TEST(ModelInterleaved, P1_9ALocalBackwardAfterThePassAddsToTheResultOfItsRank) {
  const RankPass after = forwards({{0}, {0, kLocal}}, {{{0}}, {{1}}});
  const RankPass plain = forwards({{0}}, {});
  for (const Mode mode : {Mode::kPlain, Mode::kDynamic, Mode::kStatic}) {
    const Case t = Case(2, mode, 1).step({after, plain}).run();
    const float result = mean(t.c(0, 0, 0, 10), t.c(0, 1, 0, 10));
    EXPECT_EQ(t.value(0, 0, 0), result + t.c(0, 0, 0, 11));
    EXPECT_EQ(t.value(0, 1, 0), result);
    EXPECT_FALSE(t.gradient(0, 0, 0).reduced);
    EXPECT_TRUE(t.gradient(0, 1, 0).reduced);
  }
}

// The second call of the pass takes parameter 1; the first one has taken parameter 0.
TEST(ModelInterleaved, P1ALocalBackwardBetweenTwoOfThePassRaisesWhereAGradientIsTaken) {
  const auto with_local_use_of = [](std::uint32_t parameter) {
    return Case(1, Mode::kPlain, 2)
        .step({forwards({{0}, {1}, {parameter, kLocal}}, {{{0}}, {{2}}, {{1}}})})
        .run();
  };
  const Case taken = with_local_use_of(0);
  EXPECT_EQ(taken.at(0, 0).error, Error::kReadyTwice);
  EXPECT_EQ(taken.at(0, 0).error_call, 1U);
  EXPECT_EQ(taken.at(0, 0).parameters, (Indices{0}));
  const Case free = with_local_use_of(1);
  EXPECT_EQ(free.at(0, 0).outcome, Outcome::kSuccess);
  EXPECT_EQ(free.value(0, 0, 1), free.c(0, 0, 1, 12) + free.c(0, 0, 1, 11));
}

TEST(ModelInterleaved, P1ABackwardOfBothKindsIsOneOfThePass) {
  const RankPass both = forwards({{0}, {1, kLocal}}, {{{0, 1}}});
  const Case plain = Case(1, Mode::kPlain, 2).step({both}).run();
  EXPECT_EQ(plain.at(0, 0).outcome, Outcome::kSuccess);
  EXPECT_EQ(plain.value(0, 0, 1), plain.c(0, 0, 1, 11));
  // The unused search does not see what is reached beside the pass (P6).
  const Case dynamic = Case(1, Mode::kDynamic, 2).step({both}).run();
  EXPECT_EQ(dynamic.at(0, 0).error, Error::kReadyTwice);
  EXPECT_EQ(dynamic.at(0, 0).parameters, (Indices{1}));
}

TEST(ModelInterleaved, P5OutputsOfLocalForwardsKeepNoPassOpen) {
  // A third parameter is missing; what is left leads to it, but is no output of the pass.
  const RankPass pass = forwards({{0}, {1, kLocal}}, {{{0}}, {{1}}});
  const Case t = Case(1, Mode::kPlain, 2).step({pass}).run();
  EXPECT_EQ(t.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(t.at(0, 0).error_call, 0U);
  EXPECT_EQ(t.at(0, 0).parameters, (Indices{1}));
}

TEST(ModelInterleaved, P5APassThatIsOpenAfterALocalBackwardIsFoundByCheckComplete) {
  const RankPass pass = forwards({{0}, {1}, {1, kLocal}}, {{{0}}, {{2}}});
  const Case t = Case(1, Mode::kPlain, 2).step({pass}).run();
  EXPECT_EQ(t.at(0, 0).error, Error::kIncomplete);
  EXPECT_EQ(t.at(0, 0).error_call, 2U);  // the number of calls
}

TEST(ModelInterleaved, P7ASecondBackwardRaisesAlsoAfterALocalOne) {
  const RankPass pass = forwards({{0}, {0, kLocal}}, {{{0}}, {{1}}, {{0}}});
  const Case t = Case(1, Mode::kPlain, 1).step({pass}).run();
  EXPECT_EQ(t.at(0, 0).error, Error::kSecondBackward);
  EXPECT_EQ(t.at(0, 0).error_call, 2U);
}

TEST(ModelInterleaved, P11LocalBackwardsAreNotCounted) {
  const RankPass first = forwards({{0}, {0, kLocal}}, {{{0}}, {{1}}});
  const RankPass second = forwards({{0, kLocal}, {0}}, {{{0}, 1}, {{1}}});
  const Case t = Case(1, Mode::kStatic, 1)
                     .step({first})
                     .step({second}, PassKind::kSynced, ZeroGrad::kUndefine)
                     .run();
  EXPECT_EQ(t.at(1, 0).outcome, Outcome::kSuccess);
  EXPECT_EQ(t.value(1, 0, 0), t.c(1, 0, 0, 10) + t.c(1, 0, 0, 11));
}

TEST(ModelInterleaved, P9UnderNoSyncABackwardMayComeBetweenTwoForwards) {
  RankPass pass = forwards({{0}, {0}}, {{{0}, 1}, {{1}}});
  const Case t = Case(1, Mode::kPlain, 1).step({pass}, PassKind::kNoSync).run();
  EXPECT_EQ(t.program.steps[0].variants[0].backwards[0].forwards, 1U);
  EXPECT_EQ(t.value(0, 0, 0), t.c(0, 0, 0, 10) + t.c(0, 0, 0, 11));
}

}  // namespace
}  // namespace lockstep::reference
