// ReducerState: what the reducer of a rank is doing when a fault acts on the rank. Whoever runs the
// rank knows it, and tells the injector (Injector::set_state). It is plain data.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::faults {

enum class ReducerState : std::uint8_t {
  kIdle,        // no pass is open: forwards, local backwards, and what is between two steps
  kArmed,       // a synced forward has returned, and no gradient of its pass has arrived
  kReducing,    // gradients arrive, and no bucket has been launched
  kLaunched,    // some buckets have been launched, and others have not
  kFinalizing,  // all buckets have been launched: the reducer waits for sums and copies them back
  kRebuilding,  // the ranks agree on the order of the rebuilt buckets, before a forward
  kJoining,     // the rank has no inputs any more, and takes part in what the others do
  kResetting,   // the reducer takes a new group after a failure
  kUnknown,     // nobody tells; not counted
};
constexpr int kReducerStates = 8;  // without kUnknown
const char* name_of(ReducerState state);

}  // namespace lockstep::faults
