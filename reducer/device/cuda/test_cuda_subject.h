// A CudaDevice as a subject of the kernel cases: on a GPU, or over the fake runtime.
#pragma once

#include <cstring>

#include "reducer/base/check.h"
#include "reducer/device/cuda/cuda_device.h"
#include "reducer/device/cuda/test_kernel_cases.h"

namespace lockstep {

class CudaSubject final : public KernelSubject {
 public:
  explicit CudaSubject(CudaDevice& device) : device_(device) {}
  Device& device() override { return device_; }
  void write(const Storage& to, const std::vector<std::byte>& bytes) override {
    if (bytes.empty()) return;
    PinnedMemory pinned = *device_.allocate_pinned(bytes.size());
    std::memcpy(pinned.data(), bytes.data(), bytes.size());
    device_.upload(device_.current_stream(), pinned, 0, to.data(), bytes.size());
    finish();
  }
  std::vector<std::byte> read(const Storage& from) override {
    if (from.bytes() == 0) return {};
    const PinnedMemory pinned = *device_.allocate_pinned(from.bytes());
    device_.download(device_.current_stream(), from.data(), pinned, 0, from.bytes());
    finish();
    return {pinned.data(), pinned.data() + from.bytes()};
  }
  void reduce_in_rank_order(const Tensor& from, const Tensor& to, double factor) override {
    device_.reduce_in_rank_order(device_.current_stream(), from, to, factor);
  }
  void finish() {
    const Status status = device_.synchronize(device_.record(device_.current_stream()),
                                              platform::Deadline::in(std::chrono::seconds(60)));
    LOCKSTEP_CHECK(status.ok());
  }

 private:
  CudaDevice& device_;
};

}  // namespace lockstep
