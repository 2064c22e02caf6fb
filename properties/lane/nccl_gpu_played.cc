#include "properties/lane/nccl_gpu.h"
#include "reducer/device/host/queue_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Result<std::unique_ptr<Device>> open_played_gpu() {
  return std::unique_ptr<Device>(std::make_unique<QueueDevice>());
}

bool is_played_gpu_left(const Device& gpu) {
  const auto* const queues = dynamic_cast<const QueueDevice*>(&gpu);
  return queues != nullptr && queues->is_left();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
