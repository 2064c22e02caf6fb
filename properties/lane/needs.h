// What a lane needs of the machine, looked for before it runs: a lane that lacks descriptors,
// threads, memory or a place for files makes ranks fail in ways that look like failures of the
// reducer. Where something is missing the run is inconclusive, and says what, and what to do.
//
// Threads: one caller, in a process without other threads (it forks).
#pragma once

#include <cstdint>
#include <string>

#include "properties/lane/lane.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

struct Needs {
  std::string who;                  // "the gloo lane with 4 jobs": in what is told
  std::uint64_t descriptors = 0;    // in one process
  std::uint64_t threads = 0;        // at once, of all processes; each process counts as one
  std::uint64_t address_bytes = 0;  // in one process
  std::uint64_t file_bytes = 0;     // in the folder for temporary files
  std::uint64_t shared_bytes = 0;   // in /dev/shm
  bool own_program = false;         // by the name that /proc has for it
};

Needs needs_of(LaneKind lane, const Subject& subject, int jobs);

// What there must be beside a lane that runs, and has its part already.
Needs still_needed(Needs needs);

// Tries to get all of it, in a process of its own, and gives it back. The descriptors that one
// process may have are raised to the hard limit first, if that is enough.
Status check_needs(const Needs& needs);

// Writes a file of so many bytes in the folder, and removes it: 0, or the error of the system.
int try_file_in(const std::string& folder, std::uint64_t bytes);

// An error of the system's in what is ours, not the subject's, with what to do about it.
Status refused_by_system(const std::string& what, int error);

}  // namespace lockstep::properties
