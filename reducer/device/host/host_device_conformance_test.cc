// HostDevice does what every Device promises.
#include <gtest/gtest.h>

#include <cstring>

#include "reducer/device/host/host_device.h"
#include "reducer/device/test_device_conformance.h"

namespace lockstep {
namespace {

class HostDeviceUnderTest final : public DeviceUnderTest {
 public:
  Device& device() override { return device_; }
  Stream other_stream() override { return {&device_, 1}; }  // all are one
  void write(const Stream&, const Tensor& to, const std::vector<float>& values) override {
    std::memcpy(to.data(), values.data(), values.size() * sizeof(float));
  }
  std::vector<float> read(const Stream&, const Tensor& from) override {
    std::vector<float> values(static_cast<std::size_t>(from.elements()));
    std::memcpy(values.data(), from.data(), values.size() * sizeof(float));
    return values;
  }

 private:
  HostDevice device_;
};

struct HostDeviceFixture {
  static void run(const std::function<void(DeviceUnderTest&)>& body) {
    HostDeviceUnderTest subject;
    body(subject);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(HostDevice, DeviceConformance, HostDeviceFixture);

}  // namespace
}  // namespace lockstep
