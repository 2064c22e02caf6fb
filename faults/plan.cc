#include "faults/plan.h"

#include <cstddef>
#include <iterator>

namespace lockstep::faults {

const char* name_of(Kind kind) {
  // By Kind.
  static constexpr const char* kNames[] = {
      "message_delay", "message_stall", "operation_delay",  "operation_stall",  "operation_error",
      "call_error",    "link_reset",    "rank_exit",        "rank_pause",       "node_throws",
      "slow_thread",   "hook_fails",    "payload_flip",     "payload_truncate", "payload_swap",
      "payload_stale", "payload_shift", "connect_error",    "store_delay",      "store_error",
      "store_torn",    "net_partition", "net_loss",         "net_reset",        "net_reject",
      "net_half_open", "net_bandwidth", "net_mtu",          "net_delay",        "net_cut",
      "node_stop",     "node_memory",   "node_descriptors", "node_clock",       "store_full",
      "store_dead",    "store_slow",    "rank_replaced",    "rank_left_out",    "memory_refused",
      "user_abort"};
  static_assert(std::size(kNames) == kKinds);
  const auto index = static_cast<std::size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

const char* name_of(ConnectCall call) {
  switch (call) {
    case ConnectCall::kUniqueId: return "ncclGetUniqueId";
    case ConnectCall::kInit: return "ncclCommInitRankConfig";
    case ConnectCall::kShrink: return "ncclCommShrink";
    case ConnectCall::kAsyncError: return "ncclCommGetAsyncError";
    case ConnectCall::kCount: return "ncclCommCount";
    case ConnectCall::kUserRank: return "ncclCommUserRank";
    case ConnectCall::kCuDevice: return "ncclCommCuDevice";
  }
  return "unknown";
}

bool is_benign(Kind kind) {
  return kind == Kind::kMessageDelay || kind == Kind::kOperationDelay || kind == Kind::kRankPause ||
         kind == Kind::kSlowThread || kind == Kind::kNetBandwidth || kind == Kind::kNetDelay ||
         kind == Kind::kNodeClock || kind == Kind::kStoreSlow || is_store_call(kind);
}

void Fired::add_counts(const Fired& other) {
  for (std::size_t kind = 0; kind < counts.size(); ++kind) {
    counts[kind] += other.counts[kind];
    for (std::size_t state = 0; state < in_state[kind].size(); ++state)
      in_state[kind][state] += other.in_state[kind][state];
  }
}

}  // namespace lockstep::faults
