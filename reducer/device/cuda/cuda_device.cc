#include "reducer/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/device/cuda/cuda_error.h"
#include "reducer/device/cuda/kernels.h"

namespace lockstep::inline LOCKSTEP_NS {
namespace {

using platform::Deadline;

constexpr std::uint64_t kMaxStreams = 63;  // handles are bits of a word
constexpr std::uint64_t kPointBits = 48;   // of an event's handle; the stream's is above them
constexpr std::uint64_t kPointMask = (std::uint64_t{1} << kPointBits) - 1;
constexpr std::size_t kLeastStaging = std::size_t{64} << 10;
constexpr auto kTeardown = std::chrono::seconds(10);
// How synchronize() asks: without a pause at first, as most work is short, then with pauses that a
// deadline of milliseconds does not notice.
constexpr auto kEager = std::chrono::microseconds(100);
constexpr auto kNap = std::chrono::microseconds(50);

// Makes a device current on this thread, and what was current before it again.
class Current {
 public:
  explicit Current(int ordinal) : ordinal_(ordinal) {
    if (cudaGetDevice(&before_) != cudaSuccess || before_ == ordinal) before_ = -1;
    if (before_ != -1) cudaSetDevice(ordinal_);
  }
  ~Current() {
    if (before_ != -1) cudaSetDevice(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  int ordinal_;
  int before_ = -1;
};

}  // namespace

// A stream, with what plans of its launches are made in, by the thread that submits to it.
struct CudaDevice::Line {
  // A table on its way: written by the host, copied by the stream, read by a kernel.
  struct Staging {
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    std::size_t capacity = 0;
    std::uint64_t until = 0;  // the point behind its last kernel
  };
  Line(int ordinal, CUstream_st* native, bool is_owned) : stream(ordinal, native, is_owned) {}

  CudaStream stream;
  LaunchPlan plan;
  std::vector<Staging> staging;
  Staging* staged = nullptr;
};

void PinnedMemory::swap(PinnedMemory& other) {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(capacity_, other.capacity_);
}

PinnedMemory::~PinnedMemory() {
  if (device_ != nullptr) device_->give_back(data_, capacity_);
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(int ordinal) {
  CudaPresence presence;
  cudaDriverGetVersion(&presence.driver_version);
  cudaRuntimeGetVersion(&presence.runtime_version);
  presence.error = cudaGetDeviceCount(&presence.devices);
  static_cast<void>(cudaGetLastError());
  if (Status status = find_cuda_device(presence, ordinal); !status.ok())
    return failed(std::move(status));
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal); error != cudaSuccess)
    return failed(cuda_failure(error, ordinal, "asking for its properties"));
  const Current current(ordinal);
  const int error = properties.major < 8 ? cudaErrorNoKernelImageForDevice : kernels::load();
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
    return failed(
        unsupported_cuda_device(ordinal, properties.name, properties.major, properties.minor));
  if (error != cudaSuccess) return failed(cuda_failure(error, ordinal, "loading the kernels"));
  std::unique_ptr<CudaDevice> device(new CudaDevice(ordinal, properties.name));
  if (Status status = device->start(); !status.ok()) return failed(std::move(status));
  return device;
}

CudaDevice::CudaDevice(int ordinal, std::string name) : ordinal_(ordinal), name_(std::move(name)) {}

Status CudaDevice::start() {
  int has_pools = 0;
  int error = cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, ordinal_);
  if (error == cudaSuccess && has_pools == 0) error = cudaErrorNotSupported;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal_;
  if (error == cudaSuccess) error = cudaMemPoolCreate(&pool_, &properties);
  if (error != cudaSuccess) return cuda_failure(error, ordinal_, "making a pool of memory");
  std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
  error = cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep);
  // A stream must not wait for another one only to get that one's memory.
  int no = 0;
  if (error == cudaSuccess)
    error = cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowInternalDependencies, &no);
  if (error != cudaSuccess) return cuda_failure(error, ordinal_, "setting up its pool of memory");
  CUstream_st* native = nullptr;
  error = cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking);
  if (error != cudaSuccess) return cuda_failure(error, ordinal_, "making a stream");
  reclaim_ = std::make_unique<CudaStream>(ordinal_, native, true);
  const Result<Stream> own = new_stream();
  if (!own) return own.error();
  LOCKSTEP_CHECK_EQ(own->handle, std::uint64_t{0});
  return {};
}

CudaDevice::~CudaDevice() {
  LOCKSTEP_CHECK_EQ(allocated_.load(), std::uint64_t{0});
  const Current current(ordinal_);
  if (!becomes_idle(Deadline::in(kTeardown))) {  // giving memory back would wait for the card
    for (const auto& line : lines_) line->stream.abandon();
    if (reclaim_) reclaim_->abandon();
    return;
  }
  for (const auto& line : lines_)
    for (const Line::Staging& staging : line->staging) {
      cudaFreeHost(staging.host);
      cudaFreeAsync(staging.device, line->stream.native());
    }
  for (const auto& [capacity, data] : spare_pinned_) cudaFreeHost(data);
  lines_.clear();
  reclaim_.reset();
  if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
}

// Whether all streams pass what was submitted until now. One that failed does nothing more.
bool CudaDevice::becomes_idle(Deadline deadline) {
  std::vector<CudaStream*> streams;
  for (const auto& line : lines_) streams.push_back(&line->stream);
  if (reclaim_) streams.push_back(reclaim_.get());
  for (CudaStream* stream : streams) {
    const std::uint64_t point = stream->record();
    while (!stream->passed(point).value_or(true)) {
      if (deadline.passed()) return false;
      nap(deadline);
    }
  }
  return true;
}

void CudaDevice::nap(Deadline deadline) {
  platform::MutexLock lock(nap_mutex_);
  nap_.wait(lock, Deadline::in(std::min<platform::Duration>(kNap, deadline.remaining())),
            [] { return false; });
}

Result<Ref<Storage>> CudaDevice::allocate(std::size_t bytes) {
  const Current current(ordinal_);
  const std::uint64_t home = current_.load();
  void* memory = nullptr;
  // A storage without elements has an address, too: it is found by that.
  const int error = cudaMallocFromPoolAsync(&memory, std::max<std::size_t>(bytes, 1), pool_,
                                            line_at(home).stream.native());
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return failed(cuda_failure(error, ordinal_,
                               "allocating " + std::to_string(bytes) + " bytes of a tensor"));
  }
  auto* data = static_cast<std::byte*>(memory);
  bool is_known = false;
  try {
    {
      platform::MutexLock lock(mutex_);
      allocations_[data] = {bytes, home, 0};
    }
    is_known = true;
    allocated_ += bytes;
    return make_ref<Storage>(*this, data, bytes);
  } catch (const std::bad_alloc&) {  // of the host's memory
    if (is_known)
      release(data, bytes);
    else
      cudaFreeAsync(data, line_at(home).stream.native());
    throw;
  }
}

void CudaDevice::release(std::byte* data, std::size_t bytes) {
  const Current current(ordinal_);
  Allocation allocation;
  {
    platform::MutexLock lock(mutex_);
    const auto found = allocations_.find(data);
    LOCKSTEP_CHECK(found != allocations_.end());
    allocation = found->second;
    allocations_.erase(found);
  }
  allocated_ -= bytes;
  CudaStream& home = line_at(allocation.home).stream;
  CudaStream* where = &home;
  if (allocation.used_by != 0) {
    where = reclaim_.get();
    where->wait(home, home.record());
    for (std::uint64_t handle = 0; handle < kMaxStreams; ++handle) {
      if ((allocation.used_by >> handle & 1) == 0) continue;
      CudaStream& user = line_at(handle).stream;
      where->wait(user, user.record());
    }
  }
  home.fail(cudaFreeAsync(data, where->native()), "giving memory back");
}

Result<PinnedMemory> CudaDevice::allocate_pinned(std::size_t bytes) {
  const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  {
    platform::MutexLock lock(mutex_);
    const auto spare = spare_pinned_.find(capacity);
    if (spare != spare_pinned_.end()) {
      PinnedMemory memory(*this, spare->second, bytes, capacity);
      spare_pinned_.erase(spare);
      return memory;
    }
  }
  const Current current(ordinal_);
  void* memory = nullptr;
  const int error = cudaHostAlloc(&memory, capacity, cudaHostAllocPortable);
  if (error == cudaSuccess)
    return PinnedMemory(*this, static_cast<std::byte*>(memory), bytes, capacity);
  static_cast<void>(cudaGetLastError());
  return failed(cuda_failure(error, ordinal_,
                             "allocating " + std::to_string(bytes) + " bytes of pinned memory"));
}

void CudaDevice::give_back(std::byte* data, std::size_t capacity) {
  platform::MutexLock lock(mutex_);
  spare_pinned_.emplace(capacity, data);
}

Result<Stream> CudaDevice::new_stream() {
  const Current current(ordinal_);
  CUstream_st* native = nullptr;
  const int error = cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking);
  if (error != cudaSuccess) return failed(cuda_failure(error, ordinal_, "making a stream"));
  Result<std::uint64_t> handle = add_line(native, true);
  if (handle) return Stream{this, *handle};
  cudaStreamDestroy(native);
  return failed(std::move(handle.error()));
}

Result<Stream> CudaDevice::adopt(CUstream_st* native) {
  Result<std::uint64_t> handle = add_line(native, false);
  if (!handle) return failed(std::move(handle.error()));
  return Stream{this, *handle};
}

Result<std::uint64_t> CudaDevice::add_line(CUstream_st* native, bool is_owned) {
  platform::MutexLock lock(mutex_);
  if (lines_.size() == kMaxStreams)
    return failed(Status(Code::kInvalidArgument, "CUDA device " + std::to_string(ordinal_) +
                                                     " has 63 streams already, and no more"));
  lines_.push_back(std::make_unique<Line>(ordinal_, native, is_owned));
  line_count_ = lines_.size();
  return lines_.size() - 1;
}

CudaDevice::Line& CudaDevice::line_at(std::uint64_t handle) {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK_LT(handle, lines_.size());
  return *lines_[handle];
}

CudaDevice::Line& CudaDevice::line_of(const Stream& stream) {
  LOCKSTEP_CHECK(stream.device == this || (stream.device == nullptr && stream.handle == 0));
  return line_at(stream.handle);
}

void CudaDevice::set_current_stream(const Stream& stream) {
  LOCKSTEP_CHECK(stream.device == this);
  LOCKSTEP_CHECK_LT(stream.handle, line_count_.load());
  current_ = stream.handle;
}

CUstream_st* CudaDevice::native(const Stream& stream) { return line_of(stream).stream.native(); }

Event CudaDevice::record(const Stream& stream) {
  const Current current(ordinal_);
  const std::uint64_t point = line_of(stream).stream.record();
  LOCKSTEP_CHECK_LE(point, kPointMask);
  return {this, stream.handle << kPointBits | point};
}

void CudaDevice::wait(const Stream& stream, const Event& event) {
  if (event.device == nullptr) return;
  auto* const other = dynamic_cast<CudaDevice*>(event.device);
  LOCKSTEP_CHECK(other != nullptr);
  const Current current(ordinal_);
  line_of(stream).stream.wait(other->line_at(event.handle >> kPointBits).stream,
                              event.handle & kPointMask);
}

Status CudaDevice::synchronize(const Event& event, Deadline deadline) {
  if (event.device == nullptr) return {};
  LOCKSTEP_CHECK(event.device == this);
  const Current current(ordinal_);
  CudaStream& stream = line_at(event.handle >> kPointBits).stream;
  const std::uint64_t point = event.handle & kPointMask;
  const Deadline eager = Deadline::in(kEager);
  while (true) {
    const Result<bool> passed = stream.passed(point);
    if (!passed) return passed.error();
    if (*passed) return stream.take_failure(point);
    if (deadline.passed())
      return Status(Code::kTimeout, "CUDA device " + std::to_string(ordinal_) +
                                        ": work that was submitted to its stream " +
                                        std::to_string(event.handle >> kPointBits) +
                                        " is not done in time, and goes on");
    if (!eager.passed()) {
      platform::yield();
      continue;
    }
    nap(deadline);
  }
}

void CudaDevice::note_use(const Stream& stream, const std::byte* data) {
  LOCKSTEP_CHECK(stream.device == this);
  const Current current(ordinal_);
  note_use(line_of(stream), stream.handle, data);
}

void CudaDevice::note_use(Line& user, std::uint64_t handle, const std::byte* data) {
  if (line_count_.load() == 1) return;  // so it is every storage's home
  CudaStream* home = nullptr;
  {
    platform::MutexLock lock(mutex_);
    auto found = allocations_.upper_bound(data);
    if (found == allocations_.begin()) return;
    auto& [start, allocation] = *--found;
    if (data >= start + std::max<std::size_t>(allocation.bytes, 1)) return;
    const std::uint64_t bit = std::uint64_t{1} << handle;
    if (allocation.home == handle || (allocation.used_by & bit) != 0) return;
    allocation.used_by |= bit;
    home = &lines_[allocation.home]->stream;
  }
  user.stream.wait(*home, home->record());
}

void CudaDevice::note_uses(const Stream& stream, std::span<const Transfer> transfers) {
  if (line_count_.load() == 1) return;
  Line& user = line_of(stream);
  for (const Transfer& transfer : transfers) {
    note_use(user, stream.handle, transfer.gradient->data());
    note_use(user, stream.handle, transfer.slot);
  }
}

void CudaDevice::fill_zero(const Stream& stream, std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  const Current current(ordinal_);
  Line& line = line_of(stream);
  note_use(line, stream.handle, data);
  line.stream.fail(cudaMemsetAsync(data, 0, bytes, line.stream.native()), "filling with zeros");
}

void CudaDevice::copy(const Stream& stream, const Tensor& from, const Tensor& to) {
  const Current current(ordinal_);
  Line& line = line_of(stream);
  note_use(line, stream.handle, from.data());
  note_use(line, stream.handle, to.data());
  plan_copy(line.plan, from, to);
  launch(line);
}

void CudaDevice::add(const Stream& stream, const Tensor& from, const Tensor& to) {
  const Current current(ordinal_);
  Line& line = line_of(stream);
  note_use(line, stream.handle, from.data());
  note_use(line, stream.handle, to.data());
  plan_add(line.plan, from, to);
  launch(line);
}

void CudaDevice::gather(const Stream& stream, std::span<const Transfer> transfers, double factor) {
  const Current current(ordinal_);
  note_uses(stream, transfers);
  Line& line = line_of(stream);
  plan_gather(line.plan, transfers, factor);
  launch(line);
}

void CudaDevice::scatter(const Stream& stream, std::span<const Transfer> transfers) {
  const Current current(ordinal_);
  note_uses(stream, transfers);
  Line& line = line_of(stream);
  plan_scatter(line.plan, transfers);
  launch(line);
}

void CudaDevice::convert(const Stream& stream, const Tensor& from, const Tensor& to,
                         double factor) {
  const Current current(ordinal_);
  Line& line = line_of(stream);
  note_use(line, stream.handle, from.data());
  note_use(line, stream.handle, to.data());
  plan_convert(line.plan, from, to, factor);
  launch(line);
}

void CudaDevice::fold(const Stream& stream, const Tensor& from, const Tensor& to, double factor) {
  const Current current(ordinal_);
  Line& line = line_of(stream);
  note_use(line, stream.handle, from.data());
  note_use(line, stream.handle, to.data());
  plan_fold(line.plan, from, to, factor);
  launch(line);
}

// Runs the line's plan.
void CudaDevice::launch(Line& line) {
  LaunchPlan& plan = line.plan;
  if (plan.empty()) return;
  std::byte* place = nullptr;
  if (plan.far_bytes() != 0) {
    place = stage(line);
    if (place == nullptr) return;
  }
  const int error =
      kernels::launch(plan.operation(), plan.blocks(), plan.table(place), line.stream.native());
  line.stream.fail(error, "launching a kernel");
  if (place != nullptr) line.staged->until = line.stream.record();
}

// Brings the table of the line's plan to the card. There are as many places for tables as launches
// were ahead of the card at once; null, and a failure of the stream, when there is no memory for
// one more.
std::byte* CudaDevice::stage(Line& line) {
  const std::size_t bytes = line.plan.far_bytes();
  CudaStream& stream = line.stream;
  const auto is_free = [&](const Line::Staging& staging) {
    return staging.capacity >= bytes && stream.passed(staging.until).value_or(false);
  };
  auto found = std::find_if(line.staging.begin(), line.staging.end(), is_free);
  if (found == line.staging.end()) {
    Line::Staging made;
    made.capacity = std::bit_ceil(std::max(bytes, kLeastStaging));
    void* host = nullptr;
    void* device = nullptr;
    int error = cudaHostAlloc(&host, made.capacity, cudaHostAllocPortable);
    if (error == cudaSuccess) {
      error = cudaMallocFromPoolAsync(&device, made.capacity, pool_, stream.native());
      if (error != cudaSuccess) cudaFreeHost(host);
    }
    stream.fail(error, "allocating memory for the tables of kernels");
    if (error != cudaSuccess) return nullptr;
    made.host = static_cast<std::byte*>(host);
    made.device = static_cast<std::byte*>(device);
    found = line.staging.insert(line.staging.end(), made);
  }
  line.plan.write_far(found->host);
  const int error =
      cudaMemcpyAsync(found->device, found->host, bytes, cudaMemcpyHostToDevice, stream.native());
  stream.fail(error, "copying the table of a kernel");
  line.staged = &*found;
  return error == cudaSuccess ? found->device : nullptr;
}

void CudaDevice::upload(const Stream& stream, const std::byte* from, std::byte* to,
                        std::size_t bytes) {
  if (bytes == 0) return;
  const Current current(ordinal_);
  Line& line = line_of(stream);
  note_use(line, stream.handle, to);
  line.stream.fail(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, line.stream.native()),
                   "copying to the card");
}

void CudaDevice::download(const Stream& stream, const std::byte* from, std::byte* to,
                          std::size_t bytes) {
  if (bytes == 0) return;
  const Current current(ordinal_);
  Line& line = line_of(stream);
  note_use(line, stream.handle, from);
  line.stream.fail(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, line.stream.native()),
                   "copying from the card");
}

}  // namespace lockstep::inline LOCKSTEP_NS
