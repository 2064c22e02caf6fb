// Claim: what the component lone-rank asks of a reducer holds on real threads, too;
// components_test.cc asks it in the simulator.
#include <gtest/gtest.h>

#include "properties/components/checks.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kSituations = 4000;

TEST(LoneRank, P12NothingIsWrongAfterAMishapOnRealThreads) {
  for (std::uint64_t index = 0; index < kSituations; ++index) {
    Choices choices(1, index, "lone-rank");
    ASSERT_EQ(check_lone_rank(choices), "") << "situation " << index;
  }
}

}  // namespace
}  // namespace lockstep
