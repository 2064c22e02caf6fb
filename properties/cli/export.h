// `lockstep export`: exports a case as a script that needs nothing of this project
// (report/python_script.h). Returns the program's exit code: 0, or the code of a usage error, with
// one line on standard error and no file.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace lockstep::properties {

struct ExportOptions {
  std::string case_file;
  bool is_python = false;  // Python is the only language
  std::string output;      // empty: standard output
};
CLI::App* add_export(CLI::App& app, ExportOptions& options);
int run_export(const ExportOptions& options);

}  // namespace lockstep::properties
