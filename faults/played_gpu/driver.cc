// The played driver: the functions that NCCL asks for through cudaGetDriverEntryPoint(). As there
// is no cuMemCreate, NCCL allocates by cudaMalloc; it asks for granularities and addresses all the
// same.
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <memory>

#include "faults/played_gpu/gpu.h"
#include "faults/played_gpu/kernels.h"

namespace lockstep::played {
namespace {

// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  const struct LaunchAttribute* attributes;
  unsigned attribute_count;
};
// CUlaunchAttribute.
struct LaunchAttribute {
  int id;
  char unused[4];
  union {
    struct {
      void* event;
      int flags;
    } completion;
    char bytes[64];
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);
static_assert(offsetof(LaunchConfig, stream) == 32);

constexpr int kLaunchCompletionEvent = 12;

int get_error_string(int error, const char** text) {
  *text = error == kSuccess        ? "no error"
          : error == kNotSupported ? Gpu::one().last_refusal()
                                   : "an error of the played GPU";
  return kSuccess;
}
int device_get(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kSuccess : kInvalidValue;
}
int device_get_attribute(int* value, int which, int) {
  *value = attribute(which);
  return kSuccess;
}
int device_get_uuid(char* uuid, int) {
  std::copy_n("Lockstep: played", 16, uuid);  // without a zero at its end
  return kSuccess;
}
int context_get(void** context) {
  static int its_address = 0;
  *context = &its_address;
  return kSuccess;
}
int context_set(void*) { return kSuccess; }
int context_get_device(int* device) {
  *device = 0;
  return kSuccess;
}
int get_address_range(std::byte** begin, std::size_t* bytes, std::byte* address) {
  std::byte* found = nullptr;
  std::size_t size = 0;
  if (!Gpu::one().memory().find(address, &found, &size)) return kInvalidValue;
  if (begin != nullptr) *begin = found;
  if (bytes != nullptr) *bytes = size;
  return kSuccess;
}

int get_granularity(std::size_t* bytes, const void*, int) {
  *bytes = std::size_t{2} << 20;
  return kSuccess;
}
int reserve_addresses(void** address, std::size_t bytes, std::size_t, void*, unsigned long long) {
  *address = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *address == MAP_FAILED ? kOutOfMemory : kSuccess;
}
int free_addresses(void* address, std::size_t bytes) {
  return ::munmap(address, bytes) == 0 ? kSuccess : kInvalidValue;
}
int unmap(void*, std::size_t) { return kSuccess; }

// The arguments as a buffer and its size: pairs of a number and a pointer, up to the number 0.
std::span<const std::byte> arguments_of(void** extra) {
  constexpr std::uintptr_t kBuffer = 1;
  constexpr std::uintptr_t kSize = 2;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  for (; extra != nullptr && extra[0] != nullptr; extra += 2) {
    const auto what = reinterpret_cast<std::uintptr_t>(extra[0]);
    if (what == kBuffer) data = static_cast<const std::byte*>(extra[1]);
    if (what == kSize) bytes = *static_cast<const std::size_t*>(extra[1]);
  }
  return data == nullptr ? std::span<const std::byte>() : std::span(data, bytes);
}

int launch_on(void* native, void** extra) {
  Gpu& gpu = Gpu::one();
  const std::span<const std::byte> arguments = arguments_of(extra);
  if (gpu.nccl() == nullptr) return gpu.refuse("the played GPU plays the kernels of NCCL alone");
  if (arguments.size() < sizeof(KernelArguments))
    return gpu.refuse("the played GPU plays kernels whose arguments come in a buffer");
  NativeStream& stream = gpu.stream(native);
  const Status status =
      launch(gpu.nccl()->layout, gpu.nccl()->row_to_id, arguments, stream,
             [&gpu, &stream](const std::byte* address) { return gpu.reach(stream, address); });
  return status.ok() ? kSuccess : gpu.refuse(status.failure().detail);
}

int launch_kernel_ex(const LaunchConfig* config, void*, void**, void** extra) {
  // The event passes when the kernel begins, which is when all before it is over.
  for (unsigned i = 0; i < config->attribute_count; ++i)
    if (config->attributes[i].id == kLaunchCompletionEvent)
      static_cast<Marker*>(config->attributes[i].value.completion.event)
          ->record(Gpu::one().stream(config->stream));
  return launch_on(config->stream, extra);
}
int launch_kernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void* stream, void**, void** extra) {
  return launch_on(stream, extra);
}

}  // namespace

void* driver_function(const std::string& name) {
  static const std::map<std::string, void*> functions = {
      {"cuGetErrorString", reinterpret_cast<void*>(get_error_string)},
      {"cuGetErrorName", reinterpret_cast<void*>(get_error_string)},
      {"cuDeviceGet", reinterpret_cast<void*>(device_get)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(device_get_attribute)},
      {"cuDeviceGetUuid", reinterpret_cast<void*>(device_get_uuid)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(context_get)},
      {"cuCtxSetCurrent", reinterpret_cast<void*>(context_set)},
      {"cuCtxGetDevice", reinterpret_cast<void*>(context_get_device)},
      {"cuMemGetAddressRange", reinterpret_cast<void*>(get_address_range)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(get_granularity)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(reserve_addresses)},
      {"cuMemAddressFree", reinterpret_cast<void*>(free_addresses)},
      {"cuMemUnmap", reinterpret_cast<void*>(unmap)},
      {"cuLaunchKernel", reinterpret_cast<void*>(launch_kernel)},
      {"cuLaunchKernelEx", reinterpret_cast<void*>(launch_kernel_ex)},
  };
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

}  // namespace lockstep::played
