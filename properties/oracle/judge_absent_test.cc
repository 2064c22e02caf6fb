// The judge sees what is wrong with a pass in which one rank is absent (P8).
#include "properties/oracle/test_judged.h"

namespace lockstep::properties {
namespace {

using JudgeOfAbsentRanks = JudgeTest;

TEST_F(JudgeOfAbsentRanks, P8TheOthersHaveToNameAnAbsentRankInTheSameStep) {
  std::vector<reference::RankPass>& variants = case_.program.steps[0].variants;
  variants.push_back(variants[0]);
  variants[1].absent = true;
  case_.program.steps.push_back(case_.program.steps[0]);
  case_.program.steps[1].variants.resize(1);
  observe();
  EXPECT_TRUE(verdict().ok()) << verdict().message;
  const Observation right = observation_;
  EXPECT_EQ(step(0, 0).status.code(), Code::kTimeout);
  EXPECT_TRUE(step(1, 0).status.ok());
  step(0, 0).status.failure().suspect = 0;
  expect(Failing::kWrongError, "error");
  observation_ = right;
  step(0, 0).status = Status(Code::kIncomplete, "what the test makes up");
  expect(Failing::kWrongError, "error");
  observation_ = right;
  step(0, 0).status = Status();
  expect(Failing::kWrongError, "error");
  observation_ = right;
  step(1, 0).collectives.push_back(step(1, 1).collectives.at(0));
  expect(Failing::kWrongBits, "trace");
  observation_ = right;
  observation_.ranks[1].bits[step(1, 0).gradients[0].offset] ^= 1;
  expect(Failing::kWrongBits, "bits");
}

}  // namespace
}  // namespace lockstep::properties
