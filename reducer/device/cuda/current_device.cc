#include "reducer/device/cuda/current_device.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Whether a device has a primary context. Making a device without a context current creates the
// context, which takes some hundred MB of its memory. This is called while another device is
// current, which therefore has one.
bool has_context(int ordinal) {
  static const auto get_state = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuDevicePrimaryCtxGetState", &function, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error =
        cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &function, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    const bool is_there = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(is_there ? function : nullptr);
  }();
  unsigned int flags = 0;
  int is_active = 0;
  // Every driver has the function; without it the device that was current becomes so again.
  if (get_state == nullptr) return true;
  return get_state(ordinal, &flags, &is_active) == CUDA_SUCCESS && is_active != 0;
}

}  // namespace

CurrentDevice::CurrentDevice(int ordinal) {
  int now = -1;
  if (cudaGetDevice(&now) != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (now == ordinal) return;
  before_ = now;
  // If this fails, so does the next call, which reports it.
  if (cudaSetDevice(ordinal) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

CurrentDevice::~CurrentDevice() {
  if (before_ == -1 || !has_context(before_)) return;
  if (cudaSetDevice(before_) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
