// NcclProcessGroup on a CudaDevice whose CUDA runtime is played in the process: what groups take of
// the GPU, and give back. Part of reducer_cuda_fake_test.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "reducer/comm/nccl/nccl_process_group.h"
#include "reducer/comm/nccl/test_thread_nccl.h"
#include "reducer/device/cuda/cuda_device.h"
#include "reducer/device/cuda/test_fake_cuda.h"

namespace lockstep {
namespace {

// Each reset of a reducer makes a group, and the device has 63 streams.
TEST(NcclGroupOnAFakeGpu, TwoHundredGroupsOneAfterTheOtherNeedOneStream) {
  reset_fake_cuda();
  const std::unique_ptr<CudaDevice> device = *CudaDevice::open(0);
  testing::ThreadNccl nccl;
  const auto store = std::make_shared<HashStore>();
  for (int i = 0; i < 200; ++i) {
    NcclOptions options;
    options.name = "group " + std::to_string(i);
    const auto group = NcclProcessGroup::connect(nccl.api(), *device, store, 0, 1, options);
    ASSERT_TRUE(group.has_value()) << i << ": " << group.error().to_string();
  }
  EXPECT_EQ(device->new_stream()->handle, 1U);
  EXPECT_EQ(fake_cuda().violations.size(), 0U);
}

}  // namespace
}  // namespace lockstep
