// QueueDevice plays a GPU on the host, as asynchronous as a real one: each stream is a thread that
// runs what was submitted in its order; the arithmetic is the host's. Tests use it, and so does the
// nccl lane where NCCL's GPU is played (faults/played_gpu).
//
// Its memory behaves like a GPU's: a read or write at an address that allocate() returned raises
// SIGSEGV. Code that simulates the GPU (this class, an NCCL of the tests, a test's kernel) finds
// the same bytes where reach() says; native() gives them to libraries. Released memory stays
// readable there until the device ends.
//
// The destructor waits for the streams. A device on the heap that was left to the process
// (leave_to_process()) is not destroyed when it is deleted: a kernel that does not end uses it.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "reducer/base/check.h"
#include "reducer/device/host/host_device.h"
#include "reducer/device/native_stream.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class QueueDevice final : public Device {
 public:
  explicit QueueDevice(int index = 1) : index_(index) {
    void* const memory =
        ::mmap(nullptr, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    LOCKSTEP_CHECK(memory != MAP_FAILED);
    addresses_ = static_cast<std::byte*>(memory);
    LOCKSTEP_CHECK_EQ(::mprotect(addresses_ + kBytes, kBytes, PROT_READ | PROT_WRITE), 0);
    add_line();
  }
  ~QueueDevice() override {
    {
      const platform::MutexLock lock(mutex_);
      is_closing_ = true;
      changed_.notify_all();
    }
    for (auto& line : lines_) line->thread.join();
    ::munmap(addresses_, 2 * kBytes);
  }
  static void operator delete(QueueDevice* device, std::destroying_delete_t) {
    if (device->is_left()) return;
    device->~QueueDevice();
    ::operator delete(device);
  }

  int index() const override { return index_; }
  Result<Ref<Storage>> allocate(std::size_t bytes) override {
    const platform::MutexLock lock(mutex_);
    LOCKSTEP_CHECK_LE(used_, kBytes - kAlignment);
    if (bytes >= kBytes - used_ - kAlignment) return failed(out_of_memory());
    std::byte* const data = addresses_ + used_;
    used_ += bytes / kAlignment * kAlignment + kAlignment;
    allocated_ += bytes;
    std::memset(reach(data), 0xff, bytes);  // These are NaNs.
    return make_ref<Storage>(*this, data, bytes);
  }
  void release(std::byte* data, std::size_t bytes) override {
    // Other memory belongs to a reachable() tensor.
    if (offset_of(data) < kBytes) allocated_ -= bytes;
  }
  std::uint64_t allocated_bytes() const override { return allocated_; }
  Result<PinnedMemory> allocate_pinned(std::size_t bytes) override {
    return PinnedMemory(*this, new std::byte[bytes + 1], bytes, bytes);
  }
  void release_pinned(std::byte* data, std::size_t) override { delete[] data; }

  Stream current_stream() override { return {this, 0}; }
  Result<Stream> new_stream() override {
    if (before_new_stream) before_new_stream();
    add_line();
    const platform::MutexLock lock(mutex_);
    return Stream{this, lines_.size() - 1};
  }
  void give_back(const Stream&) override {
    const platform::MutexLock lock(mutex_);
    ++given_back_;
  }
  int given_back() {
    const platform::MutexLock lock(mutex_);
    return given_back_;
  }
  void leave_to_process() override { is_left_.store(true); }
  bool is_left() const { return is_left_.load(); }
  void* native(const Stream& stream) override {
    const platform::MutexLock lock(mutex_);
    return static_cast<NativeStream*>(lines_[stream.handle].get());
  }
  void note_use(const Stream&, const std::byte*) override {}

  Event record(const Stream& stream) override {
    return {this, stream.handle << 32 | push(stream.handle, [] {})};
  }
  void wait(const Stream& stream, const Event& event) override {
    push(stream.handle, [this, event] {
      const platform::MutexLock lock(mutex_);
      changed_.wait(mutex_, platform::Deadline::never(),
                    [&]() LOCKSTEP_REQUIRES(mutex_) { return has_passed(event); });
    });
  }
  Status synchronize(const Event& event, platform::Deadline deadline) override {
    if (event.device == nullptr) return {};
    LOCKSTEP_CHECK(event.device == this);
    const platform::MutexLock lock(mutex_);
    const bool is_done = changed_.wait(mutex_, deadline, [&]() LOCKSTEP_REQUIRES(mutex_) {
      return has_passed(event) || !failure_.ok();
    });
    if (!failure_.ok()) return failure_;
    return is_done ? Status() : Status(Code::kTimeout, "not yet");
  }
  std::function<void()> before_new_stream;  // May be empty.

  // From now on the GPU is broken, and every synchronize() returns this failure.
  void fail(const Status& failure) {
    const platform::MutexLock lock(mutex_);
    failure_ = failure;
    changed_.notify_all();
  }

  void fill_zero(const Stream& stream, std::byte* data, std::size_t bytes) override {
    push(stream.handle, [to = reach(data), bytes] { std::memset(to, 0, bytes); });
  }
  void copy(const Stream& stream, const Tensor& from, const Tensor& to) override {
    push(stream.handle, [this, a = reachable(from), b = reachable(to)] { host_.copy({}, a, b); });
  }
  void add(const Stream& stream, const Tensor& from, const Tensor& to) override {
    push(stream.handle, [this, a = reachable(from), b = reachable(to)] { host_.add({}, a, b); });
  }
  void convert(const Stream& stream, const Tensor& from, const Tensor& to, double factor) override {
    push(stream.handle, [this, a = reachable(from), b = reachable(to), factor] {
      host_.convert({}, a, b, factor);
    });
  }
  void reduce_in_rank_order(const Stream& stream, const Tensor& from, const Tensor& to,
                            double factor) override {
    push(stream.handle, [this, a = reachable(from), b = reachable(to), factor] {
      host_.reduce_in_rank_order({}, a, b, factor);
    });
  }
  void pack_bucket(const Stream& stream, std::span<const Transfer> transfers,
                   double factor) override {
    push(stream.handle, [this, kept = kept_of(transfers), factor] {
      for (const Kept& each : kept) host_.pack_bucket({}, each.as_span(), factor);
    });
  }
  void unpack_bucket(const Stream& stream, std::span<const Transfer> transfers) override {
    push(stream.handle, [this, kept = kept_of(transfers)] {
      for (const Kept& each : kept) host_.unpack_bucket({}, each.as_span());
    });
  }
  void upload(const Stream& stream, const PinnedMemory& from, std::size_t offset, std::byte* to,
              std::size_t bytes) override {
    push(stream.handle, [data = from.data() + offset, there = reach(to), bytes] {
      std::memcpy(there, data, bytes);
    });
  }
  void download(const Stream& stream, const std::byte* from, const PinnedMemory& to,
                std::size_t offset, std::size_t bytes) override {
    push(stream.handle, [there = reach(from), data = to.data() + offset, bytes] {
      std::memcpy(data, there, bytes);
    });
  }

  // Returns where code that simulates the GPU finds what is at an address that the GPU returned.
  // Other addresses, which would be illegal on a GPU, end the program.
  std::byte* reach(const void* data) const {
    if (data == nullptr) return nullptr;
    const std::uintptr_t offset = offset_of(data);
    LOCKSTEP_CHECK_LE(offset, kBytes);
    return addresses_ + kBytes + offset;
  }
  static std::byte* reach(void* native, const void* data) {
    return line_of(native).device->reach(data);
  }

  // For the NCCL of the tests: submits work to a stream that native() returned.
  static void submit(void* native, std::function<void()> body) {
    Line& line = line_of(native);
    line.device->push(line.number, std::move(body));
  }

 private:
  // A copy of a transfer, which outlives the call.
  struct Kept {
    Tensor gradient;
    Shape order;
    mutable Transfer transfer;
    std::span<const Transfer> as_span() const {
      transfer.gradient = &gradient;
      transfer.order = &order;
      return {&transfer, 1};
    }
  };
  std::vector<Kept> kept_of(std::span<const Transfer> transfers) {
    std::vector<Kept> kept;
    for (const Transfer& each : transfers) {
      kept.push_back({reachable(*each.gradient), *each.order, each});
      kept.back().transfer.slot = reach(each.slot);
    }
    return kept;
  }
  std::uintptr_t offset_of(const void* data) const {
    return reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(addresses_);
  }
  // The tensor at an address where the arithmetic of the host can work on it.
  Tensor reachable(const Tensor& tensor) {
    const std::size_t bytes =
        static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype());
    return Tensor(make_ref<Storage>(*this, reach(tensor.data()), bytes), 0, tensor.dtype(),
                  tensor.shape());
  }
  struct Line : NativeStream {
    Line()
        : NativeStream{[](void* native, void (*body)(void*), void* data) {
                         QueueDevice::submit(native, [body, data] { body(data); });
                       },
                       QueueDevice::reach} {}
    QueueDevice* device = nullptr;
    std::uint64_t number = 0;
    std::deque<std::function<void()>> queue;
    std::uint64_t submitted = 0;
    std::uint64_t passed = 0;
    platform::Thread thread;
  };

  static Line& line_of(void* native) {
    return static_cast<Line&>(*static_cast<NativeStream*>(native));
  }
  bool has_passed(const Event& event) const LOCKSTEP_REQUIRES(mutex_) {
    return lines_[event.handle >> 32]->passed >= (event.handle & 0xffffffff);
  }
  std::uint64_t push(std::uint64_t number, std::function<void()> body) {
    const platform::MutexLock lock(mutex_);
    Line& line = *lines_[number];
    line.queue.push_back(std::move(body));
    changed_.notify_all();
    return ++line.submitted;
  }
  void add_line() {
    const platform::MutexLock lock(mutex_);
    lines_.push_back(std::make_unique<Line>());
    Line& line = *lines_.back();
    line.device = this;
    line.number = lines_.size() - 1;
    line.thread = platform::Thread("stream", [this, &line] { run(line); });
  }
  void run(Line& line) {
    const platform::MutexLock lock(mutex_);
    for (;;) {
      changed_.wait(mutex_, platform::Deadline::never(),
                    [&]() LOCKSTEP_REQUIRES(mutex_) { return is_closing_ || !line.queue.empty(); });
      if (line.queue.empty()) return;
      const auto body = std::move(line.queue.front());
      line.queue.pop_front();
      {
        const platform::MutexUnlock unlock(mutex_);
        body();
      }
      ++line.passed;
      LOCKSTEP_CHECK_LE(line.passed, line.submitted);
      changed_.notify_all();
    }
  }

  // The size of the address space. Each address is used once; memory that is not touched costs
  // nothing.
  static constexpr std::size_t kBytes = std::size_t{16} << 30;
  static constexpr std::size_t kAlignment = 64;

  const int index_;
  HostDevice host_{-1, FreshMemory::kNaN};
  std::byte* addresses_ = nullptr;  // kBytes that cannot be touched, then as many that can.
  std::size_t used_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  platform::Atomic<std::uint64_t> allocated_{0};
  platform::Atomic<bool> is_left_{false};
  mutable platform::Mutex mutex_{"queue device"};
  platform::CondVar changed_{"queue device"};
  std::vector<std::unique_ptr<Line>> lines_ LOCKSTEP_GUARDED_BY(mutex_);
  Status failure_ LOCKSTEP_GUARDED_BY(mutex_);
  int given_back_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool is_closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
