// Text of others on a person's terminal. What a controller, a case file, an array, a campaign's
// folder, a subject or the name of a file says may hold escape sequences, which would change the
// title, the colors or the clipboard of the terminal, or what stands on it. So all that the program
// prints goes through printable(): tell() and complain() (cli/output.h), and remark() below. The
// check ci/checks/output refuses other ways to standard output and standard error.
//
// Threads: any. Errors of standard error are ignored.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::properties {

// Returns the text with every control character spelled out as \u001b, but for line feeds and tabs.
// That is so for characters that change the direction of text, too, and for bytes that are no
// UTF-8, as \xff. The result is valid UTF-8; a text that has none of these stays as it is.
std::string printable(std::string_view text);
// The same, and line feeds and tabs are spelled out, too: for text that must not look like a line
// of this program.
std::string printable_line(std::string_view text);

// Writes the line "lockstep: TEXT" to standard error.
void remark(std::string_view text);
// Writes the text to standard error as it is, lines and all, but printable.
void write_aside(std::string_view text);
// Removes the line on which the cursor of standard error is, if that is a terminal.
void clear_aside();
// Replaces that line by the text on a terminal, and writes the text as a line elsewhere.
void replace_aside(std::string_view text);

}  // namespace lockstep::properties
