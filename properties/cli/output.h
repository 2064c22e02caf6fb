// Writes the program's standard output. A full disk or a closed pipe loses nothing: text that
// cannot be written there goes to standard error, and the program does not exit with 0.
//
// Threads: one caller.
#pragma once

#include <string_view>

namespace lockstep::properties {

// main() must call this first. A closed standard stream becomes /dev/null, so that no file or
// socket of this program gets its number. A pipe that nobody reads becomes an error of the write,
// and does not end the program. Programs that this one starts have SIGPIPE as it was.
void open_standard_streams();

// Writes the whole text at once.
void tell(std::string_view text);

// Returns the exit code of a command that ended with `code`: 1 in place of 0 if something could not
// be written.
int after_telling(int code);

}  // namespace lockstep::properties
