// For the tests of process groups: elements of any dtype, on the host or on a QueueDevice, whose
// sums are exact.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "reducer/comm/process_group.h"
#include "reducer/device/test_queue_device.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {

// Elements of a dtype, on the host or on a device, of which each rank has its own.
class Elements {
 public:
  Elements(DType dtype, std::size_t count, Device* device = nullptr)
      : dtype_(dtype), bytes_(count * size_of(dtype)), device_(device) {
    if (device_ != nullptr) storage_ = *device_->allocate(bytes_.size());
  }
  std::byte* data() {
    if (bytes_.empty()) return nullptr;
    return device_ != nullptr ? storage_->data() : bytes_.data();
  }
  // The same bytes for the test, of which the GPU must be in no use of.
  std::byte* bytes() {
    const auto* const gpu = dynamic_cast<const QueueDevice*>(device_);
    return gpu != nullptr ? gpu->reach(data()) : data();
  }
  std::size_t count() const { return bytes_.size() / size_of(dtype_); }
  void put(std::size_t index, double value) { set_element(dtype_, bytes(), index, value); }
  double get(std::size_t index) { return element(dtype_, bytes(), index); }
  std::vector<std::byte> bits() { return {bytes(), bytes() + bytes_.size()}; }
  DType dtype() const { return dtype_; }
  Device* device() const { return device_; }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
  Device* device_;
  Ref<Storage> storage_;
};

inline double part_of(int rank, std::size_t index) {
  return static_cast<double>((rank + 1) * static_cast<int>(index % 7 + 1));
}
inline double total_of(int size, std::size_t index) {
  return static_cast<double>(size * (size + 1) / 2 * static_cast<int>(index % 7 + 1));
}

inline Elements part(DType dtype, int rank, std::size_t count, Device* device = nullptr) {
  Elements elements(dtype, count, device);
  for (std::size_t i = 0; i < count; ++i) elements.put(i, part_of(rank, i));
  return elements;
}

inline Collective sum_of(Elements& elements) {
  Collective collective;
  collective.dtype = elements.dtype();
  collective.count = elements.count();
  collective.data = elements.data();
  collective.device = elements.device();
  return collective;
}

inline void expect_total(Elements& elements, int size) {
  for (std::size_t i = 0; i < elements.count(); ++i)
    ASSERT_EQ(elements.get(i), total_of(size, i)) << "element " << i;
}

// Runs one exact all-reduce, which shows that the group works.
inline Status sum_once(ProcessGroup& group, Device* device, std::size_t count = 100) {
  Elements elements = part(DType::kFloat32, group.rank(), count, device);
  const Status status = run(group, sum_of(elements));
  if (status.ok()) expect_total(elements, group.size());
  return status;
}
inline Status sum_once(ProcessGroup& group, std::size_t count = 100) {
  return sum_once(group, nullptr, count);
}

}  // namespace lockstep::testing
