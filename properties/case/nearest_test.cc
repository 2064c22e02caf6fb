#include "properties/case/nearest.h"

#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

const std::vector<std::string> kWords{"synced", "no_sync", "no_grad"};

TEST(Nearest, FindsTheWordThatWasMeant) {
  EXPECT_EQ(nearest("synced", kWords), "synced");
  EXPECT_EQ(nearest("sinced", kWords), "synced");
  EXPECT_EQ(nearest("nosync", kWords), "no_sync");
  EXPECT_EQ(nearest("NO_GRAD", kWords), "no_grad");
}

TEST(Nearest, IsSilentWhenNothingIsClose) {
  EXPECT_EQ(nearest("", kWords), "");
  EXPECT_EQ(nearest("checkpoint", kWords), "");
  EXPECT_EQ(nearest(std::string(1000, 'x'), kWords), "");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Suggestion, NamesTheNearestOrAll) {
  EXPECT_EQ(suggestion("nosync", kWords), "did you mean \"no_sync\"?");
  EXPECT_EQ(suggestion("checkpoint", kWords), "known are: synced, no_sync, no_grad");
}

}  // namespace
}  // namespace lockstep::properties
