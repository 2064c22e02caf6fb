#include <CLI/CLI.hpp>

#include "properties/cli/scaling.h"
#include "properties/lane/scaling.h"

namespace lockstep::properties {

CLI::App* add_scaling(CLI::App& app, ScalingOptions& options) {
  CLI::App* command = app.add_subcommand(
      "scaling", "measure what the reducer sends, and how long it takes, with up to 1,024 ranks");
  command->add_option("--ranks", options.ranks, "numbers of ranks, each of them a job")
      ->delimiter(',')
      ->check(CLI::Range(scaling::kMinRanks, scaling::kMaxRanks))
      ->default_str("8,64,256,1024");
  command->add_option("--json", options.json, "write a report to this file");
  command->add_option("--html", options.html, "write a page with charts to this file");
  return command;
}

}  // namespace lockstep::properties
