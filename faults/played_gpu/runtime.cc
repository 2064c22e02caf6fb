// The played CUDA runtime: the functions that NCCL calls, under their own names, with the types of
// our own. A library that is linked with libcudart.so finds them as that; in a library that holds
// its runtime, redirect.h turns its calls to them. What is not here fails with kNotSupported and
// its name.
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "faults/played_gpu/gpu.h"
#include "faults/played_gpu/kernels.h"
#include "faults/played_gpu/one_rank.h"

#define PLAYED extern "C" __attribute__((visibility("default")))

namespace {

using lockstep::NativeStream;
using lockstep::played::drain;
using lockstep::played::Gpu;
using lockstep::played::kInvalidValue;
using lockstep::played::kNotReady;
using lockstep::played::kOutOfMemory;
using lockstep::played::kSuccess;
using lockstep::played::Marker;
using lockstep::played::MemoryKind;
using lockstep::played::Queue;
using lockstep::played::submit;

constexpr int kVersion = 12080;  // CUDA 12.8

int allocate(MemoryKind kind, void** data, std::size_t bytes) {
  *data = Gpu::one().memory().allocate(kind, bytes);
  return *data == nullptr ? kOutOfMemory : kSuccess;
}

// CUDA frees memory when the GPU has no more work.
int release(void* data) {
  if (data == nullptr) return kSuccess;
  lockstep::played::wait_for_aborted_kernels();
  return Gpu::one().memory().release(data) ? kSuccess : kInvalidValue;
}

// Memory of the host that CUDA does not know may be used again when the call returns.
int copy(void* to, const void* from, std::size_t bytes, void* native) {
  Gpu& gpu = Gpu::one();
  NativeStream& stream = gpu.stream(native);
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  if (gpu.is_own(stream) && !gpu.memory().owns(from)) {
    const std::vector<std::byte> kept(source, source + bytes);
    submit(stream, [target, kept] { std::memcpy(target, kept.data(), kept.size()); });
    return kSuccess;
  }
  submit(stream, [&gpu, &stream, target, source, bytes] {
    std::memmove(gpu.reach(stream, target), gpu.reach(stream, source), bytes);
  });
  return kSuccess;
}

}  // namespace

// --- The device.

PLAYED int cudaGetDeviceCount(int* count) {
  *count = 1;
  return kSuccess;
}
PLAYED int cudaGetDevice(int* device) {
  *device = 0;
  return kSuccess;
}
PLAYED int cudaSetDevice(int device) { return device == 0 ? kSuccess : kInvalidValue; }
PLAYED int cudaDeviceGetAttribute(int* value, int which, int) {
  *value = lockstep::played::attribute(which);
  return kSuccess;
}
// The fields that NCCL reads: the name, the memory and the compute capability.
PLAYED int cudaGetDeviceProperties_v2(char* properties, int) {
  constexpr std::size_t kMemory = 288;
  constexpr std::size_t kMajor = 360;
  const std::size_t bytes = std::size_t{80} << 30;
  const int capability[] = {lockstep::played::attribute(75), lockstep::played::attribute(76)};
  std::strcpy(properties, "played GPU");
  std::memcpy(properties + kMemory, &bytes, sizeof bytes);
  std::memcpy(properties + kMajor, capability, sizeof capability);
  return kSuccess;
}
// The name since CUDA 13, whose structure has these fields at the same places.
PLAYED int cudaGetDeviceProperties(char* properties, int device) {
  return cudaGetDeviceProperties_v2(properties, device);
}
PLAYED int cudaDeviceSetLimit(int, std::size_t) { return kSuccess; }
PLAYED int cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return kSuccess;
}
PLAYED int cudaDeviceGetPCIBusId(char* id, int bytes, int) {
  std::snprintf(id, static_cast<std::size_t>(bytes), "%s", lockstep::played::bus_id().c_str());
  return kSuccess;
}
PLAYED int cudaDeviceGetByPCIBusId(int* device, const char*) {
  *device = 0;
  return kSuccess;
}
PLAYED int cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
PLAYED int cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
PLAYED int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                   int* found) {
  *function = lockstep::played::driver_function(name);
  if (found != nullptr) *found = *function == nullptr ? 1 : 0;
  return kSuccess;
}
PLAYED int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                            unsigned long long flags, int* found) {
  return cudaGetDriverEntryPoint(name, function, flags, found);
}

// --- Errors. Calls return them; nobody needs the last one.

PLAYED int cudaGetLastError() { return kSuccess; }
PLAYED int cudaPeekAtLastError() { return kSuccess; }
PLAYED const char* cudaGetErrorString(int error) {
  switch (error) {
    case kSuccess:
      return "no error";
    case kInvalidValue:
      return "invalid argument of a call to the played GPU";
    case kOutOfMemory:
      return "out of memory";
    case kNotReady:
      return "not ready";
    default:
      return Gpu::one().last_refusal();
  }
}

// --- Memory.

PLAYED int cudaMalloc(void** data, std::size_t bytes) {
  return allocate(MemoryKind::kDevice, data, bytes);
}
PLAYED int cudaFree(void* data) { return release(data); }
PLAYED int cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return allocate(MemoryKind::kPinned, data, bytes);
}
PLAYED int cudaFreeHost(void* data) { return release(data); }
PLAYED int cudaHostRegister(void*, std::size_t, unsigned) { return kSuccess; }
PLAYED int cudaHostUnregister(void*) {
  lockstep::played::wait_for_aborted_kernels();
  return kSuccess;
}
PLAYED int cudaHostGetDevicePointer(void** address, void* data, unsigned) {
  *address = data;
  return kSuccess;
}
PLAYED int cudaMemPoolCreate(void** pool, const void*) {
  static int its_address = 0;
  *pool = &its_address;
  return kSuccess;
}
PLAYED int cudaMemPoolDestroy(void*) { return kSuccess; }
PLAYED int cudaMemPoolSetAttribute(void*, int, void*) { return kSuccess; }
PLAYED int cudaMallocFromPoolAsync(void** data, std::size_t bytes, void*, void*) {
  return allocate(MemoryKind::kDevice, data, bytes);
}
PLAYED int cudaFreeAsync(void* data, void* stream) {
  submit(Gpu::one().stream(stream), [data] { (void)Gpu::one().memory().release(data); });
  return kSuccess;
}
PLAYED int cudaMemcpy(void* to, const void* from, std::size_t bytes, int) {
  std::memmove(to, from, bytes);
  return kSuccess;
}
PLAYED int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int, void* stream) {
  return copy(to, from, bytes, stream);
}
PLAYED int cudaMemset(void* data, int value, std::size_t bytes) {
  Gpu::one().memory().fill(static_cast<std::byte*>(data), value, bytes);
  return kSuccess;
}
PLAYED int cudaMemsetAsync(void* data, int value, std::size_t bytes, void* native) {
  NativeStream& stream = Gpu::one().stream(native);
  submit(stream, [&stream, data, value, bytes] {
    Gpu::one().memory().fill(Gpu::one().reach(stream, static_cast<std::byte*>(data)), value, bytes);
  });
  return kSuccess;
}
// cudaPointerAttributes: the kind of memory, the device, the address there and on the host.
PLAYED int cudaPointerGetAttributes(void* attributes, const void* data) {
  constexpr int kHost = 1;
  constexpr int kDevice = 2;
  struct {
    int kind;
    int device;
    const void* on_device;
    const void* on_host;
  } const found = {Gpu::one().memory().kind_of(data) == MemoryKind::kPinned ? kHost : kDevice, 0,
                   data, nullptr};
  std::memcpy(attributes, &found, sizeof found);
  return kSuccess;
}

// --- Streams and events.

PLAYED int cudaStreamCreateWithFlags(void** stream, unsigned) {
  *stream = static_cast<NativeStream*>(Queue::make());
  return kSuccess;
}
PLAYED int cudaStreamDestroy(void* stream) {
  static_cast<Queue*>(static_cast<NativeStream*>(stream))->give_up();
  return kSuccess;
}
PLAYED int cudaStreamSynchronize(void* stream) {
  drain(Gpu::one().stream(stream));
  return kSuccess;
}
PLAYED int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  static_cast<const Marker*>(event)->hold(Gpu::one().stream(stream));
  return kSuccess;
}
PLAYED int cudaStreamGetId(void* stream, unsigned long long* id) {
  *id = reinterpret_cast<std::uintptr_t>(stream);
  return kSuccess;
}
PLAYED int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  submit(Gpu::one().stream(stream), [function, data] { function(data); });
  return kSuccess;
}
PLAYED int cudaEventCreateWithFlags(void** event, unsigned) {
  *event = new Marker;
  return kSuccess;
}
PLAYED int cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }
PLAYED int cudaEventDestroy(void* event) {
  delete static_cast<Marker*>(event);
  return kSuccess;
}
PLAYED int cudaEventRecord(void* event, void* stream) {
  static_cast<Marker*>(event)->record(Gpu::one().stream(stream));
  return kSuccess;
}
PLAYED int cudaEventQuery(void* event) {
  return static_cast<const Marker*>(event)->has_passed() ? kSuccess : kNotReady;
}
PLAYED int cudaEventSynchronize(void* event) {
  static_cast<const Marker*>(event)->wait();
  return kSuccess;
}

// --- Graphs: no stream is ever captured.

PLAYED int cudaThreadExchangeStreamCaptureMode(int*) { return kSuccess; }
PLAYED int cudaStreamIsCapturing(void*, int* status) {
  *status = 0;
  return kSuccess;
}
PLAYED int cudaStreamGetCaptureInfo_v2(void*, int* status, unsigned long long* id, void** graph,
                                       const void** nodes, std::size_t* count) {
  *status = 0;
  if (id != nullptr) *id = 0;
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
  if (count != nullptr) *count = 0;
  return kSuccess;
}
PLAYED int cudaStreamGetCaptureInfo_v3(void* stream, int* status, unsigned long long* id,
                                       void** graph, const void** nodes, const void** edges,
                                       std::size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
}
// The name of _v3 since CUDA 13.
PLAYED int cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id, void** graph,
                                    const void** nodes, const void** edges, std::size_t* count) {
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count);
}

// --- Kernels.

PLAYED int cudaFuncGetAttributes(void*, const void*) { return kSuccess; }
PLAYED int cudaFuncSetAttribute(const void*, int, int) { return kSuccess; }
PLAYED int cudaGetFuncBySymbol(void** function, const void* symbol) {
  *function = const_cast<void*>(symbol);
  return kSuccess;
}
struct Dim3 {
  unsigned x, y, z;
};
PLAYED int cudaLaunchKernel(const void* kernel, Dim3, Dim3, void** arguments, std::size_t,
                            void* stream) {
  return lockstep::played::launch_one_rank(kernel, arguments, Gpu::one().stream(stream));
}

namespace lockstep::played {

const void* runtime_function(const std::string& name) {
#define FUNCTION(name) \
  { #name, reinterpret_cast < const void*>(name) }
  static const std::map<std::string, const void*> functions = {
      FUNCTION(cudaDeviceCanAccessPeer),
      FUNCTION(cudaDeviceGetAttribute),
      FUNCTION(cudaDeviceGetByPCIBusId),
      FUNCTION(cudaDeviceGetPCIBusId),
      FUNCTION(cudaDeviceSetLimit),
      FUNCTION(cudaDriverGetVersion),
      FUNCTION(cudaEventCreate),
      FUNCTION(cudaEventCreateWithFlags),
      FUNCTION(cudaEventDestroy),
      FUNCTION(cudaEventQuery),
      FUNCTION(cudaEventRecord),
      FUNCTION(cudaEventSynchronize),
      FUNCTION(cudaFree),
      FUNCTION(cudaFreeAsync),
      FUNCTION(cudaFreeHost),
      FUNCTION(cudaFuncGetAttributes),
      FUNCTION(cudaFuncSetAttribute),
      FUNCTION(cudaGetDevice),
      FUNCTION(cudaGetDeviceCount),
      FUNCTION(cudaGetDeviceProperties),
      FUNCTION(cudaGetDeviceProperties_v2),
      FUNCTION(cudaGetDriverEntryPoint),
      FUNCTION(cudaGetDriverEntryPointByVersion),
      FUNCTION(cudaGetErrorString),
      FUNCTION(cudaGetFuncBySymbol),
      FUNCTION(cudaGetLastError),
      FUNCTION(cudaHostAlloc),
      FUNCTION(cudaHostGetDevicePointer),
      FUNCTION(cudaHostRegister),
      FUNCTION(cudaHostUnregister),
      FUNCTION(cudaLaunchHostFunc),
      FUNCTION(cudaLaunchKernel),
      FUNCTION(cudaMalloc),
      FUNCTION(cudaMallocFromPoolAsync),
      FUNCTION(cudaMemPoolCreate),
      FUNCTION(cudaMemPoolDestroy),
      FUNCTION(cudaMemPoolSetAttribute),
      FUNCTION(cudaMemcpy),
      FUNCTION(cudaMemcpyAsync),
      FUNCTION(cudaMemset),
      FUNCTION(cudaMemsetAsync),
      FUNCTION(cudaPeekAtLastError),
      FUNCTION(cudaPointerGetAttributes),
      FUNCTION(cudaRuntimeGetVersion),
      FUNCTION(cudaSetDevice),
      FUNCTION(cudaStreamCreateWithFlags),
      FUNCTION(cudaStreamDestroy),
      FUNCTION(cudaStreamGetCaptureInfo),
      FUNCTION(cudaStreamGetCaptureInfo_v2),
      FUNCTION(cudaStreamGetCaptureInfo_v3),
      FUNCTION(cudaStreamGetId),
      FUNCTION(cudaStreamIsCapturing),
      FUNCTION(cudaStreamSynchronize),
      FUNCTION(cudaStreamWaitEvent),
      FUNCTION(cudaThreadExchangeStreamCaptureMode),
  };
#undef FUNCTION
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

}  // namespace lockstep::played
