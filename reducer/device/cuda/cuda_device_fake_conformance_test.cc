// CudaDevice over a CUDA runtime without a GPU does what every Device promises.
#include <gtest/gtest.h>

#include "reducer/device/cuda/cuda_device.h"
#include "reducer/device/cuda/test_fake_cuda.h"
#include "reducer/device/test_device_conformance.h"

namespace lockstep {
namespace {

struct FakeCudaFixture {
  static void run(const std::function<void(DeviceUnderTest&)>& body) {
    reset_fake_cuda();
    Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(0);
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    {
      DeviceUnderTest subject(**opened, *(*opened)->new_stream());
      body(subject);
    }
    EXPECT_TRUE(fake_cuda().violations.empty());
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(FakeCudaDevice, DeviceConformance, FakeCudaFixture);

}  // namespace
}  // namespace lockstep
