// Completions for shells, and the manual page. They are made from the options that the program's
// parser has, so that they always agree with --help.
//
// Threads: one caller. The functions change nothing in `app`, and do not fail.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace lockstep::properties {

// A script for bash: `source <(lockstep completion bash)`.
std::string bash_completion(CLI::App& app);
// A script for zsh, for a file `_lockstep` in a folder of $fpath.
std::string zsh_completion(CLI::App& app);
// A page for `man -l`, in roff.
std::string man_page(CLI::App& app, const std::string& version);

// Puts the commands of `--help` under a few headings, in place of one long list.
void group_commands(CLI::App& app);

}  // namespace lockstep::properties
