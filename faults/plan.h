// FaultPlan: what goes wrong in one case, and when; plain data. The simulator (faults/sim) and the
// harness of real processes (properties/lane/real_environment.h, with faults/gloo and
// faults/nccl_net) carry it out; which lanes can do a kind is written in front of it.
//
// A plan is total: ranks are taken modulo the world, steps modulo the program's steps. A fault
// whose site is never visited does not fire, and that is no error: the observation counts what
// fired.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lockstep::faults {

// Over NCCL what is of a message, and kOperationError, is the net plug-in's, which counts the
// messages of each connection (properties/lane/nccl_plan.h).
enum class Kind : std::uint8_t {
  // sim, nccl: the site-th message that `rank` sends in the step arrives `duration_us` later
  kMessageDelay,
  // sim, nccl: that message and all later ones on its link never arrive
  kMessageStall,
  // sim, gloo, nccl: the site-th collective of `rank` in the step begins `duration_us` later
  kOperationDelay,
  // sim, gloo, nccl: that collective never begins on `rank`
  kOperationStall,
  // sim: the transport of `rank` fails at that collective; nccl: at the site-th message
  kOperationError,
  // sim, over its NCCL: the site-th call of `rank` in the step that carries a collective out does
  // nothing and returns an error
  kCallError,
  // sim, nccl: at that message the link to its receiver is reset: both ends get an error
  kLinkReset,
  // sim, gloo, nccl: the process of `rank` is gone at the site-th collective of the step (SIGKILL)
  kRankExit,
  // sim, gloo, nccl: `rank` does nothing for `duration_us` from there on (SIGSTOP)
  kRankPause,
  // sim, gloo, nccl: the site-th node that `rank` executes in the step throws
  kNodeThrows,
  // sim, gloo, nccl: at that node the engine's worker sleeps for `duration_us`
  kSlowThread,
  // F3, where what travels is verified; `site` counts the exchanges of frames of `rank`. Of the
  // frame that goes to `peer` in that one, sim and gloo, and the first over nccl, where `site` is a
  // message:
  kPayloadFlip,      // one bit, number `at`, is the other one
  kPayloadTruncate,  // what lies behind `at` bytes is lost, and zeros stand there
  kPayloadSwap,      // it and the one for the next rank (of both, this rank included) change places
  kPayloadStale,     // it is the one of the exchange before, as far as that reaches
  kPayloadShift,     // it lies 1 + `at` bytes further on, the end of it at the beginning
};
constexpr int kKinds = 16;
const char* name_of(Kind kind);

// Whether a fault of this kind changes what travels. It fires when that arrives as other bytes.
constexpr bool is_payload(Kind kind) { return kind >= Kind::kPayloadFlip; }

// Whether a fault of this kind lets the step end well everywhere, as long as its duration stays
// under the timeout.
bool is_benign(Kind kind);

struct Fault {
  Kind kind = Kind::kMessageDelay;
  std::uint32_t rank = 0;
  std::uint32_t step = 0;
  std::uint32_t site = 0;         // from 0, counted from the beginning of the step on that rank
  std::uint32_t duration_us = 0;  // at most kMaxDurationUs
  std::uint32_t peer = 0;  // payload: the receiver; the rank after it, if it is `rank` itself
  std::uint32_t at = 0;    // payload: where in the frame, modulo its length
};
constexpr std::uint32_t kMaxDurationUs = 400'000;

struct FaultPlan {
  std::vector<Fault> faults;
};

struct Fired {
  std::array<std::uint64_t, kKinds> counts{};  // by Kind
};

}  // namespace lockstep::faults
