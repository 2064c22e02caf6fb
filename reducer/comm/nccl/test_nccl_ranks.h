// For the tests of this folder: groups of ranks that are threads of one process, each with a
// QueueDevice, over ThreadNccl; and data whose sums are exact.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/nccl/nccl_process_group.h"
#include "reducer/comm/nccl/test_thread_nccl.h"

namespace lockstep::testing {

using Group = std::unique_ptr<NcclProcessGroup>;

constexpr std::chrono::seconds kGenerous{60};  // what no test needs
constexpr std::chrono::milliseconds kShort{100};

inline NcclOptions quick(platform::Duration timeout = kGenerous) {
  NcclOptions options;
  options.timeout = timeout;
  options.connect_timeout = kGenerous;
  options.poll = std::chrono::microseconds(200);
  options.notice = std::chrono::milliseconds(1);
  options.grace = std::chrono::milliseconds(50);
  return options;
}

class NcclRanks : public ::testing::Test {
 protected:
  // The rules of nccl_link.h hold in every test.
  ~NcclRanks() override {
    groups.clear();
    EXPECT_THAT(nccl.broken_rules(), ::testing::IsEmpty());
  }

  void make_devices(int size) {
    while (static_cast<int>(devices.size()) < size)
      devices.push_back(std::make_unique<QueueDevice>());
  }
  Device& device(int rank) { return *devices[static_cast<std::size_t>(rank)]; }
  NcclProcessGroup& group(int rank) { return *groups[static_cast<std::size_t>(rank)]; }

  void connect(int size, const NcclOptions& options) {
    make_devices(size);
    groups.resize(static_cast<std::size_t>(size));
    on_ranks(size, [&](int rank) {
      auto made =
          NcclProcessGroup::connect(nccl.api(version), device(rank), store, rank, size, options);
      ASSERT_TRUE(made.has_value()) << made.error().to_string();
      groups[static_cast<std::size_t>(rank)] = std::move(*made);
    });
  }

  ThreadNccl nccl;
  int version = 22809;
  std::shared_ptr<Store> store = std::make_shared<HashStore>();
  std::vector<std::unique_ptr<QueueDevice>> devices;
  std::vector<Group> groups;
};

// Elements of a dtype, on the host or on a device, of which each rank has its own.
class Elements {
 public:
  Elements(DType dtype, std::size_t count, Device* device)
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

inline Elements part(DType dtype, int rank, std::size_t count, Device* device) {
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

// One exact all-reduce: the group works.
inline Status sum_once(NcclProcessGroup& group, Device* device, std::size_t count = 100) {
  Elements elements = part(DType::kFloat32, group.rank(), count, device);
  const Status status = run(group, sum_of(elements));
  if (status.ok()) expect_total(elements, group.size());
  return status;
}

}  // namespace lockstep::testing
