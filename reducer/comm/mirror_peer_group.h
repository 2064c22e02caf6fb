// MirrorPeerGroup is a group of two ranks in one process. The other rank is simulated and always
// holds the same data, so a sum is a doubling. It allocates nothing and records nothing, for
// programs that count allocations or measure time. One thread uses it. (ScriptedGroup, in
// test_ranks.h, records the calls that it receives.)
#pragma once

#include <algorithm>

#include "reducer/comm/process_group.h"

namespace lockstep {

class MirrorPeerGroup final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool can_reduce(DType) const override { return true; }
  // Nothing changes on the way, since the data stays in memory.
  bool can_verify() const override { return true; }
  void abort(const Status&) override {}
  platform::Duration timeout() const override { return std::chrono::seconds(30); }
  Status start(const Collective& c, Work& work) override {
    work.begin(sequence_++);
    if (c.op == Op::kAllGather) {
      // The count is in bytes, because only the exchange at construction gathers.
      std::copy_n(c.data, c.count, c.gathered);
      std::copy_n(c.data, c.count, c.gathered + c.count);
    } else if (c.op == Op::kAllReduceSum && c.dtype == DType::kFloat32) {
      twice(reinterpret_cast<float*>(c.data), c.count);
    } else if (c.op == Op::kAllReduceSum && c.dtype == DType::kInt32) {
      twice(reinterpret_cast<std::int32_t*>(c.data), c.count);
    }
    work.complete(Status());
    return {};
  }

 private:
  template <class T>
  static void twice(T* data, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) data[i] *= 2;
  }

  std::int64_t sequence_ = 0;
};

}  // namespace lockstep
