// HostDevice is the memory and arithmetic of the CPU. Everything runs at once on the calling
// thread, and events are always complete. Arithmetic has the bits of contract G9 whatever rounding
// or flush-to-zero mode the application has set for that thread (base/float_environment.h). A
// process may have several host devices; their indices give each its own engine worker.
#pragma once

#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// What new memory holds until something writes to it. Fresh pages of the system are zeros by luck;
// with kNaN every byte is 0xff, which is a NaN in each dtype, so that a test sees what reads memory
// that nobody has written.
enum class FreshMemory : std::uint8_t { kUnspecified, kNaN };

class HostDevice : public Device {
 public:
  explicit HostDevice(int index = 0, FreshMemory fresh = FreshMemory::kUnspecified)
      : index_(index), fresh_(fresh) {}
  explicit HostDevice(FreshMemory fresh) : HostDevice(0, fresh) {}
  ~HostDevice() override;

  int index() const override { return index_; }
  bool is_host() const override { return true; }
  Result<Ref<Storage>> allocate(std::size_t bytes) override;
  void release(std::byte* data, std::size_t bytes) override;
  std::uint64_t allocated_bytes() const override { return allocated_.load(); }
  Result<PinnedMemory> allocate_pinned(std::size_t bytes) override;
  void release_pinned(std::byte* data, std::size_t capacity) override;

  Stream current_stream() override { return {this, 0}; }
  // All work is done when its call returns.
  Result<Stream> new_stream() override { return Stream{this, 0}; }
  void* native(const Stream&) override { return nullptr; }
  void note_use(const Stream&, const std::byte*) override {}
  Event record(const Stream&) override { return {}; }
  void wait(const Stream&, const Event&) override {}
  Status synchronize(const Event&, platform::Deadline) override { return {}; }

  void fill_zero(const Stream& stream, std::byte* data, std::size_t bytes) override;
  void copy(const Stream& stream, const Tensor& from, const Tensor& to) override;
  void add(const Stream& stream, const Tensor& from, const Tensor& to) override;
  void pack_bucket(const Stream& stream, std::span<const Transfer> transfers,
                   double factor) override;
  void convert(const Stream& stream, const Tensor& from, const Tensor& to, double factor) override;
  void unpack_bucket(const Stream& stream, std::span<const Transfer> transfers) override;
  void reduce_in_rank_order(const Stream& stream, const Tensor& from, const Tensor& to,
                            double factor) override;
  void upload(const Stream& stream, const PinnedMemory& from, std::size_t offset, std::byte* to,
              std::size_t bytes) override;
  void download(const Stream& stream, const std::byte* from, const PinnedMemory& to,
                std::size_t offset, std::size_t bytes) override;

 private:
  int index_;
  FreshMemory fresh_;
  platform::Atomic<std::uint64_t> allocated_{0};
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
