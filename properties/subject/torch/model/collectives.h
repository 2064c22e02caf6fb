// The collectives that PyTorch's reducer starts, as an observer of its group counts them; part of
// the model in hook_model.cc. The functions are pure: any thread may call them, and none fails.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "reference/expectation.h"

namespace lockstep::properties::torch_model {

using Collectives = std::vector<reference::ExpectedCollective>;

// Appends those of a rebuild, with which rank 0 sends its order.
inline void append_rebuild(std::size_t parameters, std::size_t buckets, Collectives& out) {
  for (const std::uint64_t count : {parameters + 1, buckets}) {
    reference::ExpectedCollective& broadcast = out.emplace_back();
    broadcast.op = reference::ExpectedCollective::Op::kBroadcastOrder;
    broadcast.count = count;
  }
}

// Appends the all-reduce of a bucket. Buckets are counted in a step, which may have several passes.
inline void append_bucket(std::uint64_t count, reference::DType dtype, Collectives& out) {
  const auto is_bucket = [](const reference::ExpectedCollective& each) {
    return each.op == reference::ExpectedCollective::Op::kAllReduceBucket;
  };
  reference::ExpectedCollective next;
  next.bucket = static_cast<std::uint32_t>(std::count_if(out.begin(), out.end(), is_bucket));
  next.count = count;
  next.dtype = dtype;
  out.push_back(next);
}

// Appends the all-reduce of the usage map, `behind` collectives before the end.
inline void append_usage(std::size_t parameters, std::size_t behind, Collectives& out) {
  reference::ExpectedCollective usage;
  usage.op = reference::ExpectedCollective::Op::kAllReduceUsage;
  usage.count = parameters;
  out.insert(out.end() - static_cast<std::ptrdiff_t>(behind), usage);
}

}  // namespace lockstep::properties::torch_model
