// Puts an error of the system in our own resources (not the subject's) into words, with what to do
// about it. Threads: any.
#pragma once

#include <string>

#include "reducer/base/status.h"

namespace lockstep::properties {

// Returns what a person can do about `error`, a value of errno: "raise the number of open files
// that a process may have (ulimit -n)".
std::string advice_for(int error);

// Returns the error "WHAT: TEXT OF THE SYSTEM; ADVICE".
Status refused_by_system(const std::string& what, int error);

}  // namespace lockstep::properties
