// Files that are written whole or not at all, and read whole.
// Threads: any. Failure: one line that names the file; write_whole() leaves nothing behind.
#pragma once

#include <string>

#include "reducer/base/status.h"

namespace lockstep::properties {

bool write_whole(const std::string& file, const std::string& text);
Result<std::string> read_whole(const std::string& file);

}  // namespace lockstep::properties
