// HostDevice does what every Device promises.
#include <gtest/gtest.h>

#include "reducer/device/host/host_device.h"
#include "reducer/device/test_device_conformance.h"

namespace lockstep {
namespace {

struct HostDeviceFixture {
  static void run(const std::function<void(DeviceUnderTest&)>& body) {
    HostDevice device;
    DeviceUnderTest subject(device, {&device, 1});  // All streams are one.
    body(subject);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(HostDevice, DeviceConformance, HostDeviceFixture);

}  // namespace
}  // namespace lockstep
