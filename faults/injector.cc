#include "faults/injector.h"

#include <algorithm>
#include <cassert>

namespace lockstep::faults {

void Injector::reset(const FaultPlan& plan, std::uint32_t world, std::uint32_t steps) {
  world = std::max(world, 1U);
  steps_ = std::max(steps, 1U);
  plan_.clear();
  has_stale_ = false;
  for (Fault fault : plan.faults) {
    fault.rank %= world;
    fault.peer %= world;
    if (fault.peer == fault.rank && !is_network(fault.kind)) fault.peer = (fault.peer + 1) % world;
    has_stale_ = has_stale_ || fault.kind == Kind::kPayloadStale;
    fault.step %= steps_;
    fault.duration_us = std::min(fault.duration_us, kMaxDurationUs);
    plan_.push_back({fault, false});
  }
  ranks_.assign(world, Rank{});
  fired_ = Fired{};
}

Injector::Site Injector::site_of(Kind kind) {
  switch (kind) {
    case Kind::kMessageDelay:
    case Kind::kMessageStall:
    case Kind::kLinkReset:
      return kMessages;
    case Kind::kOperationDelay:
    case Kind::kOperationStall:
    case Kind::kOperationError:
    case Kind::kRankExit:
    case Kind::kRankPause:
    case Kind::kNetPartition:
    case Kind::kNetLoss:
    case Kind::kNetReset:
    case Kind::kNetReject:
    case Kind::kNetHalfOpen:
    case Kind::kNetBandwidth:
    case Kind::kNetMtu:
    case Kind::kNetDelay:
    case Kind::kNetCut:
    case Kind::kNodeStop:
    case Kind::kNodeMemory:
    case Kind::kNodeDescriptors:
    case Kind::kNodeClock:
    case Kind::kStoreFull:
    case Kind::kStoreDead:
    case Kind::kStoreSlow:
    case Kind::kRankReplaced:
    case Kind::kRankLeftOut:
      return kOperations;
    case Kind::kCallError:
      return kCalls;
    case Kind::kConnectError:
      return kConnecting;
    case Kind::kMemoryRefused:
      return kMemory;
    case Kind::kUserAbort:
      return kUserPlaces;
    case Kind::kNodeThrows:
    case Kind::kSlowThread:
      return kNodes;
    case Kind::kHookFails:
      return kHooks;
    case Kind::kStoreDelay:
    case Kind::kStoreError:
      return kStoreCalls;
    case Kind::kStoreTorn:
      return kStoreValues;
    case Kind::kPayloadFlip:
    case Kind::kPayloadTruncate:
    case Kind::kPayloadSwap:
    case Kind::kPayloadStale:
    case Kind::kPayloadShift:
      return kExchanges;
  }
  return kSites;
}

void Injector::begin_step(std::uint32_t rank, std::uint32_t step) {
  begin(rank, step % steps_, false);
}

void Injector::begin_reset(std::uint32_t rank, std::uint32_t step) {
  const std::uint32_t requests = ranks_[rank].requests;
  begin(rank, step, true);
  ranks_[rank].armed[kConnecting] = 0;
  ranks_[rank].requests = requests;
}

void Injector::begin_connect(std::uint32_t rank, std::uint32_t step) {
  begin(rank, step, true);
  auto& armed = ranks_[rank].armed;
  for (int site = 0; site < kSites; ++site)
    if (site != kConnecting && site != kStoreCalls && site != kStoreValues && site != kMemory)
      armed[static_cast<std::size_t>(site)] = 0;
}

void Injector::begin(std::uint32_t rank, std::uint32_t step, bool in_reset) {
  assert(rank < ranks_.size());
  Rank& state = ranks_[rank];
  state.messages = state.operations = state.calls = state.nodes = state.exchanges = 0;
  state.store_calls = state.store_values = state.requests = state.user_places = 0;
  state.store_fails = false;
  state.hook_calls.fill(0);
  state.connect_calls.fill(0);
  state.step = step;
  state.in_reset = in_reset;
  state.armed.fill(0);
  if (state.exited) return;
  for (const Planned& planned : plan_)
    if (state.is_at(planned.fault, rank) && !planned.has_fired)
      ++state.armed[site_of(planned.fault)];
}

void Injector::end_step(std::uint32_t rank) {
  assert(rank < ranks_.size());
  ranks_[rank].armed.fill(0);
  ranks_[rank].store_fails = false;
}

void Injector::count(const Fault& fault) {
  const auto kind = static_cast<std::size_t>(fault.kind);
  const auto state = static_cast<std::size_t>(ranks_[fault.rank].state);
  ++fired_.counts[kind];
  if (state < kReducerStates) ++fired_.in_state[kind][state];
}

template <class Act>
void Injector::fire(std::uint32_t rank, Site kind_of_site, std::uint32_t site, Act act) {
  Rank& state = ranks_[rank];
  for (Planned& planned : plan_) {
    const Fault& fault = planned.fault;
    const bool is_here =
        state.is_at(fault, rank) && fault.site == site && site_of(fault) == kind_of_site;
    if (!is_here || planned.has_fired) continue;
    planned.has_fired = true;
    --state.armed[kind_of_site];
    if (!is_payload(fault.kind) && !is_of_host(fault.kind)) count(fault);
    act(fault);
  }
  if (state.exited) state.armed.fill(0);
}

MessageFault Injector::fire_message(std::uint32_t rank, std::uint32_t to, std::uint32_t site) {
  MessageFault out;
  fire(rank, kMessages, site, [&](const Fault& fault) {
    if (fault.kind == Kind::kMessageDelay) out.delay_us += fault.duration_us;
    if (fault.kind != Kind::kMessageDelay) fired_.link_to = to;
    if (fault.kind == Kind::kLinkReset) out.reset = true;
    if (fault.kind == Kind::kMessageStall) {
      out.stall = true;
      ranks_[rank].silenced = true;
    }
  });
  return out;
}

OperationFault Injector::fire_operation(std::uint32_t rank, std::uint32_t site) {
  OperationFault out;
  fire(rank, kOperations, site, [&](const Fault& fault) {
    if (fault.kind == Kind::kOperationDelay) out.delay_us += fault.duration_us;
    if (fault.kind == Kind::kRankPause || fault.kind == Kind::kNodeStop)
      out.pause_us += fault.duration_us;
    if (fault.kind == Kind::kOperationError) out.error = true;
    if (is_of_host(fault.kind)) out.of_host.push_back(fault);
    if (fault.kind == Kind::kOperationStall) {
      out.stall = true;
      ranks_[rank].silenced = true;
    }
    if (fault.kind == Kind::kRankLeftOut) {
      out.left_out = true;
      out.is_cut_off = fault.at % 2 == 1;
      out.away_us = fault.duration_us;
    }
    if (ends_process(fault.kind)) {
      out.exit = true;
      ranks_[rank].exited = true;
    }
  });
  return out;
}

std::vector<Fault> Injector::fire_connect(std::uint32_t rank) {
  std::vector<Fault> out;
  Rank& state = ranks_[rank];
  for (Planned& planned : plan_) {
    const Fault& fault = planned.fault;
    if (site_of(fault) != kConnects || !state.is_at(fault, rank) || planned.has_fired) continue;
    planned.has_fired = true;
    --state.armed[kConnects];
    out.push_back(fault);
  }
  return out;
}

bool Injector::fire_call(std::uint32_t rank, std::uint32_t site) {
  bool fails = false;
  fire(rank, kCalls, site, [&](const Fault&) { fails = true; });
  return fails;
}

bool Injector::fire_connect_call(std::uint32_t rank, ConnectCall call, std::uint32_t site) {
  for (Planned& planned : plan_) {
    const Fault& fault = planned.fault;
    const bool is_here = fault.kind == Kind::kConnectError && ranks_[rank].is_at(fault, rank) &&
                         fault.site == site && connect_call(fault) == call;
    if (!is_here || planned.has_fired) continue;
    planned.has_fired = true;
    --ranks_[rank].armed[kConnecting];
    count(fault);
    return true;
  }
  return false;
}

bool Injector::fire_memory(std::uint32_t rank, std::uint32_t site) {
  bool is_refused = false;
  fire(rank, kMemory, site, [&](const Fault&) { is_refused = true; });
  return is_refused;
}

std::optional<Fault> Injector::fire_user_place(std::uint32_t rank, std::uint32_t site) {
  std::optional<Fault> first;
  fire(rank, kUserPlaces, site, [&](const Fault& fault) {
    if (!first) first = fault;
  });
  return first;
}

NodeFault Injector::fire_node(std::uint32_t rank, std::uint32_t site) {
  NodeFault out;
  fire(rank, kNodes, site, [&](const Fault& fault) {
    if (fault.kind == Kind::kNodeThrows) out.throws = true;
    if (fault.kind == Kind::kSlowThread) out.slow_us += fault.duration_us;
  });
  return out;
}

// Calls of start(), futures, and calls of finish() are counted separately.
std::vector<Fault> Injector::fire_hook(std::uint32_t rank, HookCall call, std::uint32_t site) {
  std::vector<Fault> out;
  Rank& state = ranks_[rank];
  for (Planned& planned : plan_) {
    const Fault& fault = planned.fault;
    const bool is_here = fault.kind == Kind::kHookFails && state.is_at(fault, rank) &&
                         fault.site == site && hook_call(fault) == call;
    if (!is_here || planned.has_fired) continue;
    planned.has_fired = true;
    --state.armed[kHooks];
    count(fault);
    out.push_back(fault);
  }
  return out;
}

StoreFault Injector::fire_store(std::uint32_t rank, std::uint32_t call, std::uint32_t value) {
  StoreFault out;
  Rank& state = ranks_[rank];
  fire(rank, kStoreCalls, call, [&](const Fault& fault) {
    if (fault.kind == Kind::kStoreDelay) out.delay_us += fault.duration_us;
    if (fault.kind == Kind::kStoreError) state.store_fails = true;
  });
  out.fails = state.store_fails;
  if (value != kNoSite && !out.fails)
    fire(rank, kStoreValues, value, [&](const Fault& fault) { out.torn_at = fault.at; });
  return out;
}

std::vector<Fault> Injector::fire_exchange(std::uint32_t rank, std::uint32_t site) {
  std::vector<Fault> out;
  fire(rank, kExchanges, site, [&](const Fault& fault) { out.push_back(fault); });
  return out;
}

}  // namespace lockstep::faults
