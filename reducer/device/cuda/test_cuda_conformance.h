// A CudaDevice as a subject of the conformance tests: on a card, or over the fake runtime.
#pragma once

#include <cstring>
#include <vector>

#include "reducer/device/cuda/cuda_device.h"
#include "reducer/device/test_device_conformance.h"

namespace lockstep {

class CudaDeviceUnderTest final : public DeviceUnderTest {
 public:
  explicit CudaDeviceUnderTest(CudaDevice& device)
      : device_(device), other_(*device.new_stream()) {}
  Device& device() override { return device_; }
  Stream other_stream() override { return other_; }
  void write(const Stream& stream, const Tensor& to, const std::vector<float>& values) override {
    const std::size_t bytes = values.size() * sizeof(float);
    kept_.push_back(*device_.allocate_pinned(bytes));
    std::memcpy(kept_.back().data(), values.data(), bytes);
    device_.upload(stream, kept_.back(), 0, to.data(), bytes);
  }
  std::vector<float> read(const Stream& stream, const Tensor& from) override {
    std::vector<float> values(static_cast<std::size_t>(from.elements()));
    const std::size_t bytes = values.size() * sizeof(float);
    const PinnedMemory pinned = *device_.allocate_pinned(bytes);
    device_.download(stream, from.data(), pinned, 0, bytes);
    EXPECT_TRUE(finish(stream).ok());
    std::memcpy(values.data(), pinned.data(), bytes);
    return values;
  }

 private:
  CudaDevice& device_;
  Stream other_;
  std::vector<PinnedMemory> kept_;  // what may still be read; read() waits before the end
};

}  // namespace lockstep
