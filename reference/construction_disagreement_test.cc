#include "reference/construction_disagreement.h"

#include <gtest/gtest.h>

#include "reference/program.h"

namespace lockstep::reference {
namespace {

using By = Refusal::By;

Program two_matrices(DisagreementKind kind) {
  Program program;
  program.world = 3;
  Parameter matrix;
  matrix.sizes = {2, 3};
  program.parameters = {matrix, matrix};
  program.disagreement = {kind, 4, false, 3};
  normalize(program);
  return program;
}

TEST(ConstructionDisagreement, NormalizingTakesAwayWhatAProgramCannotHave) {
  EXPECT_EQ(two_matrices(disagreement_named("strides")).disagreement.rank, 1u);
  EXPECT_EQ(two_matrices(disagreement_named("verify")).disagreement.kind, DisagreementKind::kNone);
  Program program = two_matrices(disagreement_named("strides"));
  for (Parameter& parameter : program.parameters) parameter.sizes = {6};
  normalize(program);
  EXPECT_EQ(program.disagreement.kind, DisagreementKind::kNone);
  EXPECT_EQ(program.disagreement.pick, 0u);
}

TEST(ConstructionDisagreement, ARankAloneDiffersFromNobodyButMayRefuse) {
  Program program = two_matrices(disagreement_named("views"));
  program.world = 1;
  normalize(program);
  EXPECT_EQ(program.disagreement.kind, DisagreementKind::kNone);
  program.disagreement.kind = disagreement_named("no_trace");
  normalize(program);
  EXPECT_EQ(program.disagreement.kind, disagreement_named("no_trace"));
}

TEST(ConstructionDisagreement, TheRankIsOneOfThoseThatAreLeft) {
  const Program program = two_matrices(disagreement_named("views"));
  EXPECT_EQ(refusal_of(program, {0, 1, 2})->rank, 1u);
  EXPECT_EQ(refusal_of(program, {0, 2})->rank, 2u);
  EXPECT_FALSE(refusal_of(program, {2}).has_value());
  EXPECT_FALSE(refusal_of(program, {}).has_value());
}

TEST(ConstructionDisagreement, B4TheAgreementTheRankOrEveryRankRefuses) {
  const std::vector<std::uint32_t> all{0, 1, 2};
  EXPECT_EQ(refusal_of(two_matrices(disagreement_named("swapped")), all)->by, By::kAgreement);
  EXPECT_EQ(refusal_of(two_matrices(disagreement_named("unknown_name")), all)->by, By::kOneRank);
  EXPECT_EQ(refusal_of(two_matrices(disagreement_named("layout")), all)->by, By::kEveryRank);
  Program pinned = two_matrices(disagreement_named("no_limits"));
  EXPECT_EQ(refusal_of(pinned, all)->by, By::kOneRank);
  pinned.options.pinned = 1;  // the limits are of no use, but they are compared
  EXPECT_EQ(refusal_of(pinned, all)->by, By::kAgreement);
}

TEST(ConstructionDisagreement, ChangesAParameterThatIsListedOnceAndHasNoReplica) {
  Program program = two_matrices(disagreement_named("dtype"));
  EXPECT_EQ(changed_parameter(program), 1u);
  Parameter again = program.parameters[1];
  again.shared_with = 1;
  program.parameters.push_back(again);
  normalize(program);
  EXPECT_EQ(changeable_parameters(program), std::vector<std::uint32_t>{0});
  EXPECT_EQ(changed_parameter(program), 0u);
  program.parameters[0].ignored = true;
  normalize(program);
  EXPECT_EQ(program.disagreement.kind, DisagreementKind::kNone);
}

}  // namespace
}  // namespace lockstep::reference
