// What a subject is held to, and what a case file says of how it was found (FoundWith), as options
// of a command line and their defaults. Threads: one caller. Failure: a text that says what is
// wrong with the file.
#pragma once

#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::properties {

// The values of the options that a case file can stand for.
struct NamedByCase {
  std::string& subject;
  std::string& lane;
  std::string& against;
  std::string& contract;
  std::string& values;
  std::string& nccl;
};

// Fills in those that the user has not named. Where the user names another subject, only the lane
// is taken. A file of another user's names no library and no Python file to run. Returns an error
// text, or nothing.
std::string take_found_with(const CLI::App& command, const std::string& case_file,
                            const NamedByCase& options);

// Adds --contract and --values: what the subject is held to.
void add_contract(CLI::App& command, std::string& contract, std::string& values);

}  // namespace lockstep::properties
