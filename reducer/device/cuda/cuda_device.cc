#include "reducer/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <iterator>
#include <limits>
#include <new>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/base/sizes.h"
#include "reducer/device/cuda/cuda_error.h"
#include "reducer/device/cuda/current_device.h"
#include "reducer/device/cuda/kernels.h"
#include "reducer/device/cuda/memory_pool.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using platform::Deadline;

constexpr std::uint64_t kMaxStreams = 63;  // Handles are bits of a word.
// The bits of a point in an event's handle; the stream's bits are above them.
constexpr std::uint64_t kPointBits = 48;
constexpr std::uint64_t kPointMask = (std::uint64_t{1} << kPointBits) - 1;
constexpr auto kTeardown = std::chrono::seconds(10);
// synchronize() first polls without a pause, as most work is short, and then with pauses that are
// short against a deadline of milliseconds.
constexpr auto kEager = std::chrono::microseconds(100);
constexpr auto kNap = std::chrono::microseconds(50);

// The devices that this process has open.
struct OpenDevices {
  // Comes before all other locks of a device in the lock order.
  platform::Mutex mutex{"cuda.devices"};
  std::vector<CudaDevice*> list LOCKSTEP_GUARDED_BY(mutex);
};

// It stays until the process ends, because a device of static storage may be destroyed after the
// static objects here.
OpenDevices& open_devices() {
  static auto* const devices = new OpenDevices;
  return *devices;
}

}  // namespace

// Memory for a table: the host writes it, the stream copies it, and a kernel reads it.
struct CudaDevice::Staging {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
  std::size_t capacity = 0;
  std::uint64_t until = 0;  // The point behind the last kernel that reads it.
};

// A stream, with the memory in which its launches are planned. A thread holds its mutex from the
// first use that an operation notes until the operation is submitted, so that no other operation
// comes in between, and none comes before a wait that it needs.
struct CudaDevice::Line {
  Line(int ordinal, CUstream_st* native, bool is_own)
      : is_owned(is_own), stream(ordinal, native, is_own) {}

  const bool is_owned;
  CudaStream stream;
  // Comes before cuda.device in the lock order.
  platform::Mutex mutex{"cuda.line"};
  LaunchPlan plan LOCKSTEP_GUARDED_BY(mutex);
  std::deque<Staging> staging LOCKSTEP_GUARDED_BY(mutex);  // An entry never moves.
};

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
  const CurrentDevice current(ordinal);
  if (const int error = kernels::load(); error != cudaSuccess)
    return failed(
        kernels_not_loaded(error, ordinal, properties.name, properties.major, properties.minor));
  std::unique_ptr<CudaDevice> device(new CudaDevice(ordinal, properties.name));
  if (Status status = device->start(); !status.ok()) return failed(std::move(status));
  return device;
}

CudaDevice::CudaDevice(int ordinal, std::string name) : ordinal_(ordinal), name_(std::move(name)) {}

Status CudaDevice::start() {
  LOCKSTEP_RETURN_IF_ERROR(make_pool(ordinal_, pool_));
  CUstream_st* native = nullptr;
  const int error = cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking);
  if (error != cudaSuccess) return cuda_failure(error, ordinal_, "making a stream");
  reclaim_ = std::make_unique<CudaStream>(ordinal_, native, true);
  const Result<Stream> own = new_stream();
  if (!own) return own.error();
  LOCKSTEP_CHECK_EQ(own->handle, std::uint64_t{0});
  return meet_others();
}

// Two devices of one GPU need nothing: each of them reaches all of its memory.
Status CudaDevice::meet_others() {
  OpenDevices& devices = open_devices();
  const platform::MutexLock lock(devices.mutex);
  LOCKSTEP_CHECK(std::find(devices.list.begin(), devices.list.end(), this) == devices.list.end());
  for (CudaDevice* const other : devices.list) {
    if (other->ordinal_ == ordinal_) continue;
    LOCKSTEP_RETURN_IF_ERROR(open_pool(pool_, ordinal_, other->ordinal_));
    LOCKSTEP_RETURN_IF_ERROR(open_pool(other->pool_, other->ordinal_, ordinal_));
  }
  devices.list.push_back(this);
  return {};
}

CudaDevice::~CudaDevice() {
  {
    OpenDevices& devices = open_devices();
    const platform::MutexLock lock(devices.mutex);
    std::erase(devices.list, this);
  }
  const CurrentDevice current(ordinal_);
  // Freeing memory would wait for the GPU, and a stream that is stuck may still use its memory.
  if (is_left_.load() || !becomes_idle(Deadline::in(kTeardown))) {
    for (const auto& line : lines_) line->stream.abandon();
    if (reclaim_) reclaim_->abandon();
    return;
  }
  LOCKSTEP_CHECK_EQ(allocated_.load(), std::uint64_t{0});
  for (const auto& [data, kept] : allocations_) {
    LOCKSTEP_CHECK(kept.is_kept);
    cudaFreeAsync(const_cast<std::byte*>(data), reclaim_->native());
  }
  for (const auto& line : lines_) free_staging(*line);
  for (const auto& [capacity, data] : spare_pinned_) cudaFreeHost(data);
  lines_.clear();
  reclaim_.reset();
  if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
}

// Whether all streams complete what was submitted. A stream that failed does nothing more.
bool CudaDevice::becomes_idle(Deadline deadline) {
  std::vector<CudaStream*> streams;
  for (const auto& line : lines_) streams.push_back(&line->stream);
  if (reclaim_) streams.push_back(reclaim_.get());
  for (CudaStream* stream : streams)
    while (!stream->is_idle()) {
      if (deadline.passed()) return false;
      nap(deadline);
    }
  return true;
}

void CudaDevice::nap(Deadline deadline) {
  platform::MutexLock lock(nap_mutex_);
  nap_.wait(nap_mutex_, Deadline::in(std::min<platform::Duration>(kNap, deadline.remaining())),
            [] { return false; });
}

Result<Ref<Storage>> CudaDevice::allocate(std::size_t bytes) {
  const CurrentDevice current(ordinal_);
  const std::uint64_t home = current_.load();
  void* memory = nullptr;
  // A storage without elements needs an address, too, because storages are found by it.
  const int error = cudaMallocFromPoolAsync(&memory, std::max<std::size_t>(bytes, 1), pool_,
                                            line_at(home).stream.native());
  if (error != cudaSuccess)
    return failed(cuda_failure(error, ordinal_,
                               "allocating " + std::to_string(bytes) + " bytes of a tensor"));
  auto* data = static_cast<std::byte*>(memory);
  bool is_known = false;
  try {
    {
      platform::MutexLock lock(mutex_);
      // release() forgets an address before the GPU may give it out again.
      const bool is_new = allocations_.try_emplace(data, Allocation{bytes, home, 0, false}).second;
      LOCKSTEP_CHECK(is_new);
    }
    is_known = true;
    allocated_ += bytes;
    return make_ref<Storage>(*this, data, bytes);
  } catch (const std::bad_alloc&) {  // The host's memory ran out.
    if (is_known)
      release(data, bytes);
    else
      cudaFreeAsync(data, line_at(home).stream.native());
    throw;
  }
}

void CudaDevice::release(std::byte* data, std::size_t bytes) {
  const CurrentDevice current(ordinal_);
  Allocation allocation;
  {
    platform::MutexLock lock(mutex_);
    const auto found = allocations_.find(data);
    if (found == allocations_.end()) return;  // The memory belongs to somebody else.
    LOCKSTEP_CHECK_EQ(found->second.bytes, bytes);
    LOCKSTEP_CHECK(!found->second.is_kept);
    found->second.is_kept = true;
    allocation = found->second;
  }
  allocated_ -= bytes;
  CudaStream& home = line_at(allocation.home).stream;
  CudaStream* where = &home;
  if (allocation.used_by != 0) {
    where = reclaim_.get();
    int error = where->follow(home, home.record());
    for (std::uint64_t handle = 0; handle < kMaxStreams && error == cudaSuccess; ++handle) {
      if ((allocation.used_by >> handle & 1) == 0) continue;
      CudaStream& user = line_at(handle).stream;
      error = where->follow(user, user.record());
    }
    home.fail(error, "waiting for those that used memory, which is kept until the device ends");
    if (error != cudaSuccess) return;
  }
  {
    // Once the memory is free, another thread may receive the same address.
    platform::MutexLock lock(mutex_);
    allocations_.erase(data);
  }
  home.fail(cudaFreeAsync(data, where->native()), "giving memory back");
}

Result<PinnedMemory> CudaDevice::allocate_pinned(std::size_t bytes) {
  if (is_too_large(bytes)) return failed(out_of_memory());
  const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  LOCKSTEP_CHECK_LE(bytes, capacity);
  {
    platform::MutexLock lock(mutex_);
    const auto spare = spare_pinned_.find(capacity);
    if (spare != spare_pinned_.end()) {
      PinnedMemory memory(*this, spare->second, bytes, capacity);
      spare_pinned_.erase(spare);
      return memory;
    }
  }
  const CurrentDevice current(ordinal_);
  void* memory = nullptr;
  const int error = cudaHostAlloc(&memory, capacity, cudaHostAllocPortable);
  if (error == cudaSuccess)
    return PinnedMemory(*this, static_cast<std::byte*>(memory), bytes, capacity);
  return failed(cuda_failure(error, ordinal_,
                             "allocating " + std::to_string(bytes) + " bytes of pinned memory"));
}

void CudaDevice::release_pinned(std::byte* data, std::size_t capacity) {
  platform::MutexLock lock(mutex_);
  spare_pinned_.emplace(capacity, data);
}

Result<Stream> CudaDevice::new_stream() {
  {
    platform::MutexLock lock(mutex_);
    if (!spare_.empty()) {
      const Stream again{this, spare_.back()};
      spare_.pop_back();
      LOCKSTEP_CHECK_LT(again.handle, lines_.size());
      return again;
    }
  }
  const CurrentDevice current(ordinal_);
  CUstream_st* native = nullptr;
  const int error = cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking);
  if (error != cudaSuccess) return failed(cuda_failure(error, ordinal_, "making a stream"));
  Result<std::uint64_t> handle = add_line(native, true);
  if (!handle) return failed(std::move(handle.error()));
  return Stream{this, *handle};
}

// The next user of the stream must not receive a failure that this user has not asked for.
void CudaDevice::give_back(const Stream& stream) {
  LOCKSTEP_CHECK(stream.device == this);
  LOCKSTEP_CHECK(stream.handle != current_.load());
  Line& line = line_of(stream);
  LOCKSTEP_CHECK(line.is_owned);
  {
    const CurrentDevice current(ordinal_);
    static_cast<void>(line.stream.take_failure(line.stream.record()));
  }
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK(std::find(spare_.begin(), spare_.end(), stream.handle) == spare_.end());
  spare_.push_back(stream.handle);
}

Result<Stream> CudaDevice::adopt(CUstream_st* native) {
  const CurrentDevice current(ordinal_);
  Result<std::uint64_t> handle = add_line(native, false);
  if (!handle) return failed(std::move(handle.error()));
  return Stream{this, *handle};
}

// From here on the device owns a native stream that is marked as owned, whatever the result is.
Result<std::uint64_t> CudaDevice::add_line(CUstream_st* native, bool is_owned) {
  auto line = std::make_unique<Line>(ordinal_, native, is_owned);
  const platform::MutexLock lock_of_line(line->mutex);
  Status status;
  for (int i = 0; i < kTables && status.ok(); ++i) status = add_staging(*line, kTableBytes);
  if (status.ok()) {
    platform::MutexLock lock(mutex_);
    if (lines_.size() < kMaxStreams) {
      lines_.push_back(std::move(line));
      line_count_ = lines_.size();
      return lines_.size() - 1;
    }
    status = Status(Code::kInvalidArgument, "CUDA device " + std::to_string(ordinal_) +
                                                " has 63 streams already, and no more");
  }
  free_staging(*line);
  return failed(std::move(status));
}

// Allocating pinned memory may make the driver wait for all that runs, so launches avoid it where
// possible.
Status CudaDevice::add_staging(Line& line, std::size_t bytes) LOCKSTEP_REQUIRES(line.mutex) {
  Staging made;
  made.capacity = std::bit_ceil(std::max(bytes, kTableBytes));
  LOCKSTEP_CHECK_LE(bytes, made.capacity);
  void* host = nullptr;
  void* device = nullptr;
  int error = cudaHostAlloc(&host, made.capacity, cudaHostAllocPortable);
  if (error == cudaSuccess) {
    error = cudaMallocFromPoolAsync(&device, made.capacity, pool_, line.stream.native());
    if (error != cudaSuccess) cudaFreeHost(host);
  }
  if (error != cudaSuccess)
    return cuda_failure(error, ordinal_, "allocating memory for the tables of kernels");
  made.host = static_cast<std::byte*>(host);
  made.device = static_cast<std::byte*>(device);
  line.staging.push_back(made);
  return {};
}

void CudaDevice::free_staging(Line& line) LOCKSTEP_REQUIRES(line.mutex) {
  for (const Staging& staging : line.staging) {
    cudaFreeHost(staging.host);
    cudaFreeAsync(staging.device, line.stream.native());
  }
  line.staging.clear();
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

void* CudaDevice::native(const Stream& stream) { return line_of(stream).stream.native(); }

Event CudaDevice::record(const Stream& stream) {
  const CurrentDevice current(ordinal_);
  const std::uint64_t point = line_of(stream).stream.record();
  LOCKSTEP_CHECK_LE(point, kPointMask);
  return {this, stream.handle << kPointBits | point};
}

void CudaDevice::wait(const Stream& stream, const Event& event) {
  if (event.device == nullptr) return;
  auto* const other = dynamic_cast<CudaDevice*>(event.device);
  LOCKSTEP_CHECK(other != nullptr);
  const CurrentDevice current(ordinal_);
  line_of(stream).stream.wait(other->line_at(event.handle >> kPointBits).stream,
                              event.handle & kPointMask);
}

Status CudaDevice::synchronize(const Event& event, Deadline deadline) {
  if (event.device == nullptr) return {};
  LOCKSTEP_CHECK(event.device == this);
  const CurrentDevice current(ordinal_);
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
  const CurrentDevice current(ordinal_);
  Line& line = line_of(stream);
  const platform::MutexLock lock(line.mutex);
  note_use(line, stream.handle, data);
}

// Returns the range of memory that the stream is now known to use; empty when `data` is not memory
// of this device.
CudaDevice::Range CudaDevice::note_use(Line& user, std::uint64_t handle, const std::byte* data)
    LOCKSTEP_REQUIRES(user.mutex) {
  LOCKSTEP_CHECK_LT(handle, kMaxStreams);
  // There is only one stream, so it is the home of every storage.
  if (line_count_.load() == 1) return {};
  CudaStream* home = nullptr;
  Range range;
  {
    platform::MutexLock lock(mutex_);
    auto found = allocations_.upper_bound(data);
    if (found == allocations_.begin()) return {};
    auto& [start, allocation] = *--found;
    range = {start, start + std::max<std::size_t>(allocation.bytes, 1)};
    if (!range.has(data)) return {};
    const std::uint64_t bit = std::uint64_t{1} << handle;
    if (allocation.home == handle || (allocation.used_by & bit) != 0) return range;
    allocation.used_by |= bit;
    home = &lines_[allocation.home]->stream;
  }
  const int error = user.stream.follow(*home, home->record());
  user.stream.fail(error, "waiting for the stream that memory belongs to");
  return range;
}

void CudaDevice::note_uses(Line& user, const Stream& stream, const Tensor& from, const Tensor& to)
    LOCKSTEP_REQUIRES(user.mutex) {
  LOCKSTEP_CHECK(&from.device() == this);
  LOCKSTEP_CHECK(&to.device() == this);
  note_use(user, stream.handle, from.data());
  note_use(user, stream.handle, to.data());
}

void CudaDevice::note_uses(Line& user, const Stream& stream, std::span<const Transfer> transfers)
    LOCKSTEP_REQUIRES(user.mutex) {
  Range gradients;  // The transfers belong to one bucket, and often the gradients to one storage.
  Range slots;
  for (const Transfer& transfer : transfers) {
    LOCKSTEP_CHECK(&transfer.gradient->device() == this);
    const std::byte* const gradient = transfer.gradient->data();
    if (!gradients.has(gradient)) gradients = note_use(user, stream.handle, gradient);
    if (!slots.has(transfer.slot)) slots = note_use(user, stream.handle, transfer.slot);
  }
}

void CudaDevice::fill_zero(const Stream& stream, std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  const CurrentDevice current(ordinal_);
  Line& line = line_of(stream);
  const platform::MutexLock lock(line.mutex);
  note_use(line, stream.handle, data);
  line.stream.fail(cudaMemsetAsync(data, 0, bytes, line.stream.native()), "filling with zeros");
}

// Plans work on what the stream then uses, and launches it.
template <class Plan, class... Used>
void CudaDevice::launch(const Stream& stream, const Plan& plan, const Used&... used) {
  const CurrentDevice current(ordinal_);
  Line& line = line_of(stream);
  const platform::MutexLock lock(line.mutex);
  note_uses(line, stream, used...);
  plan(line.plan);
  launch(line);
}

void CudaDevice::copy(const Stream& stream, const Tensor& from, const Tensor& to) {
  launch(
      stream, [&](LaunchPlan& plan) { plan_copy(plan, from, to); }, from, to);
}

void CudaDevice::add(const Stream& stream, const Tensor& from, const Tensor& to) {
  launch(
      stream, [&](LaunchPlan& plan) { plan_add(plan, from, to); }, from, to);
}

void CudaDevice::pack_bucket(const Stream& stream, std::span<const Transfer> transfers,
                             double factor) {
  launch(
      stream, [&](LaunchPlan& plan) { plan_gather(plan, transfers, factor); }, transfers);
}

void CudaDevice::unpack_bucket(const Stream& stream, std::span<const Transfer> transfers) {
  launch(
      stream, [&](LaunchPlan& plan) { plan_scatter(plan, transfers); }, transfers);
}

void CudaDevice::convert(const Stream& stream, const Tensor& from, const Tensor& to,
                         double factor) {
  launch(
      stream, [&](LaunchPlan& plan) { plan_convert(plan, from, to, factor); }, from, to);
}

void CudaDevice::reduce_in_rank_order(const Stream& stream, const Tensor& from, const Tensor& to,
                                      double factor) {
  launch(
      stream, [&](LaunchPlan& plan) { plan_fold(plan, from, to, factor); }, from, to);
}

// Launches the line's plan.
void CudaDevice::launch(Line& line) LOCKSTEP_REQUIRES(line.mutex) {
  LaunchPlan& plan = line.plan;
  if (plan.empty()) return;
  Staging* staging = nullptr;
  if (plan.far_bytes() != 0) {
    staging = stage(line);
    if (staging == nullptr) return;
  }
  const kernels::ManySegments& argument =
      plan.argument(staging == nullptr ? nullptr : staging->device);
  const int error =
      kernels::launch(plan.operation(), plan.blocks(), argument, line.stream.native());
  line.stream.fail(error, "launching a kernel");
  if (staging != nullptr) staging->until = line.stream.record();
}

// Copies the table of the line's plan to the GPU. When no staging memory is free it adds one more,
// so there are as many as launches were pending on the GPU at once. It returns null, and records a
// failure of the stream, when there is no memory for it.
CudaDevice::Staging* CudaDevice::stage(Line& line) LOCKSTEP_REQUIRES(line.mutex) {
  const std::size_t bytes = line.plan.far_bytes();
  CudaStream& stream = line.stream;
  auto found = std::find_if(line.staging.begin(), line.staging.end(), [&](const Staging& staging) {
    return staging.capacity >= bytes && stream.surely_passed(staging.until);
  });
  if (found == line.staging.end()) {
    if (Status status = add_staging(line, bytes); !status.ok()) {
      stream.fail(std::move(status));
      return nullptr;
    }
    found = std::prev(line.staging.end());
  }
  LOCKSTEP_CHECK_LE(bytes, found->capacity);
  line.plan.write_far(found->host);
  const int error =
      cudaMemcpyAsync(found->device, found->host, bytes, cudaMemcpyHostToDevice, stream.native());
  stream.fail(error, "copying the table of a kernel");
  return error == cudaSuccess ? &*found : nullptr;
}

void CudaDevice::upload(const Stream& stream, const PinnedMemory& from, std::size_t offset,
                        std::byte* to, std::size_t bytes) {
  LOCKSTEP_CHECK_LE(offset, from.bytes());
  LOCKSTEP_CHECK_LE(bytes, from.bytes() - offset);
  if (bytes == 0) return;
  const CurrentDevice current(ordinal_);
  Line& line = line_of(stream);
  const platform::MutexLock lock(line.mutex);
  note_use(line, stream.handle, to);
  const int error = cudaMemcpyAsync(to, from.data() + offset, bytes, cudaMemcpyHostToDevice,
                                    line.stream.native());
  line.stream.fail(error, "copying to the GPU");
}

void CudaDevice::download(const Stream& stream, const std::byte* from, const PinnedMemory& to,
                          std::size_t offset, std::size_t bytes) {
  LOCKSTEP_CHECK_LE(offset, to.bytes());
  LOCKSTEP_CHECK_LE(bytes, to.bytes() - offset);
  if (bytes == 0) return;
  const CurrentDevice current(ordinal_);
  Line& line = line_of(stream);
  const platform::MutexLock lock(line.mutex);
  note_use(line, stream.handle, from);
  const int error = cudaMemcpyAsync(to.data() + offset, from, bytes, cudaMemcpyDeviceToHost,
                                    line.stream.native());
  line.stream.fail(error, "copying from the GPU");
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
