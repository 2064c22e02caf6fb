// SimNccl answers each call in each state as NCCL does; played_nccl_conformance_test.cc holds NCCL
// itself against the same table.
#include <gtest/gtest.h>

#include "faults/sim/nccl/test_nccl_run.h"
#include "reducer/comm/nccl/test_nccl_states.h"

namespace lockstep::simulated {
namespace {

// What the calls leave behind is not looked at: most of them are wrong.
struct SimNcclOnce {
  static constexpr bool kIsRealTime = false;
  static void run(int ranks, const std::function<void(NcclUnderTest&)>& body) {
    NcclRun run(ranks);
    run.run(body);
  }
};

}  // namespace
}  // namespace lockstep::simulated

namespace lockstep {

INSTANTIATE_TYPED_TEST_SUITE_P(SimNccl, NcclStates, simulated::SimNcclOnce);

}  // namespace lockstep
