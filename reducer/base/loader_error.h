// Why the loader has just refused a library, on this thread: what dlerror() says. Of a library that
// is built for another processor it says only that there is no such file; this says for which.
//
// Threads: any. Failure: none.
#pragma once

#include <string>

namespace lockstep {

std::string loader_error(const std::string& file);

// To be asked before the loader is, which maps a file that was cut off, and then ends the process
// by SIGBUS: how much of the library is there, or nothing if it is whole, or no file of ELF's.
std::string cut_off(const std::string& file);

}  // namespace lockstep
