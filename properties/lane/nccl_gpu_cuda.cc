#include "properties/lane/nccl_gpu.h"
#include "reducer/device/cuda/cuda_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

Result<std::unique_ptr<Device>> open_cuda() {
  auto opened = CudaDevice::open(0);
  if (!opened) return failed(opened.error());
  return std::unique_ptr<Device>(std::move(*opened));
}

}  // namespace

OpenGpu& open_gpu() {
  static OpenGpu opener = open_cuda;
  return opener;
}

bool is_left(const Device& gpu) {
  const auto* const cuda = dynamic_cast<const CudaDevice*>(&gpu);
  return cuda != nullptr && cuda->is_left();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
