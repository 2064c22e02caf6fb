// A stand-in on the host for the GPU of the nccl lane: its streams are threads
// (test_queue_device.h). It is linked into lockstep_on_host, once for each build of the reducer.
#include "properties/lane/nccl_gpu.h"
#include "reducer/device/test_queue_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

Result<std::unique_ptr<Device>> open_host() {
  return std::unique_ptr<Device>(std::make_unique<testing::QueueDevice>());
}

[[maybe_unused]] const bool is_installed = [] {
  open_gpu() = open_host;
  return true;
}();

}  // namespace
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
