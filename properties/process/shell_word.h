// Commands as text that a shell, or a person who pastes it, reads as the words that were meant.
#pragma once

#include <string>
#include <vector>

namespace lockstep::properties {

// The word, in quotes where a shell needs them.
std::string shell_word(const std::string& word);
// The words of a command, one after the other.
std::string command_line_of(const std::vector<std::string>& words);

// Whether a program, such as ssh, joins its arguments to one text, which a shell at the other end
// takes apart again.
bool hands_to_shell(const std::string& program);

}  // namespace lockstep::properties
