// SingleRankGroup is a group of one rank, whose sums equal their input, on any device. Its
// collectives are complete when start() returns. It is for programs that count launches or measure
// time. One thread uses it.
#pragma once

#include <chrono>
#include <cstring>

#include "reducer/comm/process_group.h"
#include "reducer/device/device.h"

namespace lockstep {

class SingleRankGroup final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool can_reduce(DType) const override { return true; }
  bool can_reach(const Device&) const override { return true; }
  void abort(const Status&) override {}
  platform::Duration timeout() const override { return std::chrono::seconds(30); }
  Status start(const Collective& c, Work& work) override {
    const bool is_gather = c.op == Op::kAllGather && c.count > 0;
    if (is_gather && c.device != nullptr && !c.device->is_host())
      return Status(Code::kInvalidArgument,
                    "the group of one rank gathers the host's memory alone");
    work.begin(sequence_++);
    if (is_gather) std::memcpy(c.gathered, c.data, c.count * size_of(c.dtype));
    work.complete(Status());
    return {};
  }

 private:
  std::int64_t sequence_ = 0;
};

}  // namespace lockstep
