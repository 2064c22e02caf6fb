// MirrorPeerGroup is a group of ranks in one process, of which only rank 0 runs. The others are
// simulated and always hold the same data, so a sum multiplies by the number of ranks. A group of
// one rank sums the memory of any device, since nothing changes. Its collectives are complete when
// start() returns. It allocates nothing and records nothing, for programs that count allocations or
// launches, or measure time. One thread uses it. (ScriptedGroup, in test_ranks.h, records the calls
// that it receives.)
#pragma once

#include <algorithm>
#include <chrono>

#include "reducer/base/check.h"
#include "reducer/comm/process_group.h"
#include "reducer/device/device.h"

namespace lockstep {

class MirrorPeerGroup final : public ProcessGroup {
 public:
  explicit MirrorPeerGroup(int size = 2) : size_(size) { LOCKSTEP_CHECK_LT(0, size); }
  int rank() const override { return 0; }
  int size() const override { return size_; }
  bool can_reduce(DType) const override { return true; }
  bool can_reach(const Device& device) const override { return size_ == 1 || device.is_host(); }
  // Nothing changes on the way, since the data stays in memory.
  bool can_verify() const override { return true; }
  void abort(const Status&) override {}
  platform::Duration timeout() const override { return std::chrono::seconds(30); }
  Status start(const Collective& c, Work& work) override {
    LOCKSTEP_CHECK(c.factor == 1.0);  // The group cannot scale.
    LOCKSTEP_CHECK(c.count == 0 || c.data != nullptr);
    const bool is_gather = c.op == Op::kAllGather && c.count > 0;
    if (is_gather && c.device != nullptr && !c.device->is_host())
      return Status(Code::kInvalidArgument, "a mirror peer group gathers the host's memory alone");
    work.begin(sequence_++);
    if (is_gather) {
      const std::size_t bytes = c.count * size_of(c.dtype);
      for (int r = 0; r < size_; ++r)
        std::copy_n(c.data, bytes, c.gathered + static_cast<std::size_t>(r) * bytes);
    } else if (size_ > 1 && c.op == Op::kAllReduceSum && c.dtype == DType::kFloat32) {
      multiply(reinterpret_cast<float*>(c.data), c.count);
    } else if (size_ > 1 && c.op == Op::kAllReduceSum && c.dtype == DType::kInt32) {
      multiply(reinterpret_cast<std::int32_t*>(c.data), c.count);
    }
    work.complete(Status());
    return {};
  }

 private:
  template <class T>
  void multiply(T* data, std::uint64_t count) const {
    for (std::uint64_t i = 0; i < count; ++i) data[i] *= static_cast<T>(size_);
  }

  const int size_;
  std::int64_t sequence_ = 0;
};

}  // namespace lockstep
