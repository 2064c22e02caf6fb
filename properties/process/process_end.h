// Ends child processes within a limit, and describes in words how they ended. Threads: any, but one
// at a time for one process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::properties {

// Describes the status that waitpid() returned: "was killed by signal 11 (Segmentation fault)",
// "exited with status 3".
std::string describe_end(int wait_status);

// Why a process ended that was ended from outside, as far as the system tells: by a limit on its
// time (ulimit -t), for lack of memory, or by a signal that somebody sent. Empty if it may have
// ended by itself. `may_signal_itself`: something in the process, such as a user's reducer, may
// have sent the signal.
std::string cause_outside(int wait_status, bool may_signal_itself);

// Returns whether the child has ended; the caller can still wait for it.
bool has_ended(pid_t child);

// Waits up to `limit` for the child to end by itself, then kills it and waits for it. Returns its
// status; nothing if the child had to be killed.
std::optional<int> end_within(pid_t child, std::chrono::milliseconds limit);

}  // namespace lockstep::properties
