#include "properties/observe/tensor_memory.h"

#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void TensorMemory::submit(PinnedMemory pinned, const Tensor& tensor, std::size_t bytes) {
  Device& device = tensor.device();
  device.upload(device.current_stream(), pinned, 0, tensor.data(), bytes);
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK(device_ == nullptr || device_ == &device);
  device_ = &device;
  in_use_.push_back(std::move(pinned));
}

const std::byte* TensorMemory::read(const Tensor& tensor) {
  if (tensor.device().is_host()) return tensor.data();
  copy_.resize(static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype()));
  const Status status = until_given([&] {
    return lockstep::read(tensor.device(), tensor.data(), copy_, platform::Deadline::never());
  });
  LOCKSTEP_CHECK(status.ok());
  return copy_.data();
}

void TensorMemory::settle() {
  platform::MutexLock lock(mutex_);
  if (device_ == nullptr) return;
  const Status status =
      device_->synchronize(device_->record(device_->current_stream()), platform::Deadline::never());
  LOCKSTEP_CHECK(status.ok());
  in_use_.clear();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
