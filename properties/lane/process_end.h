// How a child process of ours ends: in words, and within a limit.
// Threads: any, but one at a time for one process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::properties {

// "was killed by signal 11 (Segmentation fault)", "exited with status 3": what waitpid() says of a
// child.
std::string describe_end(int wait_status);

// Whether the child has ended; it can still be waited for.
bool has_ended(pid_t child);

// Waits up to `limit` for the child to end by itself, then kills it, and waits for it. Its status;
// none if it had to be killed.
std::optional<int> end_within(pid_t child, std::chrono::milliseconds limit);

}  // namespace lockstep::properties
