// The command `new`: writes a project for people who test a reducer of their own. Its files are
// those of properties/new; they work as they are, on the small reducer or wrapper that is in them.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::properties {

struct NewFile {
  const char* name;  // with the folders in which it lies
  const char* text;
};

// The files of a project whose reducer is a shared library, and of one whose wrapper is in Python.
const std::vector<NewFile>& files_of_new_cpp();
const std::vector<NewFile>& files_of_new_python();

struct NewOptions {
  std::string kind;  // cpp or python
  std::string folder;
};

CLI::App* add_new(CLI::App& app, NewOptions& options);

// Makes the folder, writes the files, and prints what to do next. A folder that is not empty is
// refused, so that no file of the user's is overwritten. Returns the exit code.
int run_new(const NewOptions& options);

}  // namespace lockstep::properties
