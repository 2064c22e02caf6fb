// CudaDevice on a GPU does what every Device promises. Where there is none, each test is skipped.
#include <gtest/gtest.h>

#include "reducer/device/cuda/cuda_device.h"
#include "reducer/device/test_device_conformance.h"
#include "reducer/device/test_no_gpu.h"

namespace lockstep {
namespace {

struct CudaDeviceFixture {
  static void run(const std::function<void(DeviceUnderTest&)>& body) {
    Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(0);
    if (!opened && opened.error().code() == Code::kInvalidArgument)
      GTEST_SKIP() << no_gpu(opened.error());
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    DeviceUnderTest subject(**opened, *(*opened)->new_stream());
    body(subject);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(CudaDevice, DeviceConformance, CudaDeviceFixture);

}  // namespace
}  // namespace lockstep
