// What is wrong with a command line, beyond what the parser says by itself, and before anything
// runs. Threads: one caller.
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

// Whether the reports that the command line asks for can be written. A run of an hour must not end
// with a report that has no place.
Status check_reports(const CLI::App& app);

}  // namespace lockstep::properties
