#include "faults/plan.h"

namespace lockstep::faults {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kMessageDelay:
      return "message_delay";
    case Kind::kMessageStall:
      return "message_stall";
    case Kind::kOperationDelay:
      return "operation_delay";
    case Kind::kOperationStall:
      return "operation_stall";
    case Kind::kOperationError:
      return "operation_error";
    case Kind::kCallError:
      return "call_error";
    case Kind::kLinkReset:
      return "link_reset";
    case Kind::kRankExit:
      return "rank_exit";
    case Kind::kRankPause:
      return "rank_pause";
    case Kind::kNodeThrows:
      return "node_throws";
    case Kind::kSlowThread:
      return "slow_thread";
    case Kind::kHookFails:
      return "hook_fails";
    case Kind::kPayloadFlip:
      return "payload_flip";
    case Kind::kPayloadTruncate:
      return "payload_truncate";
    case Kind::kPayloadSwap:
      return "payload_swap";
    case Kind::kPayloadStale:
      return "payload_stale";
    case Kind::kPayloadShift:
      return "payload_shift";
    case Kind::kNetPartition:
      return "net_partition";
    case Kind::kNetLoss:
      return "net_loss";
    case Kind::kNetReset:
      return "net_reset";
    case Kind::kNetReject:
      return "net_reject";
    case Kind::kNetHalfOpen:
      return "net_half_open";
    case Kind::kNetBandwidth:
      return "net_bandwidth";
    case Kind::kNetMtu:
      return "net_mtu";
    case Kind::kNetDelay:
      return "net_delay";
    case Kind::kNetCut:
      return "net_cut";
    case Kind::kNodeStop:
      return "node_stop";
    case Kind::kNodeMemory:
      return "node_memory";
    case Kind::kNodeDescriptors:
      return "node_descriptors";
    case Kind::kNodeClock:
      return "node_clock";
    case Kind::kStoreFull:
      return "store_full";
    case Kind::kStoreDead:
      return "store_dead";
    case Kind::kStoreSlow:
      return "store_slow";
    case Kind::kRankReplaced:
      return "rank_replaced";
    case Kind::kRankLeftOut:
      return "rank_left_out";
  }
  return "unknown";
}

bool is_benign(Kind kind) {
  return kind == Kind::kMessageDelay || kind == Kind::kOperationDelay || kind == Kind::kRankPause ||
         kind == Kind::kSlowThread || kind == Kind::kNetBandwidth || kind == Kind::kNetDelay ||
         kind == Kind::kNodeClock || kind == Kind::kStoreSlow;
}

void Fired::add_counts(const Fired& other) {
  for (std::size_t kind = 0; kind < counts.size(); ++kind) {
    counts[kind] += other.counts[kind];
    for (std::size_t state = 0; state < in_state[kind].size(); ++state)
      in_state[kind][state] += other.in_state[kind][state];
  }
}

}  // namespace lockstep::faults
