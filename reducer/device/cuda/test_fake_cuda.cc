#include "reducer/device/cuda/test_fake_cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "reducer/device/cuda/kernels.h"
#include "reducer/device/cuda/test_emulation.h"

struct CUevent_st {
  std::shared_ptr<bool> passed = std::make_shared<bool>(true);
};

struct CUstream_st {
  // A piece of work says whether it could run.
  std::deque<std::function<bool()>> work;
  bool is_held = false;
};

namespace lockstep {
namespace {

struct Block {
  std::unique_ptr<std::byte[]> memory;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool is_free = false;
};

struct World {
  FakeCuda fake;
  std::vector<std::unique_ptr<CUstream_st>> streams;
  std::map<const std::byte*, Block> blocks;
  std::vector<std::unique_ptr<std::byte[]>> pinned;
  std::vector<std::unique_ptr<int>> pools;  // whose they are
};

std::unique_ptr<World>& world() {
  static auto instance = std::make_unique<World>();
  return instance;
}

int remembered(int error) {
  if (error != 0) fake_cuda().last_error = error;
  return error;
}

// Counts a call, and gives what it shall fail with.
int entered(const char* name) {
  FakeCuda& fake = fake_cuda();
  ++fake.calls[name];
  if (const auto planned = fake.during.find(name); planned != fake.during.end()) {
    const std::function<void()> happens = std::move(planned->second);
    fake.during.erase(planned);
    happens();
  }
  const auto planned = fake.fail_next.find(name);
  if (planned == fake.fail_next.end()) return 0;
  const int error = planned->second;
  fake.fail_next.erase(planned);
  return remembered(error);
}

// Runs what can run.
void run_streams() {
  bool runs = true;
  while (runs) {
    runs = false;
    for (const auto& stream : world()->streams)
      while (!stream->is_held && !stream->work.empty() && stream->work.front()()) {
        stream->work.pop_front();
        runs = true;
      }
  }
}

void submit(cudaStream_t stream, std::function<void()> work) {
  stream->work.emplace_back([work = std::move(work)] {
    work();
    return true;
  });
}

void touch(const void* address, const char* who) {
  const auto* data = static_cast<const std::byte*>(address);
  auto found = world()->blocks.upper_bound(data);
  if (found == world()->blocks.begin()) return;
  const Block& block = (--found)->second;
  if (data < block.data + block.bytes && block.is_free)
    fake_cuda().violations.push_back(std::string(who) + " on memory that was given back");
}

}  // namespace

FakeCuda& fake_cuda() { return world()->fake; }
void reset_fake_cuda() { world() = std::make_unique<World>(); }
void FakeCuda::hold(CUstream_st* stream) { stream->is_held = true; }
void FakeCuda::let_go(CUstream_st* stream) { stream->is_held = false; }
void FakeCuda::run() { run_streams(); }

namespace kernels {

int launch(const Operation& operation, std::uint32_t blocks, const ManySegments& argument,
           CUstream_st* stream) {
  if (const int error = entered("launch")) return error;
  submit(stream, [operation, blocks, argument] {
    const Table& table = argument.table;
    const bool is_far = table.far_segments != nullptr;
    const auto* segments =
        is_far ? table.far_segments : reinterpret_cast<const Segment*>(argument.near);
    if (is_far) touch(segments, "the table of a kernel");
    for (std::uint32_t i = 0; i < table.segments; ++i) {
      touch(segments[i].from, "a kernel reads");
      touch(segments[i].to, "a kernel writes");
    }
    with_operation(operation, [&]<class Op>(Op) { emulate_as<Op>(argument, blocks); });
  });
  return 0;
}

int load() { return remembered(fake_cuda().load_error); }

}  // namespace kernels
}  // namespace lockstep

using lockstep::entered;
using lockstep::fake_cuda;
using lockstep::submit;
using lockstep::world;

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = fake_cuda().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = fake_cuda().runtime_version;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = fake_cuda().devices;
  return static_cast<cudaError_t>(lockstep::remembered(fake_cuda().count_error));
}
cudaError_t cudaGetDevice(int* device) {
  *device = fake_cuda().current;
  return static_cast<cudaError_t>(entered("cudaGetDevice"));
}
cudaError_t cudaSetDevice(int device) {
  if (const int error = entered("cudaSetDevice")) return static_cast<cudaError_t>(error);
  fake_cuda().current = device;
  fake_cuda().contexts.insert(device);
  return cudaSuccess;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  *flags = 0;
  *active = fake_cuda().contexts.count(device) != 0 ? 1 : 0;
  return CUDA_SUCCESS;
}
cudaError_t entry_point(void** function, cudaDriverEntryPointQueryResult* found) {
  *function = reinterpret_cast<void*>(&cuDevicePrimaryCtxGetState);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return entry_point(function, found);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char*, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
  return entry_point(function, found);
}
#endif
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memcpy(properties->name, "Fake", 5);
  properties->major = 9;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return static_cast<cudaError_t>(std::exchange(fake_cuda().last_error, 0));
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorFake";
}
const char* cudaGetErrorString(cudaError_t) { return "a fake error"; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  *stream = world()->streams.emplace_back(std::make_unique<CUstream_st>()).get();
  return static_cast<cudaError_t>(entered("cudaStreamCreateWithFlags"));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (fake_cuda().gpu_error != 0)
    return static_cast<cudaError_t>(lockstep::remembered(fake_cuda().gpu_error));
  lockstep::run_streams();
  if (stream->work.empty()) return cudaSuccess;
  return static_cast<cudaError_t>(lockstep::remembered(cudaErrorNotReady));
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return static_cast<cudaError_t>(entered("cudaStreamDestroy"));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  if (const int error = entered("cudaStreamWaitEvent")) return static_cast<cudaError_t>(error);
  stream->work.emplace_back([passed = event->passed] { return *passed; });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = nullptr;
  if (const int error = entered("cudaEventCreateWithFlags")) return static_cast<cudaError_t>(error);
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  ++fake_cuda().calls["cudaEventDestroy"];
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const int error = entered("cudaEventRecord")) return static_cast<cudaError_t>(error);
  event->passed = std::make_shared<bool>(false);
  submit(stream, [passed = event->passed] { *passed = true; });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (fake_cuda().gpu_error != 0)
    return static_cast<cudaError_t>(lockstep::remembered(fake_cuda().gpu_error));
  lockstep::run_streams();
  if (*event->passed) return cudaSuccess;
  return static_cast<cudaError_t>(lockstep::remembered(cudaErrorNotReady));
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  auto& pools = world()->pools;
  pools.push_back(std::make_unique<int>(properties->location.id));
  *pool = reinterpret_cast<cudaMemPool_t>(pools.back().get());
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = fake_cuda().out_of_reach.count({device, peer}) == 0 ? 1 : 0;
  return static_cast<cudaError_t>(entered("cudaDeviceCanAccessPeer"));
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access, size_t) {
  if (const int error = entered("cudaMemPoolSetAccess")) return static_cast<cudaError_t>(error);
  const int owner = *reinterpret_cast<const int*>(pool);
  const bool is_open = access->flags == cudaMemAccessFlagsProtReadWrite;
  if (is_open && access->location.type == cudaMemLocationTypeDevice)
    fake_cuda().open_pools.insert({access->location.id, owner});
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** memory, size_t bytes, cudaMemPool_t, cudaStream_t) {
  if (const int error = entered("cudaMallocFromPoolAsync")) return static_cast<cudaError_t>(error);
  if (bytes >> 40 != 0) return cudaErrorMemoryAllocation;  // no GPU has as much
  lockstep::Block block;
  block.memory = std::make_unique<std::byte[]>(bytes + 256);
  const auto address = reinterpret_cast<std::uintptr_t>(block.memory.get());
  block.data = block.memory.get() + (256 - address % 256) % 256;
  block.bytes = bytes;
  *memory = block.data;
  ++fake_cuda().live_blocks;
  world()->blocks[block.data] = std::move(block);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  if (const int error = entered("cudaFreeAsync")) return static_cast<cudaError_t>(error);
  submit(stream, [data = static_cast<std::byte*>(memory)] {
    world()->blocks.at(data).is_free = true;
    --fake_cuda().live_blocks;
  });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int) {
  if (const int error = entered("cudaHostAlloc")) return static_cast<cudaError_t>(error);
  *memory = world()->pinned.emplace_back(std::make_unique<std::byte[]>(bytes)).get();
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void*) {
  ++fake_cuda().calls["cudaFreeHost"];
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (const int error = entered("cudaMemcpyAsync")) return static_cast<cudaError_t>(error);
  submit(stream, [to, from, bytes] {
    lockstep::touch(to, "a copy writes");
    lockstep::touch(from, "a copy reads");
    std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (const int error = entered("cudaMemsetAsync")) return static_cast<cudaError_t>(error);
  submit(stream, [to, value, bytes] {
    lockstep::touch(to, "a fill");
    std::memset(to, value, bytes);
  });
  return cudaSuccess;
}

}  // extern "C"
