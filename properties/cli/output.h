// What the program tells on standard output. A full disk or a closed pipe loses nothing: what
// cannot be written there goes to standard error, and the program does not end with 0.
//
// Threads: one caller.
#pragma once

#include <string_view>

namespace lockstep::properties {

// First thing in main(): a standard stream that is closed becomes /dev/null, so that no file or
// socket of ours takes its number; and a pipe that nobody reads any more is an error of the write,
// not the end of the program. Programs that this one starts have SIGPIPE as it was.
void open_standard_streams();

// Writes all of it at once.
void tell(std::string_view text);

// The exit code of a command that ended with `code`: 1 in place of 0 if something could not be
// written.
int after_telling(int code);

}  // namespace lockstep::properties
