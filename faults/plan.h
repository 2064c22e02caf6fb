// FaultPlan: which faults occur in one case, and when. It is plain data. The simulator (faults/sim)
// and the harness of real processes (properties/lane/real_environment.h, with faults/gloo and
// faults/nccl_net) carry it out. The comment on each kind names the lanes that support it.
//
// A plan is total: ranks are taken modulo the world, steps modulo the program's steps. A fault
// whose site is never visited does not fire. That is no error: the observation counts the faults
// that fired.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "faults/reducer_state.h"

namespace lockstep::faults {

// Over NCCL the net plug-in carries out the message faults and kOperationError. It counts the
// messages of each connection (properties/lane/nccl_plan.h).
enum class Kind : std::uint8_t {
  // sim, nccl: the site-th message that `rank` sends in the step arrives `duration_us` later.
  kMessageDelay,
  // sim, nccl: that message and all later ones on its link never arrive.
  kMessageStall,
  // sim, gloo, nccl: the site-th collective of `rank` in the step begins `duration_us` later.
  kOperationDelay,
  // sim, gloo, nccl: that collective never begins on `rank`.
  kOperationStall,
  // sim: the transport of `rank` fails at that collective. nccl: it fails at the site-th message.
  kOperationError,
  // sim, over its NCCL: the site-th library call with which `rank` carries out a collective in the
  // step does nothing and returns an error. sim, through host memory: the site-th wait of
  // `rank`'s group for its GPU in the step returns an error, and the GPU works on.
  kCallError,
  // sim, nccl: at that message the link to its receiver is reset, and both ends get an error.
  kLinkReset,
  // sim, gloo, nccl: the process of `rank` ends at the site-th collective of the step (SIGKILL).
  kRankExit,
  // sim, gloo, nccl: `rank` pauses for `duration_us` from that collective on (SIGSTOP).
  kRankPause,
  // sim, gloo, nccl: the site-th node that `rank` executes in the step throws.
  kNodeThrows,
  // sim, gloo, nccl: at that node the engine's worker sleeps for `duration_us`.
  kSlowThread,
  // sim, gloo, nccl: the communication hook of `rank` fails in one call of the step: the site-th
  // one of the kind that hook_call() returns. The plan chooses the error code
  // (properties/case/hook_error.h).
  kHookFails,
  // Payload faults act on verified collectives (F3). `site` counts the exchanges of frames of
  // `rank`, and the fault changes the frame that goes to `peer` in that exchange. sim and gloo
  // support all of them. nccl supports the first one, and there `site` counts messages.
  kPayloadFlip,      // bit number `at` is inverted
  kPayloadTruncate,  // all bytes from number `at` on are lost, and replaced by zeros
  // The frame and the one for the next rank (either may be the frame for this rank itself) change
  // places.
  kPayloadSwap,
  // The frame is replaced by the one of the exchange before, as far as that one reaches.
  kPayloadStale,
  // The frame is rotated by 1 + `at` bytes: its end wraps around to its beginning.
  kPayloadShift,
  // sim, over its NCCL: while the group connects with which `rank` goes on with the step after a
  // failure, the site-th call of the function connect_call() does nothing and returns an error. It
  // is always `in_reset`.
  kConnectError,
  // Faults of the store act on what `rank` does with the store of its group during the step. They
  // change nothing as long as nothing else fails, because a step needs no store then.
  // sim: the site-th call of the store takes `duration_us` longer.
  kStoreDelay,
  // sim: the site-th call of the store and all later ones of the step fail.
  kStoreError,
  // sim: of the site-th value that `rank` writes, only the first `at` bytes arrive, modulo the
  // length.
  kStoreTorn,
  // Faults of the network act on the hosts lane, between ranks on machines of their own. They begin
  // at the site-th collective of `rank` in the step, and end after `duration_us`, or where the
  // ranks recover if that is 0. They concern what `rank` exchanges with `peer`, or with all others
  // if `peer` is `rank`; link_direction() and link_amount() say which way, and how much.
  kNetPartition,  // packets are dropped
  kNetLoss,       // that many percent of the packets are dropped
  kNetReset,      // connections are reset when they send; new ones can be made
  kNetReject,     // all packets are answered with a reset
  kNetHalfOpen,   // packets are dropped after that many more bytes
  kNetBandwidth,  // the rank sends at most that many kbit/s, to all others
  kNetMtu,        // packets of the rank have at most that many bytes, to all others
  kNetDelay,      // bytes arrive that many microseconds later
  kNetCut,        // after that many more bytes a connection is reset, perhaps within a message
  // Faults of a node, and of the store, act on the hosts lane. They begin at the site-th collective
  // of `rank` in the step, and end as faults of the network do. `at` says how much.
  kNodeStop,         // `rank` stops (SIGSTOP) for `duration_us`, longer than its peers wait
  kNodeMemory,       // its process gets at most `at` bytes of memory more than it has
  kNodeDescriptors,  // its process gets no more descriptors
  kNodeClock,        // its wall clock jumps by at / 2 ms; forward if `at` is even, else back
  kStoreFull,        // the store takes no new values
  kStoreDead,        // the store closes its connections, and refuses new ones
  kStoreSlow,        // each answer of the store comes `at` microseconds late
  // The process of `rank` ends as by kRankExit, and another one takes its place: it joins where the
  // others recover for the (at + 1)-th time from then on, with nothing but its number.
  kRankReplaced,
  // The others go on without `rank`, whose process lives: at % 2 == 0: it stops, and goes on after
  // `duration_us`, or when the others are done; 1: it is cut off from all others, and does not
  // stop.
  // It then has an old generation of the group, in which it must not end a step.
  kRankLeftOut,
  // sim: the site-th request of `rank` for memory of tensors, or for pinned memory, is refused. In
  // a reset it counts from the moment on at which the new group connects, and so what the training
  // loop asks for before the reset begins. In a step it counts the
  // requests of the reducer, of the program for its gradients, and of the training loop itself,
  // which makes its own once more, so that such a fault has no effect.
  kMemoryRefused,
  // sim and gloo, in a reset sim alone: at the site-th place of the step at which code of the user
  // runs, or a collective of the rank begins or has begun, the user of `rank` ends its groups or
  // its reducers (F5); abort_call() says by which call. In a reset only the collectives count.
  kUserAbort,
};
constexpr int kKinds = 41;
const char* name_of(Kind kind);

// Returns whether a fault of this kind changes a payload. It fires only if other bytes arrive
// because of it.
constexpr bool is_payload(Kind kind) {
  return kind >= Kind::kPayloadFlip && kind <= Kind::kPayloadShift;
}

// Returns whether such a fault acts, in the simulator, on the calls that a rank makes to the store.
constexpr bool is_store_call(Kind kind) {
  return kind >= Kind::kStoreDelay && kind <= Kind::kStoreTorn;
}
constexpr bool is_network(Kind kind) {
  return kind >= Kind::kNetPartition && kind <= Kind::kNetCut;
}
constexpr bool is_of_node(Kind kind) {
  return kind >= Kind::kNodeStop && kind <= Kind::kRankLeftOut;
}
constexpr bool is_of_hosts_lane(Kind kind) { return is_network(kind) || is_of_node(kind); }
constexpr bool is_of_store(Kind kind) {
  return kind >= Kind::kStoreFull && kind <= Kind::kStoreSlow;
}
// Returns whether the host of the rank, or the store, carries out a fault of this kind. The fault
// fires when it has acted, and not when it begins.
constexpr bool is_of_host(Kind kind) {
  return kind >= Kind::kNetPartition && kind != Kind::kNodeStop && kind < Kind::kRankReplaced;
}
// Returns whether a fault of this kind that is planned in a reset acts while the rank connects.
constexpr bool acts_in_connect(Kind kind) {
  return is_of_store(kind) || kind == Kind::kNodeMemory || kind == Kind::kNodeDescriptors;
}
// Returns whether a fault of this kind ends the process of the rank, and whether it may.
constexpr bool ends_process(Kind kind) {
  return kind == Kind::kRankExit || kind == Kind::kRankReplaced;
}
constexpr bool may_end_process(Kind kind) {
  return ends_process(kind) || kind == Kind::kNodeMemory;
}

// Returns whether the step still succeeds on all ranks with a fault of this kind, as long as its
// duration is below the timeout.
bool is_benign(Kind kind);

struct Fault {
  Kind kind = Kind::kMessageDelay;
  std::uint32_t rank = 0;
  std::uint32_t step = 0;
  std::uint32_t site = 0;         // from 0, counted from the beginning of the step on that rank
  std::uint32_t duration_us = 0;  // at most kMaxDurationUs
  // For payload faults: the receiver. If it equals `rank`, the receiver is the next rank. For
  // faults of the network: the other end; if it equals `rank`, all others.
  std::uint32_t peer = 0;
  // For payload faults: the position in the frame, modulo the length of the frame. For kStoreTorn:
  // the number of bytes that arrive. For kConnectError: which function. For kHookFails:
  // at % kHookCalls is the kind of call, and at / kHookCalls chooses the error code. For faults of
  // the network: at % kLinkDirections is the direction, and at / kLinkDirections the amount. For
  // kUserAbort: at % kAbortCalls is the call, and at / kAbortCalls chooses the error code. With
  // kGroupsByThread, `duration_us` lies between the abort of one group and that of the next.
  std::uint32_t at = 0;
  // The fault acts not in the step, but in the reset that goes on with the step; in step 0, in the
  // construction. Its site is counted from the beginning of that call. Faults of nodes of the graph
  // and of hooks have no site there, and nobody leaves there but by kRankExit. Those that
  // acts_in_connect() names begin before the rank connects with the others, whatever their site is.
  bool in_reset = false;
};
constexpr bool has_site_in_reset(Kind kind) {
  return kind != Kind::kNodeThrows && kind != Kind::kSlowThread && kind != Kind::kHookFails &&
         kind != Kind::kRankReplaced && kind != Kind::kRankLeftOut;
}

// Which packets a fault of the network concerns.
enum class LinkDirection : std::uint8_t { kBoth, kSent, kReceived };
constexpr std::uint32_t kLinkDirections = 3;
constexpr LinkDirection link_direction(const Fault& fault) {
  return static_cast<LinkDirection>(fault.at % kLinkDirections);
}
constexpr std::uint32_t link_amount(const Fault& fault) { return fault.at / kLinkDirections; }

// The calls in which a communication hook can fail: when it is started, in the future that it
// promises then, and when it finishes.
enum class HookCall : std::uint8_t { kStart, kFuture, kFinish };
constexpr std::uint32_t kHookCalls = 3;
constexpr HookCall hook_call(const Fault& fault) {
  return static_cast<HookCall>(fault.at % kHookCalls);
}

// How a user gives up: it aborts the process groups of the rank, there or in a thread of its own
// that begins there; or its reducers. Only the thread that trains may abort a reducer, and not
// within a backward or a reset; elsewhere the user aborts the groups instead. With kDestroy an
// exception leaves the training loop, where it would make its next call in a step: the user
// destroys the reducers, and then aborts the groups; in a reset, the groups alone.
enum class AbortCall : std::uint8_t { kGroups, kGroupsByThread, kReducers, kDestroy };
constexpr std::uint32_t kAbortCalls = 4;
constexpr AbortCall abort_call(const Fault& fault) {
  return static_cast<AbortCall>(fault.at % kAbortCalls);
}

// The functions of NCCL that a group calls while it connects.
enum class ConnectCall : std::uint8_t {
  kUniqueId,
  kInit,
  kShrink,
  kAsyncError,
  kCount,
  kUserRank,
  kCuDevice
};
constexpr std::uint32_t kConnectCalls = 7;
constexpr ConnectCall connect_call(const Fault& fault) {
  return static_cast<ConnectCall>(fault.at % kConnectCalls);
}
const char* name_of(ConnectCall call);  // "ncclGetUniqueId"

// What the text of a call has that the plan makes fail, and the result of NCCL that it has then.
constexpr const char* kCallErrorText = "the fault of the plan";
constexpr const char* kCallErrorResult = "ncclInternalError";

constexpr std::uint32_t kMaxDurationUs = 5'000'000;

struct FaultPlan {
  std::vector<Fault> faults;
};

// Stands for "no rank", or "not known".
constexpr std::uint32_t kNoRank = ~std::uint32_t{0};

// By Kind and ReducerState: how often a fault acted while the reducer of its rank was doing that.
using StateCounts = std::array<std::array<std::uint64_t, kReducerStates>, kKinds>;

struct Fired {
  std::array<std::uint64_t, kKinds> counts{};  // by Kind
  StateCounts in_state{};  // without the faults that acted when nobody knew the state
  // sim: the last kMessageStall or kLinkReset that fired broke the link from the fault's rank to
  // this one. kNoRank if none fired, and in other lanes.
  std::uint32_t link_to = kNoRank;

  // Adds what fired on another rank.
  void add_counts(const Fired& other);
};

}  // namespace lockstep::faults
