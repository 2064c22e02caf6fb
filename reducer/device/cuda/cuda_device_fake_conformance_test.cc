// CudaDevice over a CUDA runtime without a card does what every Device promises.
#include <gtest/gtest.h>

#include "reducer/device/cuda/test_cuda_conformance.h"
#include "reducer/device/cuda/test_fake_cuda.h"

namespace lockstep {
namespace {

struct FakeCudaFixture {
  static void run(const std::function<void(DeviceUnderTest&)>& body) {
    reset_fake_cuda();
    Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(0);
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    CudaDeviceUnderTest subject(**opened);
    body(subject);
    EXPECT_TRUE(fake_cuda().violations.empty());
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(FakeCudaDevice, DeviceConformance, FakeCudaFixture);

}  // namespace
}  // namespace lockstep
