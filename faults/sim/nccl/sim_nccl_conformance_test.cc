// SimNccl does what NCCL does, in many schedules and with links of some latency, and there is
// nothing to be said about the memory that it uses.
#include <gtest/gtest.h>

#include "faults/sim/nccl/test_nccl_run.h"
#include "reducer/comm/nccl/test_nccl_group_conformance.h"

namespace lockstep::simulated {
namespace {

struct SimNcclFixture {
  static void run(int ranks, const std::function<void(NcclUnderTest&)>& body) {
    for (const simulation::Schedule& schedule : many_schedules(20)) {
      NcclRun run(ranks);
      run.schedule = schedule;
      if (schedule.seed % 3 == 1) run.latency = {Duration(100), Duration(10'000)};
      EXPECT_EQ(run.run(body), simulation::End::kFinished) << run.wait_graph;
      EXPECT_EQ(run.findings_text(), "");
      EXPECT_EQ(run.misuses, std::vector<std::string>());
      EXPECT_EQ(run.left_open, 0U);
    }
  }
};

}  // namespace
}  // namespace lockstep::simulated

namespace lockstep {

INSTANTIATE_TYPED_TEST_SUITE_P(SimNccl, NcclConformance, simulated::SimNcclFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SimNccl, NcclGroupConformance, simulated::SimNcclFixture);

}  // namespace lockstep
