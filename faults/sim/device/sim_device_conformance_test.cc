// SimDevice does what every Device promises, in many schedules, and finds nothing to say about it.
#include <gtest/gtest.h>

#include "faults/sim/device/test_device_run.h"
#include "reducer/device/test_device_conformance.h"

namespace lockstep::simulated {
namespace {

class SimDeviceUnderTest final : public DeviceUnderTest {
 public:
  explicit SimDeviceUnderTest(Bench& bench) : bench_(bench) {}
  Device& device() override { return bench_.device; }
  Stream other_stream() override { return bench_.s1; }
  void write(const Stream& stream, const Tensor& to, const std::vector<float>& values) override {
    bench_.device.upload(stream, std::as_bytes(std::span(values)).data(), to.data(),
                         values.size() * sizeof(float));
  }
  std::vector<float> read(const Stream& stream, const Tensor& from) override {
    std::vector<float> values(static_cast<std::size_t>(from.elements()));
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(values));
    bench_.device.download(stream, from.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  Bench& bench_;
};

template <Uses kUses>
struct SimDeviceFixture {
  static void run(const std::function<void(DeviceUnderTest&)>& body) {
    DeviceOptions options;
    options.uses = kUses;
    for (const simulation::Schedule& schedule : many_schedules(20)) {
      const Seen seen = run_on_device(schedule, options, [&](Bench& bench) {
        SimDeviceUnderTest subject(bench);
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
