// Injector: says at every site of a run which faults of the plan fire there. The injector decides;
// others carry the faults out: the simulated network and process group (faults/sim), a decorated
// group on the gloo lane, and the harness for nodes.
//
// The sites of each rank are counted from begin_step(), or from begin_reset(). Between
// end_step() and the next of these calls (construction, connecting) nothing is counted and
// nothing fires, but from begin_connect() on faults of that connecting, of the store and of
// memory do; the requests for memory are counted on in the reset that follows. Each fault of the
// plan fires at most once in a run. After its exit a rank has no more sites. A plan is total:
// ranks are taken modulo the world, steps modulo the number of steps, and durations are limited
// to kMaxDurationUs.
//
// Threads: the injector has no thread and no lock. Where ranks are OS threads, use one injector
// with the whole plan per rank, or a mutex around it. Cost: at a site for which the rank has no
// fault in this step, the injector increments a counter and tests one value.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "faults/plan.h"

namespace lockstep::faults {

struct MessageFault {
  std::uint32_t delay_us = 0;
  bool stall = false;  // this message and all later ones of the link never arrive
  bool reset = false;  // the link breaks
};

struct OperationFault {
  std::uint32_t delay_us = 0;  // delay before the operation begins
  std::uint32_t pause_us = 0;  // the whole rank pauses for this long, now
  bool stall = false;
  bool error = false;
  bool exit = false;
  bool left_out = false;       // the others go on without the rank
  bool is_cut_off = false;     // ... which goes on, cut off from them, and does not stop
  std::uint32_t away_us = 0;   // ... for so long, or until the others are done if it is 0
  std::vector<Fault> of_host;  // faults that the host carries out begin now (is_of_host)
};

struct NodeFault {
  bool throws = false;
  std::uint32_t slow_us = 0;
};

struct StoreFault {
  std::uint32_t delay_us = 0;
  bool fails = false;
  std::optional<std::uint32_t> torn_at;  // of the value, only so many bytes arrive
};

class Injector {
 public:
  Injector() = default;
  Injector(const FaultPlan& plan, std::uint32_t world, std::uint32_t steps) {
    reset(plan, world, steps);
  }
  // Forgets the last run. `world` and `steps` must be at least 1.
  void reset(const FaultPlan& plan, std::uint32_t world, std::uint32_t steps);

  void begin_step(std::uint32_t rank, std::uint32_t step);
  // The group of a reset connects, after which the rank goes on with `step`; it may be behind the
  // last one.
  void begin_connect(std::uint32_t rank, std::uint32_t step);
  // The reset itself begins. Requests for memory are counted on.
  void begin_reset(std::uint32_t rank, std::uint32_t step);
  void end_step(std::uint32_t rank);  // or the reset
  // Says what the reducer of the rank does from now on. It holds until the next call.
  void set_state(std::uint32_t rank, ReducerState state) { ranks_[rank].state = state; }

  // Returns the faults of the next message of `rank`. `to` is its receiver; leave it out if the
  // caller does not know the receiver.
  MessageFault on_message(std::uint32_t rank, std::uint32_t to = kNoRank) {
    Rank& state = ranks_[rank];
    const std::uint32_t site = state.messages++;
    return state.armed[kMessages] == 0 ? MessageFault{} : fire_message(rank, to, site);
  }
  OperationFault on_operation(std::uint32_t rank) {
    Rank& state = ranks_[rank];
    const std::uint32_t site = state.operations++;
    return state.armed[kOperations] == 0 ? OperationFault{} : fire_operation(rank, site);
  }
  // The rank connects with the others, for a construction or a reset.
  std::vector<Fault> on_connect(std::uint32_t rank) {
    return ranks_[rank].armed[kConnects] == 0 ? std::vector<Fault>() : fire_connect(rank);
  }
  // Returns whether this call of the transport's library fails.
  bool on_call(std::uint32_t rank) {
    Rank& state = ranks_[rank];
    const std::uint32_t site = state.calls++;
    return state.armed[kCalls] != 0 && fire_call(rank, site);
  }
  // Returns whether this call of NCCL fails, with which the group of the rank connects.
  bool on_connect_call(std::uint32_t rank, ConnectCall call) {
    Rank& state = ranks_[rank];
    const std::uint32_t site = state.connect_calls[static_cast<std::size_t>(call)]++;
    return state.armed[kConnecting] != 0 && fire_connect_call(rank, call, site);
  }
  // Returns whether this request of the rank for memory is refused.
  bool on_memory(std::uint32_t rank) {
    Rank& state = ranks_[rank];
    const std::uint32_t site = state.requests++;
    return state.armed[kMemory] != 0 && fire_memory(rank, site);
  }
  // Code of the user runs, or a collective of the rank begins or has begun. Returns the fault by
  // which the user gives up here.
  std::optional<Fault> on_user_place(std::uint32_t rank) {
    Rank& state = ranks_[rank];
    const std::uint32_t site = state.user_places++;
    return state.armed[kUserPlaces] == 0 ? std::nullopt : fire_user_place(rank, site);
  }
  NodeFault on_node(std::uint32_t rank) {
    Rank& state = ranks_[rank];
    const std::uint32_t site = state.nodes++;
    return state.armed[kNodes] == 0 ? NodeFault{} : fire_node(rank, site);
  }

  // Returns the faults with which this call of the rank's communication hook fails. A hook asks for
  // HookCall::kFuture when it promises a future, and fails the future with that fault later.
  std::vector<Fault> on_hook(std::uint32_t rank, HookCall call) {
    Rank& state = ranks_[rank];
    const std::uint32_t site = state.hook_calls[static_cast<std::size_t>(call)]++;
    return state.armed[kHooks] == 0 ? std::vector<Fault>() : fire_hook(rank, call, site);
  }

  // A call of the rank's store. Only calls that write a value can tear one.
  StoreFault on_store(std::uint32_t rank, bool writes) {
    Rank& state = ranks_[rank];
    const std::uint32_t call = state.store_calls++;
    const std::uint32_t value = writes ? state.store_values++ : kNoSite;
    const bool is_armed = state.armed[kStoreCalls] != 0 || state.armed[kStoreValues] != 0;
    return is_armed || state.store_fails ? fire_store(rank, call, value) : StoreFault{};
  }

  // Returns the payload faults of this exchange. The caller carries each one out, and calls
  // note_effect() if it changed the bytes: only then the fault has fired.
  std::vector<Fault> on_exchange(std::uint32_t rank) {
    Rank& state = ranks_[rank];
    const std::uint32_t site = state.exchanges++;
    return state.armed[kExchanges] == 0 ? std::vector<Fault>() : fire_exchange(rank, site);
  }
  void note_effect(const Fault& fault) { count(fault); }
  bool has_plan() const { return !plan_.empty(); }
  bool has_stale() const { return has_stale_; }  // true if the sender must remember its last frames

  const Fired& fired() const { return fired_; }
  bool exited(std::uint32_t rank) const { return ranks_[rank].exited; }
  // After a stall the rank never answers again; its peers must go on without it.
  bool silenced(std::uint32_t rank) const { return ranks_[rank].silenced; }
  std::uint32_t world() const { return static_cast<std::uint32_t>(ranks_.size()); }

 private:
  static constexpr std::uint32_t kNoSite = ~std::uint32_t{0};
  enum Site {
    kMessages,
    kOperations,
    kConnects,
    kCalls,
    kNodes,
    kHooks,
    kExchanges,
    kConnecting,
    kStoreCalls,
    kStoreValues,
    kMemory,
    kUserPlaces,
    kSites
  };
  struct Rank {
    std::uint32_t messages = 0;
    std::uint32_t operations = 0;
    std::uint32_t calls = 0;
    std::uint32_t requests = 0;  // for memory
    std::uint32_t user_places = 0;
    std::uint32_t nodes = 0;
    std::uint32_t exchanges = 0;
    std::uint32_t store_calls = 0;
    std::uint32_t store_values = 0;
    bool store_fails = false;  // until the step or the reset ends
    std::array<std::uint32_t, kHookCalls> hook_calls{};
    std::array<std::uint32_t, kConnectCalls> connect_calls{};
    // How many faults of this step have not fired, by kind of site.
    std::array<std::uint32_t, kSites> armed{};
    std::uint32_t step = 0;
    ReducerState state = ReducerState::kUnknown;
    bool in_reset = false;
    bool exited = false;
    bool silenced = false;
    bool is_at(const Fault& fault, std::uint32_t rank) const {
      return fault.rank == rank && fault.step == step && fault.in_reset == in_reset;
    }
  };
  struct Planned {
    Fault fault;
    bool has_fired = false;
  };

  static Site site_of(Kind kind);
  static Site site_of(const Fault& fault) {
    const bool at_connect = fault.in_reset && acts_in_connect(fault.kind);
    return at_connect ? kConnects : site_of(fault.kind);
  }
  void begin(std::uint32_t rank, std::uint32_t step, bool in_reset);
  void count(const Fault& fault);
  template <class Act>
  void fire(std::uint32_t rank, Site kind_of_site, std::uint32_t site, Act act);
  MessageFault fire_message(std::uint32_t rank, std::uint32_t to, std::uint32_t site);
  OperationFault fire_operation(std::uint32_t rank, std::uint32_t site);
  std::vector<Fault> fire_connect(std::uint32_t rank);
  bool fire_call(std::uint32_t rank, std::uint32_t site);
  bool fire_connect_call(std::uint32_t rank, ConnectCall call, std::uint32_t site);
  bool fire_memory(std::uint32_t rank, std::uint32_t site);
  std::optional<Fault> fire_user_place(std::uint32_t rank, std::uint32_t site);
  NodeFault fire_node(std::uint32_t rank, std::uint32_t site);
  std::vector<Fault> fire_hook(std::uint32_t rank, HookCall call, std::uint32_t site);
  StoreFault fire_store(std::uint32_t rank, std::uint32_t call, std::uint32_t value);
  std::vector<Fault> fire_exchange(std::uint32_t rank, std::uint32_t site);

  std::vector<Planned> plan_;
  std::vector<Rank> ranks_;
  std::uint32_t steps_ = 1;
  bool has_stale_ = false;
  Fired fired_;
};

}  // namespace lockstep::faults
