// The checks of a command line that the parser does not make. They run before the command does.
// Threads: one caller.
#pragma once

#include <string>

#include "reducer/base/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::properties {

// Returns one line that names the first command or option that does not exist, with the closest one
// that does, and the help to read. `otherwise` is what the parser says; it is told if all exist.
std::string usage_error(const CLI::App& app, const std::string& otherwise,
                        const std::string& program);

// Returns an error if a report that the command line asks for cannot be written. Otherwise one
// would learn of that when the run is over.
Status check_reports(const CLI::App& app);

}  // namespace lockstep::properties
