#include "faults/played_gpu/gpu.h"

#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <utility>

namespace lockstep::played {

Gpu& Gpu::one() {
  static auto* const gpu = new Gpu;
  return *gpu;
}

NativeStream& Gpu::stream(void* native) {
  // The default streams have the small numbers 0, 1 (legacy) and 2 (of the thread).
  constexpr std::uintptr_t kNamed = 2;
  if (reinterpret_cast<std::uintptr_t>(native) <= kNamed) return *default_;
  return *static_cast<NativeStream*>(native);
}

bool Gpu::is_own(const NativeStream& stream) const { return stream.submit == own_submit_; }

std::byte* Gpu::reach(NativeStream& stream, const std::byte* address) {
  if (address == nullptr || is_own(stream) || memory_.owns(address))
    return const_cast<std::byte*>(address);
  return stream.reach(&stream, address);
}

void Gpu::use(Nccl nccl) { nccl_ = new Nccl(std::move(nccl)); }

int Gpu::refuse(const std::string& text) {
  const std::lock_guard lock(mutex_);
  refusal_ = new std::string(text);
  return kNotSupported;
}

const char* Gpu::last_refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_ == nullptr ? "the played GPU does not do this" : refusal_->c_str();
}

int attribute(int which) {
  constexpr std::array<std::pair<int, int>, 6> kValues = {{{16, 132},       // multiprocessors
                                                           {19, 1},         // maps host memory
                                                           {41, 1},         // unified addresses
                                                           {75, 9},         // compute capability
                                                           {76, 0},         // and its minor number
                                                           {97, 232448}}};  // shared memory, bytes
  for (const auto& [number, value] : kValues)
    if (number == which) return value;
  return 0;
}

std::string bus_id() {
  // NCCL reads about a device in sysfs: nothing may stand there.
  static const std::string chosen = [] {
    std::array<char, 16> id{};
    for (int bus = 0xfe; bus > 0; --bus) {
      std::snprintf(id.data(), id.size(), "0000:%02x:00.0", bus);
      struct stat found {};
      const std::string device = std::string("/sys/bus/pci/devices/") + id.data();
      const std::string its_bus = std::string("/sys/class/pci_bus/") + std::string(id.data(), 7);
      if (::stat(device.c_str(), &found) != 0 && ::stat(its_bus.c_str(), &found) != 0) break;
    }
    return std::string(id.data());
  }();
  return chosen;
}

}  // namespace lockstep::played
