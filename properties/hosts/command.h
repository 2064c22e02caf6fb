// Runs one of the system's programs (ip, nft, tc, ss) to its end.
//
// Threads: any. Failure: one sentence with the program, and the first line of what it said on
// standard error. A program that does not end within ten seconds is killed.
#pragma once

#include <string>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::properties::hosts {

// Returns the path of a program; looks in the folders for administrators, too, which are not in
// every user's PATH. Empty if there is none.
std::string find_program(const std::string& name);

// Returns standard output. `input` becomes standard input. `arguments` begin with the program's
// name.
Result<std::string> run_command(const std::vector<std::string>& arguments,
                                const std::string& input = {});

}  // namespace lockstep::properties::hosts
