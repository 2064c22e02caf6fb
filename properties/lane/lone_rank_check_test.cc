// Claim: what LoneRankCheck, JoinStateCheck, AgreementCheck and LayoutCheck ask of a reducer holds,
// whatever chance draws, also on real threads. Planted bugs show that they see where it does not:
// U160 to U165, U166, U168 and U169.
#include "properties/lane/lone_rank_check.h"

#include <gtest/gtest.h>

#include "properties/lane/agreement_check.h"
#include "properties/lane/join_state_check.h"
#include "properties/lane/layout_check.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kKeys = 2000;

TEST(LoneRankCheck, P12NothingIsWrongAfterAMishap) {
  for (std::uint32_t key = 0; key < kKeys; ++key)
    ASSERT_EQ(wrongly_trained(key), "") << "key " << key;
}

TEST(JoinStateCheck, S2RanksDecideAsAllAnnounce) {
  for (std::uint32_t key = 0; key < kKeys; ++key)
    ASSERT_EQ(wrongly_decided(key), "") << "key " << key;
}

TEST(AgreementCheck, B4WhatDiffersIsToldApart) {
  for (std::uint32_t key = 0; key < kKeys; ++key)
    ASSERT_EQ(wrongly_told_apart(key), "") << "key " << key;
}

TEST(LayoutCheck, B5WrongLayoutsAreRefused) {
  for (std::uint32_t key = 0; key < kKeys; ++key)
    ASSERT_EQ(wrongly_laid_out(key), "") << "key " << key;
}

}  // namespace
}  // namespace lockstep
