// What the ranks of a group over an NCCL library are told, and how soon, when something happens to
// the last one of them:
//
//   killed   its process ends (SIGKILL)
//   stalled  its process stands still (SIGSTOP)
//   reset    its connection to the next rank closes; needs our net plug-in
//
// Threads: one caller, in a process without other threads (it forks). Failure: a rank that could
// not be asked, or a fault that did not happen.
#pragma once

#include <string>
#include <vector>

#include "properties/compare/fleet.h"
#include "properties/compare/results.h"

namespace lockstep::properties {

struct FaultRound {
  std::string fault;
  int timeout_ms = 0;         // of the group
  std::size_t operation = 0;  // a rank-ordered sum, which the ranks repeat
  std::uint64_t wrong = 0;    // elements of operations that succeeded
};

// `place` has the library and the way; the ranks are processes of this call alone.
Result<std::vector<Told>> run_fault_round(const Fleet::Setup& setup, const std::string& folder,
                                          const std::vector<PreparedOperation>& operations,
                                          FaultRound& round);

}  // namespace lockstep::properties
