// Writes the program's output, and has the exit codes of its commands. A full disk loses nothing:
// text that cannot be written there goes to standard error. Where the reader of a pipe has left, as
// in `| head`, the rest is dropped without a word. In both cases the program does not exit with 0.
//
// Threads: one caller.
#pragma once

#include <string_view>

#include "properties/oracle/verdict.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

// The exit codes of commands; those of a failing case are in oracle/verdict.h.
inline constexpr int kUsage = static_cast<int>(Failing::kUsage);
inline constexpr int kInconclusive = static_cast<int>(Failing::kInconclusive);
inline constexpr int kInterrupted = 130;

// main() must call this first. A closed standard stream becomes /dev/null, so that no file or
// socket of this program gets its number. A pipe that nobody reads, and a file that grows past
// ulimit -f, become an error of the write, and do not end the program. Programs that this one
// starts have SIGPIPE and SIGXFSZ as they were.
void open_standard_streams();

// Writes the whole text at once, in a form that is harmless to a terminal (process/terminal.h).
void tell(std::string_view text);

// Writes text that the same command prints again at no cost, such as the manual. Where a pager was
// left before its end, it drops the rest without a word.
void tell_reference(std::string_view text);

// Writes one line to standard error that says why the command ends, and returns its exit code.
int complain(std::string_view text, int code = kUsage);
int complain(const Status& status, int code = kUsage);

// Returns the exit code of a command that ended with `code`: 1 in place of 0 if something could not
// be written.
int after_telling(int code);

}  // namespace lockstep::properties
