// NodeSwitches: what the host of a rank and the library node_shim.cc in the rank's process share,
// in memory: how far the wall clock has jumped, and what the system has refused to the process.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::faults {

// Names a file that holds NodeSwitches.
constexpr const char* kNodeSwitchesVariable = "LOCKSTEP_NODE_SWITCHES";

struct NodeSwitches {
  std::atomic<std::int64_t> clock_shift_ns;  // added to the wall clock
  // How often the process has
  std::atomic<std::uint64_t> clock_reads;          // read the wall clock while it was shifted
  std::atomic<std::uint64_t> refused_descriptors;  // been refused a descriptor (EMFILE)
  std::atomic<std::uint64_t> refused_memory;       // been refused memory, or a thread
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

}  // namespace lockstep::faults
