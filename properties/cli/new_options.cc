#include <CLI/CLI.hpp>

#include "properties/cli/new_project.h"

namespace lockstep::properties {

CLI::App* add_new(CLI::App& app, NewOptions& options) {
  CLI::App* command = app.add_subcommand(
      "new", "write a project of your own: a reducer to replace, its tests, and a pipeline");
  command
      ->add_option("kind", options.kind,
                   "cpp, for a reducer in C or C++, or python, for a wrapper of a torch.nn.Module")
      ->required()
      ->check(CLI::IsMember({"cpp", "python"}));
  command->add_option("folder", options.folder, "where; it must be empty, or not exist yet")
      ->required();
  return command;
}

}  // namespace lockstep::properties
