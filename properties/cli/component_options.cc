#include <CLI/CLI.hpp>

#include "properties/cli/component.h"
#include "properties/cli/number_options.h"

namespace lockstep::properties {

CLI::App* add_component(CLI::App& app, ComponentOptions& options) {
  CLI::App* command = app.add_subcommand(
      "component", "fuzz parts of Lockstep by themselves; without a name, list them");
  command->add_option("name", options.names, "components, or all");
  add_whole(*command, "--seed", options.seed, "of the situations")->default_str("1");
  add_seconds(*command, "--time", options.seconds, "seconds, for all components together");
  add_whole(*command, "--situations", options.situations,
            "of each component, within the time; as many as there are if left out", 1)
      ->default_str("");
  command
      ->add_option("--choices", options.choices,
                   "judge one situation, which these numbers make, as a failure prints them")
      ->delimiter(',')
      ->each([&options](const std::string&) { options.has_choices = true; });
  command->add_option("--subject", options.subject, "whose parts: reducer, or seeded:ID")
      ->capture_default_str();
  command->add_option("--json", options.json, "write a report to this file");
  return command;
}

}  // namespace lockstep::properties
