#include "properties/observe/tensor_memory.h"

#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Result<Tensor> in_other_strides(const Tensor& tensor, std::size_t way) {
  const std::span<const std::int64_t> sizes(tensor.shape().sizes.data(),
                                            static_cast<std::size_t>(tensor.shape().dims));
  Shape shape = way == 1 ? Shape::column_major(sizes) : Shape::row_major(sizes);
  for (std::int64_t& stride : shape.strides) stride *= way == 2 ? 2 : 1;
  Device& device = tensor.device();
  Result<Tensor> other = until_given([&] { return Tensor::empty(device, tensor.dtype(), shape); });
  if (other) device.copy(device.current_stream(), tensor, *other);
  return other;
}

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
