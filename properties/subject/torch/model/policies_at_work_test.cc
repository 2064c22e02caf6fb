// Which policies are named as the reason of a difference, and which are not.
#include "properties/subject/torch/model/policies_at_work.h"

#include <gtest/gtest.h>

#include "properties/subject/torch/model/test_case.h"

namespace lockstep::properties::torch_model {
namespace {

using namespace reference;           // NOLINT
using namespace reference::testing;  // NOLINT
using reference::testing::discarded;
using reference::testing::uses;
using reference::testing::with_backwards;

using Names = std::vector<std::string_view>;

Names names_of(Case t) {
  normalize(t.program);
  return policies_at_work(t.program, t.torch, policies_of({2, 15, 0}));
}

TEST(PoliciesAtWork, NoneIsNamedWhereTheContractHolds) {
  EXPECT_EQ(names_of(Case(2, Mode::kDynamic, 1).step({uses({0})})), Names());
}

TEST(PoliciesAtWork, ThatOfADroppedForwardIsNamed) {
  const Case t =
      Case(2, Mode::kPlain, 1).step({discarded(uses({0}))}).step({uses({0})}, PassKind::kNoSync);
  EXPECT_EQ(names_of(t), Names{"stays_armed"});
}

TEST(PoliciesAtWork, ThatOfALocalBackwardIsNamed) {
  RankPass pass = uses({0});
  pass.forwards.push_back(pass.forwards[0]);
  pass.forwards[1].local = true;
  const RankPass local_first = with_backwards(pass, {{{1}}, {{0}}});
  const RankPass synced_first = with_backwards(pass, {{{0}}, {{1}}});
  // The synced backward comes after it.
  EXPECT_EQ(names_of(Case(2, Mode::kDynamic, 1).step({local_first})),
            (Names{"averages_local_backward", "later_backwards_are_local"}));
  EXPECT_EQ(names_of(Case(2, Mode::kDynamic, 1).step({synced_first})), Names());
}

TEST(PoliciesAtWork, AnErrorAndAnotherCallOfItAreDifferences) {
  const Case t = Case(2, Mode::kPlain, 2).step({uses({0})}).step({uses({0, 1})});
  EXPECT_EQ(names_of(t), Names{"reports_missing_later"});
}

}  // namespace
}  // namespace lockstep::properties::torch_model
