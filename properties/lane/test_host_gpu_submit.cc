#include "properties/lane/test_host_gpu.h"

namespace lockstep::properties {
HostGpuSubmit host_gpu_submit = nullptr;
HostGpuReach host_gpu_reach = nullptr;
}  // namespace lockstep::properties

// The library finds this function by its name (dlsym).
extern "C" __attribute__((visibility("default"))) void lockstep_test_submit(void* stream,
                                                                            void (*body)(void*),
                                                                            void* data) {
  lockstep::properties::host_gpu_submit(stream, body, data);
}

extern "C" __attribute__((visibility("default"))) std::byte* lockstep_test_reach(void* stream,
                                                                                 const void* data) {
  return lockstep::properties::host_gpu_reach(stream, data);
}
