// `lockstep export`: a case as a script that needs nothing of ours (report/python_script.h).
// Returns the program's exit code: 0, or that of usage with one line on standard error and no file.
#pragma once

#include <string>

namespace lockstep::properties {

struct ExportOptions {
  std::string case_file;
  bool is_python = false;  // the one language that there is
  std::string output;      // empty: standard output
};
int run_export(const ExportOptions& options);

}  // namespace lockstep::properties
