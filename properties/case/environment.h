// Environment: what a case says of everything around its program that is neither a fault nor the
// schedule: how late messages come, which NCCL there is, how ranks run, what their user asks for on
// the way, and what the run records. The default of each field is the simplest choice, and
// shrinking goes there. The program's key hashes values, and decides nothing.
//
// Every field has a row in environment_fields.h. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::properties {

struct Environment {
  // Of messages in the simulator. With kNone they arrive at once; with kLong every message arrives
  // after all computation. Where ranks leave at once over real connections, one message of eight is
  // sent 2 ms late without kNone.
  enum class Latency : std::uint8_t { kNone, kShort, kLong };
  // Which ranks write flight records: none, unless the lane asks for details; those that fail; the
  // same with the trace of the pass as text; all ranks, also where all ends well.
  enum class Records : std::uint8_t { kNone, kOfFailures, kWithTraces, kOfAll };
  // The options that one rank has otherwise when all ranks join once more at the end, which must
  // fail (S2): none, so that they do not; throw_on_early_termination; divide_by_active.
  enum class UnlikeJoin : std::uint8_t { kNone, kTermination, kDivisor };
  // The release of NCCL that the simulator has; kDefault is its own.
  enum class NcclRelease : std::uint8_t { kDefault, k2_23, k2_27, k2_32 };
  // Which ranks keep their communicator, so that a smaller group can be made of it.
  enum class Keeps : std::uint8_t { kNone, kEvenRanks, kAllRanks };

  Latency latency = Latency::kNone;
  std::uint32_t latency_seed = 0;  // each message's latency is drawn from this, within the limits
  std::uint32_t hook_seed = 0;     // in which order a rank's hooks run that could run at once
  bool processes = false;          // on real lanes ranks are processes, and not threads
  bool times = false;              // the simulator judges the times of passes (T3)
  bool rosters = false;            // in the simulator ranks agree on rosters through a store (F9)
  Records records = Records::kNone;

  bool reads_layouts = false;       // ranks read their layouts at the end
  bool asks_diagnosis = false;      // ranks ask for a diagnosis after each step
  bool asks_after_failure = false;  // a rank that has failed goes on calling its reducer
  bool uses_ended_group = false;    // a rank that has ended its group starts a collective in it
  UnlikeJoin unlike_join = UnlikeJoin::kNone;
  std::uint32_t unlike_rank = 0;       // which rank is unlike the others, modulo those of its group
  bool unlike_terminates = false;      // throw_on_early_termination of the others
  bool unlike_divides_active = false;  // divide_by_active of the others

  // A rank that is done ends its groups at once, while others may still be in the last step, unless
  // the program may fail or joins. Over NCCL ranks always do so.
  bool leaves_at_once = false;
  bool shares_memory = false;  // over Gloo, ranks of one host share memory, and send no payload

  // The rest concerns groups over NCCL.
  NcclRelease nccl = NcclRelease::kDefault;
  // If not 0, ncclCommShrink or ncclCommRevoke fails on this rank, counted from 1. These calls are
  // made when a step has failed by a fault: without faults both are 0.
  std::uint32_t shrink_fails_on = 0;
  std::uint32_t revoke_fails_on = 0;
  bool revoke_fails_late = false;  // the call is taken, and the communicator reports the error
  bool shrinks = false;            // a group with fewer ranks is made of the one before (F4)
  Keeps keeps = Keeps::kNone;
  bool scales_down = false;     // ranks that are done go on without the last one (F4)
  bool late_peer = false;       // the last one starts one more collective when they have gone
  bool excludes_twice = false;  // a rank that leaves is named twice, which means the same
  bool lacks_shrink = false;    // the first two ranks have an NCCL without ncclCommShrink
};

// Returns the name of the release, such as "2.23"; empty for the simulator's own.
std::string_view release_of(Environment::NcclRelease release);

}  // namespace lockstep::properties
