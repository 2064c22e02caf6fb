// The report of wrong gradients: which elements it names, and how it explains them.
#include <string>

#include "properties/oracle/judge.h"
#include "properties/oracle/test_observed.h"

namespace lockstep::properties {
namespace {

class GradientReport : public ObservedCaseTest {
 protected:
  GradientReport() : ObservedCaseTest(1) {}
};

TEST_F(GradientReport, ALocalStepThatIsAveragedIsExplained) {
  const std::vector<std::uint64_t> averages = observation_.ranks[0].bits;
  const std::uint64_t offset = observation_.ranks[0].steps[0].gradients[0].offset;
  case_.program.steps[0].kind = reference::PassKind::kNoSync;
  observe();
  EXPECT_TRUE(judge(case_, expectation_, observation_).ok());
  for (RankObservation& rank : observation_.ranks)
    for (std::uint64_t e = 0; e < 3; ++e)
      rank.bits[rank.steps[0].gradients[0].offset + e] = averages[offset + e];
  const Verdict verdict = judge(case_, expectation_, observation_);
  EXPECT_EQ(verdict.oracle, "bits");
  for (const char* part :
       {"rank 1 contributes", "these bits are the average, ", "but this step is local (no_sync)"})
    EXPECT_NE(verdict.message.find(part), std::string::npos) << verdict.message;
}

}  // namespace
}  // namespace lockstep::properties
