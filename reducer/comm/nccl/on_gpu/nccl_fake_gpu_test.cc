// NcclProcessGroup on a CudaDevice whose CUDA runtime is played in the process: what groups take of
// the GPU, and give back. Part of reducer_cuda_fake_test.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "reducer/comm/nccl/nccl_process_group.h"
#include "reducer/device/cuda/cuda_device.h"
#include "reducer/device/cuda/test_fake_cuda.h"

namespace lockstep {
namespace {

// What of NCCL a group of one rank needs that runs nothing.
NcclApi idle_nccl() {
  NcclApi api;
  api.version = 21805;
  api.get_unique_id = [](NcclUniqueId* id) {
    *id = {};
    return NcclResult::kSuccess;
  };
  api.comm_init_rank_config = [](NcclComm* comm, int, NcclUniqueId, int, NcclConfig*) {
    static int communicator = 0;
    *comm = reinterpret_cast<NcclComm>(&communicator);
    return NcclResult::kSuccess;
  };
  const auto gives_zero = [](NcclComm, int* value) {
    *value = 0;
    return NcclResult::kSuccess;
  };
  api.comm_count = [](NcclComm, int* count) {
    *count = 1;
    return NcclResult::kSuccess;
  };
  api.comm_user_rank = gives_zero;
  api.comm_cu_device = gives_zero;
  api.comm_destroy = api.comm_abort = [](NcclComm) { return NcclResult::kSuccess; };
  return api;
}

// Each reset of a reducer makes a group, and the device has 63 streams.
TEST(NcclGroupOnAFakeGpu, TwoHundredGroupsOneAfterTheOtherNeedOneStream) {
  reset_fake_cuda();
  const std::unique_ptr<CudaDevice> device = *CudaDevice::open(0);
  const auto store = std::make_shared<HashStore>();
  for (int i = 0; i < 200; ++i) {
    NcclOptions options;
    options.name = "group " + std::to_string(i);
    const auto group = NcclProcessGroup::connect(idle_nccl(), *device, store, 0, 1, options);
    ASSERT_TRUE(group.has_value()) << i << ": " << group.error().to_string();
  }
  EXPECT_EQ(device->new_stream()->handle, 1U);
  EXPECT_EQ(fake_cuda().violations.size(), 0U);
}

}  // namespace
}  // namespace lockstep
