#include "properties/lane/nccl_gpu.h"
#include "reducer/device/host/queue_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Result<std::unique_ptr<Device>> open_played_gpu() {
  return std::unique_ptr<Device>(std::make_unique<QueueDevice>());
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
