// Whether a subject, as the command line names it (subject.h), brings code of its own.
#pragma once

#include <string>

namespace lockstep::properties {

// Whether running the subject runs code that comes with its name: a library, a file of Python, or a
// PyTorch that the name chooses. A file of somebody else may have named it.
bool brings_code(const std::string& text);

}  // namespace lockstep::properties
