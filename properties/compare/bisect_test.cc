#include "properties/compare/bisect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

TEST(CompareBisect, FindsTheFirstLibraryThatDiffersWhereverItStands) {
  for (std::size_t count = 2; count <= 20; ++count) {
    for (std::size_t planted = 1; planted < count; ++planted) {
      std::size_t probes = 0;
      const auto found = bisect(count, [&](std::size_t library) -> Result<Probed> {
        EXPECT_GE(library, 1);
        EXPECT_LT(library, count);
        ++probes;
        return Probed{library >= planted, ""};
      });
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->first, planted);
      EXPECT_EQ(found->steps.size(), probes);
      EXPECT_LE(probes, 6);
    }
  }
}

TEST(CompareBisect, LibrariesThatAgreeAndProbesThatFailAreSaid) {
  const auto agreeing = bisect(4, [](std::size_t) -> Result<Probed> {
    return Probed{false, "exit code 0"};
  });
  ASSERT_FALSE(agreeing.has_value());
  EXPECT_EQ(agreeing.error().code(), Code::kIncomplete);
  EXPECT_THAT(agreeing.error().to_string(), ::testing::HasSubstr("agree (exit code 0)"));
  const auto failing = bisect(4, [](std::size_t library) -> Result<Probed> {
    if (library == 3) return Probed{true, ""};
    return failed(Status(Code::kInvalidArgument, "it cannot be loaded"));
  });
  ASSERT_FALSE(failing.has_value());
  EXPECT_THAT(failing.error().to_string(), ::testing::HasSubstr("it cannot be loaded"));
}

}  // namespace
}  // namespace lockstep::properties
