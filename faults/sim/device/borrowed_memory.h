// BorrowedMemory: the device of storages over memory that has another owner. The operands of a
// queued operation are tensors of such storages: they access the bytes and keep nothing alive, so
// that a premature release is detected. This device can neither allocate nor submit.
#pragma once

#include "reducer/base/check.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

class BorrowedMemory final : public Device {
 public:
  int index() const override { return 0; }
  Result<Ref<Storage>> allocate(std::size_t) override {
    return failed(Status(Code::kInternal, "borrowed memory cannot be allocated"));
  }
  void release(std::byte*, std::size_t) override {}
  std::uint64_t allocated_bytes() const override { return 0; }

  Result<PinnedMemory> allocate_pinned(std::size_t) override {
    return failed(Status(Code::kInternal, "borrowed memory cannot be allocated"));
  }
  void release_pinned(std::byte*, std::size_t) override {}

  Stream current_stream() override { return {this, 0}; }
  Result<Stream> new_stream() override { return Stream{this, 0}; }
  void* native(const Stream&) override { return nullptr; }
  void note_use(const Stream&, const std::byte*) override {}
  Event record(const Stream&) override { return {}; }
  void wait(const Stream&, const Event&) override {}
  Status synchronize(const Event&, platform::Deadline) override { return {}; }

  void fill_zero(const Stream&, std::byte*, std::size_t) override { refuse(); }
  void copy(const Stream&, const Tensor&, const Tensor&) override { refuse(); }
  void add(const Stream&, const Tensor&, const Tensor&) override { refuse(); }
  void pack_bucket(const Stream&, std::span<const Transfer>, double) override { refuse(); }
  void convert(const Stream&, const Tensor&, const Tensor&, double) override { refuse(); }
  void unpack_bucket(const Stream&, std::span<const Transfer>) override { refuse(); }
  void reduce_in_rank_order(const Stream&, const Tensor&, const Tensor&, double) override {
    refuse();
  }
  void upload(const Stream&, const PinnedMemory&, std::size_t, std::byte*, std::size_t) override {
    refuse();
  }
  void download(const Stream&, const std::byte*, const PinnedMemory&, std::size_t,
                std::size_t) override {
    refuse();
  }

 private:
  static void refuse() {
    const bool is_a_device_that_computes = false;
    LOCKSTEP_CHECK(is_a_device_that_computes);
  }
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
