// The small NCCL, over which the nccl lane is tested without a GPU, does what NCCL does, as far as
// it has the functions.
#include <gtest/gtest.h>

#include <cstdlib>

#include "reducer/comm/nccl/test_nccl_group_conformance.h"
#include "reducer/comm/nccl/test_nccl_processes.h"
#include "reducer/device/test_queue_device.h"

namespace lockstep {
namespace {

struct HostGpu {
  static std::string library() {
    ::setenv("NCCL_NET", "Lockstep", 1);
    ::setenv("NCCL_NET_PLUGIN", LOCKSTEP_NET_PLUGIN, 1);
    ::setenv("NCCL_DEBUG_FILE", "/dev/null", 1);
    return LOCKSTEP_SMALL_NCCL;
  }
  static Result<std::unique_ptr<Device>> open() {
    return std::unique_ptr<Device>(std::make_unique<testing::QueueDevice>());
  }
};

// nccl#1978.
TEST(SmallNccl, TheNextCommunicatorFindsAPluginOnlyWhereAReferenceToItIsKept) {
  for (const bool is_kept : {false, true}) {
    ::setenv("NCCL_NET_PLUGIN_REF_COUNT", is_kept ? "1" : "0", 1);
    NcclProcesses<HostGpu>::run(1, [is_kept](NcclUnderTest& on) {
      on.destroy(on.connected());
      const NcclUniqueId id = on.shared_id();
      NcclComm next = nullptr;
      NcclConfig config = on.config();
      const NcclResult result = on.api().comm_init_rank_config(&next, 1, id, 0, &config);
      EXPECT_EQ(on.settled(next, result),
                is_kept ? NcclResult::kSuccess : NcclResult::kInvalidUsage);
      if (!is_kept) {
        EXPECT_STREQ(on.api().get_last_error(next), "Failed to initialize any NET plugin");
      }
      EXPECT_EQ(on.api().comm_abort(next), NcclResult::kSuccess);
    });
  }
  ::unsetenv("NCCL_NET_PLUGIN_REF_COUNT");
}

INSTANTIATE_TYPED_TEST_SUITE_P(SmallNccl, NcclConformance, NcclProcesses<HostGpu>);
INSTANTIATE_TYPED_TEST_SUITE_P(SmallNccl, NcclGroupConformance, NcclProcesses<HostGpu>);

}  // namespace
}  // namespace lockstep
