// Records which names a library looks up with dlsym(), by a pointer of ours in place of the one
// that the loader gave to that library. No other library of the process is concerned.
//
// Threads: call both functions in a process that uses the library for nothing else.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::benchmarks {

// `library` is the handle of dlopen(). Returns false if the library does not use dlsym().
bool record_lookups(void* library);
// Each name that begins with "nccl", in the order of the calls, and whether it was found.
std::vector<std::pair<std::string, bool>> recorded_lookups();

}  // namespace lockstep::benchmarks
