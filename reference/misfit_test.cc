#include "reference/misfit.h"

#include <gtest/gtest.h>

#include "reference/program.h"

namespace lockstep::reference {
namespace {

using By = Refusal::By;

Program two_matrices(MisfitKind kind) {
  Program program;
  program.world = 3;
  Parameter matrix;
  matrix.sizes = {2, 3};
  program.parameters = {matrix, matrix};
  program.misfit = {kind, 4, false, 3};
  normalize(program);
  return program;
}

TEST(Misfit, NormalizingTakesAwayWhatAProgramCannotHave) {
  EXPECT_EQ(two_matrices(MisfitKind::kStrides).misfit.rank, 1u);
  EXPECT_EQ(two_matrices(MisfitKind::kVerify).misfit.kind, MisfitKind::kNone);
  Program program = two_matrices(MisfitKind::kStrides);
  for (Parameter& parameter : program.parameters) parameter.sizes = {6};
  normalize(program);
  EXPECT_EQ(program.misfit.kind, MisfitKind::kNone);
  EXPECT_EQ(program.misfit.pick, 0u);
}

TEST(Misfit, ARankAloneDiffersFromNobodyButMayRefuse) {
  Program program = two_matrices(MisfitKind::kViews);
  program.world = 1;
  normalize(program);
  EXPECT_EQ(program.misfit.kind, MisfitKind::kNone);
  program.misfit.kind = MisfitKind::kNoTrace;
  normalize(program);
  EXPECT_EQ(program.misfit.kind, MisfitKind::kNoTrace);
}

TEST(Misfit, TheRankIsOneOfThoseThatAreLeft) {
  const Program program = two_matrices(MisfitKind::kViews);
  EXPECT_EQ(refusal_of(program, {0, 1, 2})->rank, 1u);
  EXPECT_EQ(refusal_of(program, {0, 2})->rank, 2u);
  EXPECT_FALSE(refusal_of(program, {2}).has_value());
  EXPECT_FALSE(refusal_of(program, {}).has_value());
}

TEST(Misfit, B4TheAgreementTheRankOrEveryRankRefuses) {
  const std::vector<std::uint32_t> all{0, 1, 2};
  EXPECT_EQ(refusal_of(two_matrices(MisfitKind::kSwapped), all)->by, By::kAgreement);
  EXPECT_EQ(refusal_of(two_matrices(MisfitKind::kUnknownName), all)->by, By::kOneRank);
  EXPECT_EQ(refusal_of(two_matrices(MisfitKind::kLayout), all)->by, By::kEveryRank);
  Program pinned = two_matrices(MisfitKind::kNoLimits);
  EXPECT_EQ(refusal_of(pinned, all)->by, By::kOneRank);
  pinned.options.pinned = 1;  // the limits are of no use, but they are compared
  EXPECT_EQ(refusal_of(pinned, all)->by, By::kAgreement);
}

TEST(Misfit, ChangesAParameterThatIsListedOnceAndHasNoReplica) {
  Program program = two_matrices(MisfitKind::kDType);
  EXPECT_EQ(changed_parameter(program), 1u);
  Parameter again = program.parameters[1];
  again.shared_with = 1;
  program.parameters.push_back(again);
  normalize(program);
  EXPECT_EQ(changeable_parameters(program), std::vector<std::uint32_t>{0});
  EXPECT_EQ(changed_parameter(program), 0u);
  program.parameters[0].ignored = true;
  normalize(program);
  EXPECT_EQ(program.misfit.kind, MisfitKind::kNone);
}

}  // namespace
}  // namespace lockstep::reference
