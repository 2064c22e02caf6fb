#include "properties/lane/nccl_card.h"
#include "reducer/device/cuda/cuda_device.h"

namespace lockstep::inline LOCKSTEP_NS {
namespace {

Result<std::unique_ptr<Device>> open_cuda() {
  auto opened = CudaDevice::open(0);
  if (!opened) return failed(opened.error());
  return std::unique_ptr<Device>(std::move(*opened));
}

}  // namespace

OpenCard& open_card() {
  static OpenCard opener = open_cuda;
  return opener;
}

}  // namespace lockstep::inline LOCKSTEP_NS
