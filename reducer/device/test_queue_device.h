// QueueDevice: for tests, a device that is as asynchronous as a card. Each
// stream is a thread that takes what was submitted in its order; the memory and the arithmetic are
// the host's. Memory that is released stays readable until the device ends.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "reducer/device/host/host_device.h"

namespace lockstep::testing {

class QueueDevice final : public Device {
 public:
  explicit QueueDevice(int index = 1) : index_(index) { add_line(); }
  ~QueueDevice() override {
    {
      std::lock_guard lock(mutex_);
      is_closing_ = true;
      changed_.notify_all();
    }
    for (auto& line : lines_) line->thread.join();
  }

  int index() const override { return index_; }
  Result<Ref<Storage>> allocate(std::size_t bytes) override {
    std::lock_guard lock(mutex_);
    // Aligned as HostDevice does it, and full of NaNs.
    auto words = std::make_unique<Line64[]>(bytes / sizeof(Line64) + 1);
    std::byte* const data = words[0].bytes;
    std::memset(data, 0xff, bytes);
    memory_.push_back(std::move(words));
    return make_ref<Storage>(*this, data, bytes);
  }
  void release(std::byte*, std::size_t) override {}
  std::uint64_t allocated_bytes() const override { return 0; }
  Result<PinnedMemory> allocate_pinned(std::size_t bytes) override {
    return PinnedMemory(*this, new std::byte[bytes + 1], bytes, bytes);
  }
  void release_pinned(std::byte* data, std::size_t) override { delete[] data; }

  Stream current_stream() override { return {this, 0}; }
  Result<Stream> new_stream() override {
    add_line();
    std::lock_guard lock(mutex_);
    return Stream{this, lines_.size() - 1};
  }
  void give_back(const Stream&) override {
    std::lock_guard lock(mutex_);
    ++given_back_;
  }
  int given_back() {
    std::lock_guard lock(mutex_);
    return given_back_;
  }
  void* native(const Stream& stream) override {
    std::lock_guard lock(mutex_);
    return lines_[stream.handle].get();
  }
  void note_use(const Stream&, const std::byte*) override {}

  Event record(const Stream& stream) override {
    return {this, stream.handle << 32 | push(stream.handle, [] {})};
  }
  void wait(const Stream& stream, const Event& event) override {
    push(stream.handle, [this, event] {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return has_passed(event); });
    });
  }
  Status synchronize(const Event& event, platform::Deadline deadline) override {
    if (event.device == nullptr) return {};
    std::unique_lock lock(mutex_);
    const std::chrono::steady_clock::time_point until(deadline.at());
    const bool is_done =
        changed_.wait_until(lock, until, [&] { return has_passed(event) || !failure_.ok(); });
    if (!failure_.ok()) return failure_;
    return is_done ? Status() : Status(Code::kTimeout, "not yet");
  }
  // From now on the card is broken, and says so.
  void fail(const Status& failure) {
    std::lock_guard lock(mutex_);
    failure_ = failure;
    changed_.notify_all();
  }

  void fill_zero(const Stream& stream, std::byte* data, std::size_t bytes) override {
    push(stream.handle, [=] { std::memset(data, 0, bytes); });
  }
  void copy(const Stream& stream, const Tensor& from, const Tensor& to) override {
    push(stream.handle, [this, from, to] { host_.copy({}, from, to); });
  }
  void add(const Stream& stream, const Tensor& from, const Tensor& to) override {
    push(stream.handle, [this, from, to] { host_.add({}, from, to); });
  }
  void convert(const Stream& stream, const Tensor& from, const Tensor& to, double factor) override {
    push(stream.handle, [this, from, to, factor] { host_.convert({}, from, to, factor); });
  }
  void fold(const Stream& stream, const Tensor& from, const Tensor& to, double factor) override {
    push(stream.handle, [this, from, to, factor] { host_.fold({}, from, to, factor); });
  }
  void gather(const Stream& stream, std::span<const Transfer> transfers, double factor) override {
    push(stream.handle, [this, kept = kept_of(transfers), factor] {
      for (const Kept& each : kept) host_.gather({}, each.as_span(), factor);
    });
  }
  void scatter(const Stream& stream, std::span<const Transfer> transfers) override {
    push(stream.handle, [this, kept = kept_of(transfers)] {
      for (const Kept& each : kept) host_.scatter({}, each.as_span());
    });
  }
  void upload(const Stream& stream, const PinnedMemory& from, std::size_t offset, std::byte* to,
              std::size_t bytes) override {
    push(stream.handle, [data = from.data() + offset, to, bytes] { std::memcpy(to, data, bytes); });
  }
  void download(const Stream& stream, const std::byte* from, const PinnedMemory& to,
                std::size_t offset, std::size_t bytes) override {
    push(stream.handle,
         [from, data = to.data() + offset, bytes] { std::memcpy(data, from, bytes); });
  }

  // For the NCCL of the tests: work behind a stream that native() gave.
  static void submit(void* native, std::function<void()> body) {
    Line& line = *static_cast<Line*>(native);
    line.device->push(line.number, std::move(body));
  }

 private:
  struct alignas(64) Line64 {
    std::byte bytes[64];
  };
  // A transfer, for after the call.
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
  static std::vector<Kept> kept_of(std::span<const Transfer> transfers) {
    std::vector<Kept> kept;
    for (const Transfer& each : transfers) kept.push_back({*each.gradient, *each.order, each});
    return kept;
  }
  struct Line {
    QueueDevice* device = nullptr;
    std::uint64_t number = 0;
    std::deque<std::function<void()>> queue;
    std::uint64_t submitted = 0;
    std::uint64_t passed = 0;
    std::thread thread;
  };

  bool has_passed(const Event& event) const {
    return lines_[event.handle >> 32]->passed >= (event.handle & 0xffffffff);
  }
  std::uint64_t push(std::uint64_t number, std::function<void()> body) {
    std::lock_guard lock(mutex_);
    Line& line = *lines_[number];
    line.queue.push_back(std::move(body));
    changed_.notify_all();
    return ++line.submitted;
  }
  void add_line() {
    std::lock_guard lock(mutex_);
    lines_.push_back(std::make_unique<Line>());
    Line& line = *lines_.back();
    line.device = this;
    line.number = lines_.size() - 1;
    line.thread = std::thread([this, &line] { run(line); });
  }
  void run(Line& line) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_closing_ || !line.queue.empty(); });
      if (line.queue.empty()) return;
      const auto body = std::move(line.queue.front());
      line.queue.pop_front();
      lock.unlock();
      body();
      lock.lock();
      ++line.passed;
      changed_.notify_all();
    }
  }

  const int index_;
  HostDevice host_{-1};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Line>> lines_;
  std::vector<std::unique_ptr<Line64[]>> memory_;
  Status failure_;
  int given_back_ = 0;
  bool is_closing_ = false;
};

}  // namespace lockstep::testing
