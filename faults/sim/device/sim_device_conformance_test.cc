// SimDevice does what every Device promises, in many schedules, and finds nothing to say about it.
#include <gtest/gtest.h>

#include "faults/sim/device/test_device_run.h"
#include "reducer/device/test_device_conformance.h"

namespace lockstep::simulated {
namespace {

template <Uses kUses>
struct SimDeviceFixture {
  static void run(const std::function<void(DeviceUnderTest&)>& body) {
    DeviceOptions options;
    options.uses = kUses;
    for (const simulation::Schedule& schedule : many_schedules(20)) {
      const Seen seen = run_on_device(schedule, options, [&](Bench& bench) {
        DeviceUnderTest subject(bench.device, bench.s1);
        body(subject);
      });
      EXPECT_EQ(seen.end, simulation::End::kFinished);
      EXPECT_EQ(seen.text(), "");
    }
  }
};

}  // namespace
}  // namespace lockstep::simulated

namespace lockstep {

using Declared = simulated::SimDeviceFixture<simulated::Uses::kDeclared>;
using Noted = simulated::SimDeviceFixture<simulated::Uses::kNoted>;
INSTANTIATE_TYPED_TEST_SUITE_P(SimDevice, DeviceConformance, Declared);
INSTANTIATE_TYPED_TEST_SUITE_P(SimDeviceThatNotesUses, DeviceConformance, Noted);

}  // namespace lockstep
