// Checks the resources of the machine before a lane runs: a lane that lacks descriptors, threads,
// memory or a place for files makes ranks fail in ways that look like failures of the reducer. If
// something is missing, the run is inconclusive, and the error says what is missing and what to do.
//
// Threads: one caller, in a process without other threads (it forks).
#pragma once

#include <cstdint>
#include <string>

#include "properties/lane/lane.h"
#include "properties/process/system_error.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

struct Needs {
  std::string who;                  // for the error text, such as "the gloo lane with 4 jobs"
  std::uint64_t descriptors = 0;    // in one process
  std::uint64_t threads = 0;        // at once, in all processes; each process counts as one
  std::uint64_t address_bytes = 0;  // in one process
  std::uint64_t file_bytes = 0;     // in the folder for temporary files
  std::uint64_t shared_bytes = 0;   // in /dev/shm
  bool own_program = false;         // found by the name that /proc has for it
  bool loopback = false;            // connections to this machine, at 127.0.0.1
};

Needs needs_of(LaneKind lane, const Subject& subject, int jobs);

// Returns what must still be available beside a lane that runs and already holds its part.
Needs still_needed(Needs needs);

// Tries to allocate all of it in a process of its own, and releases it. First raises the limit of
// descriptors of a process to the hard limit, if that is enough.
Status check_needs(const Needs& needs);

// Writes a file of `bytes` bytes in the folder, and removes it. Returns 0, or the error of the
// system.
int try_file_in(const std::string& folder, std::uint64_t bytes);

}  // namespace lockstep::properties
