// Why the loader has just refused a library, on this thread: what dlerror() says. Of a library that
// is built for another processor it says only that there is no such file; this says for which.
//
// Threads: any. Failure: none.
#pragma once

#include <string>

namespace lockstep {

std::string loader_error(const std::string& file);

}  // namespace lockstep
