#include "reducer/comm/gloo/roll_call.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Standing waiting_for(int peer) {
  Standing standing;
  standing.has_operation = 1;
  standing.waits_for = peer;
  standing.seal();
  return standing;
}

TEST(GlooRollCall, TheChainEndsAtTheRankThatHasNotEntered) {
  // 0 waits for 1, 1 for 2, and 2 for 3, which has nothing in flight.
  const Standings standings = {waiting_for(1), waiting_for(2), waiting_for(3), Standing()};
  for (int rank = 0; rank < 3; ++rank) {
    const ChainEnd end = end_of_chain(standings, rank);
    EXPECT_EQ(end.rank, 3);
    EXPECT_TRUE(end.has_answered);
    EXPECT_FALSE(end.has_operation);
  }
}

TEST(GlooRollCall, TheChainEndsAtTheRankThatDoesNotAnswer) {
  const Standings standings = {waiting_for(1), waiting_for(2), std::nullopt, waiting_for(0)};
  const ChainEnd end = end_of_chain(standings, 3);
  EXPECT_EQ(end.rank, 2);
  EXPECT_FALSE(end.has_answered);
}

TEST(GlooRollCall, ARankThatIsBusyAndWaitsForNobodyIsTheEnd) {
  const ChainEnd end = end_of_chain({waiting_for(1), waiting_for(kNone)}, 0);
  EXPECT_EQ(end.rank, 1);
  EXPECT_TRUE(end.has_operation);
}

TEST(GlooRollCall, ACircleHasNoEnd) {
  const ChainEnd end = end_of_chain({waiting_for(1), waiting_for(2), waiting_for(0)}, 0);
  EXPECT_EQ(end.rank, kNone);
}

TEST(GlooRollCall, OnlyARankThatNoneOfSeveralAnswersIsAlone) {
  EXPECT_TRUE(end_of_chain({std::nullopt, waiting_for(0), std::nullopt}, 1).is_alone);
  EXPECT_FALSE(end_of_chain({std::nullopt, waiting_for(0), waiting_for(1)}, 1).is_alone);
  EXPECT_FALSE(end_of_chain({std::nullopt, waiting_for(0)}, 1).is_alone) << "the peer may be dead";
  EXPECT_FALSE(end_of_chain({waiting_for(1), waiting_for(0), std::nullopt}, 1).is_alone);
}

TEST(GlooRollCall, APeerThatIsNoRankIsNotFollowed) {
  for (const int peer : {7, -5, 1 << 30}) {
    const ChainEnd end = end_of_chain({waiting_for(1), waiting_for(peer)}, 0);
    EXPECT_EQ(end.rank, 1);
  }
}

TEST(GlooRollCall, AChangedStandingIsNotSealed) {
  Standing standing = waiting_for(2);
  EXPECT_TRUE(standing.is_sealed());
  standing.waits_for = 1;
  EXPECT_FALSE(standing.is_sealed());
  EXPECT_FALSE(Standing().is_sealed());
}

}  // namespace
}  // namespace lockstep
