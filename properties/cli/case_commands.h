// case_commands: the commands that generate, run or print cases: fuzz, fixed, replay, shrink, show,
// generate and export. Internal to cli/.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <vector>

#include "properties/cli/arguments.h"

namespace lockstep::properties {

void add_policy(CLI::App& command, std::optional<Schedule::Policy>& policy);
void add_interleaved(CLI::App& command, bool& is_interleaved);

std::vector<Command> add_commands_on_cases(CLI::App& app, Arguments& a);

}  // namespace lockstep::properties
