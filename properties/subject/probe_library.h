// probe_library(): opens a subject's library in a child process, and asks for its table there. The
// constructors of the library and its entry point may crash, exit or hang.
//
// Threads: one caller, in a process without other threads (it forks). Failure: one line that says
// what the library did, or the error of load_subject(). The code is kInvalidArgument, because any
// error is in the library that the user named.
#pragma once

#include <chrono>
#include <string>

#include "properties/subject/loader.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

constexpr std::chrono::milliseconds kProbeLimit = std::chrono::seconds(20);

// The table of the result is null: it is that of the child.
Result<LoadedSubject> probe_library(const std::string& path,
                                    std::chrono::milliseconds limit = kProbeLimit);

}  // namespace lockstep::properties
