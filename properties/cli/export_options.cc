#include <CLI/CLI.hpp>

#include "properties/cli/export.h"

namespace lockstep::properties {

CLI::App* add_export(CLI::App& app, ExportOptions& options) {
  CLI::App* command = app.add_subcommand(
      "export", "write a case as a script for those who do not have this program");
  command->add_option("case", options.case_file, "a case file")->required();
  command->add_flag("--python", options.is_python, "a Python script that needs PyTorch alone")
      ->required();
  command->add_option("-o,--output", options.output,
                      "the file to write; standard output when it is left out");
  return command;
}

}  // namespace lockstep::properties
