// EmulatedDevice: the kernels' bodies on the host, for tests. Plans are made as for a GPU; then a
// plain loop over blocks and threads, in an order that is not that of the numbers, does what a GPU
// would. Memory is the host's, each storage a piece of its own of just the bytes asked for, so that
// AddressSanitizer sees what goes beyond it; accesses of several elements that are not aligned, a
// fault on a GPU, fail a check.
#pragma once

#include <memory>
#include <new>
#include <vector>

#include "reducer/device/cuda/kernel_bodies.h"
#include "reducer/device/cuda/launch_plan.h"

namespace lockstep {

// Memory that is aligned for a table.
struct EmulatedFar {
  explicit EmulatedFar(const LaunchPlan& plan) : words((plan.far_bytes() + 7) / 8) {
    if (plan.far_bytes() != 0) plan.write_far(reinterpret_cast<std::byte*>(words.data()));
  }
  const std::byte* place() const {
    return words.empty() ? nullptr : reinterpret_cast<const std::byte*>(words.data());
  }
  std::vector<std::uint64_t> words;
};

template <class Op, class Segments>
void emulate_with(const Segments& argument, std::uint32_t blocks) {
  for (std::uint32_t b = 0; b < blocks; ++b)
    for (std::uint32_t t = 0; t < kernels::kThreads; ++t)
      kernels::run<Op>(argument, blocks - 1 - b, (t * 97 + b) % kernels::kThreads);
}

// A kernel for few segments is given no more of the argument than is its.
template <class Op>
void emulate_as(const kernels::ManySegments& argument, std::uint32_t blocks) {
  if (argument.table.near_bytes > kernels::kFewBytes) {
    LOCKSTEP_CHECK(Op::kTakesMany);
    return emulate_with<Op>(argument, blocks);
  }
  const auto few = std::make_unique<kernels::FewSegments>();
  few->table = argument.table;
  std::memcpy(few->near, argument.near, sizeof(few->near));
  emulate_with<Op>(*few, blocks);
}

inline void emulate(LaunchPlan& plan) {
  if (plan.empty()) return;
  const EmulatedFar far(plan);
  const kernels::ManySegments& argument = plan.argument(far.place());
  kernels::with_operation(plan.operation(),
                          [&]<class Op>(Op) { emulate_as<Op>(argument, plan.blocks()); });
}

// For one thread: there is one place to make plans in.
class EmulatedDevice : public Device {
 public:
  int index() const override { return 0; }
  Result<Ref<Storage>> allocate(std::size_t bytes) override {
    auto* data = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
    return make_ref<Storage>(*this, data, bytes);
  }
  void release(std::byte* data, std::size_t) override {
    ::operator delete (data, std::align_val_t{64});
  }
  std::uint64_t allocated_bytes() const override { return 0; }
  Stream current_stream() override { return {this, 0}; }
  Result<Stream> new_stream() override { return Stream{this, 0}; }
  void* native(const Stream&) override { return nullptr; }
  void note_use(const Stream&, const std::byte*) override {}
  Result<PinnedMemory> allocate_pinned(std::size_t) override { return failed(out_of_memory()); }
  void release_pinned(std::byte*, std::size_t) override {}
  void upload(const Stream&, const PinnedMemory&, std::size_t, std::byte*, std::size_t) override {}
  void download(const Stream&, const std::byte*, const PinnedMemory&, std::size_t,
                std::size_t) override {}
  Event record(const Stream&) override { return {}; }
  void wait(const Stream&, const Event&) override {}
  Status synchronize(const Event&, platform::Deadline) override { return {}; }
  void fill_zero(const Stream&, std::byte* data, std::size_t bytes) override {
    std::memset(data, 0, bytes);
  }

  void copy(const Stream&, const Tensor& from, const Tensor& to) override {
    plan_copy(plan_, from, to);
    run();
  }
  void add(const Stream&, const Tensor& from, const Tensor& to) override {
    plan_add(plan_, from, to);
    run();
  }
  void pack_bucket(const Stream&, std::span<const Transfer> transfers, double factor) override {
    plan_gather(plan_, transfers, factor);
    run();
  }
  void unpack_bucket(const Stream&, std::span<const Transfer> transfers) override {
    plan_scatter(plan_, transfers);
    run();
  }
  void convert(const Stream&, const Tensor& from, const Tensor& to, double factor) override {
    plan_convert(plan_, from, to, factor);
    run();
  }
  void reduce_in_rank_order(const Stream&, const Tensor& from, const Tensor& to,
                            double factor) override {
    plan_fold(plan_, from, to, factor);
    run();
  }

 protected:
  // What runs a plan: planted mistakes take its place.
  virtual void execute(LaunchPlan& plan) { emulate(plan); }

 private:
  void run() { execute(plan_); }
  LaunchPlan plan_;
};

}  // namespace lockstep
