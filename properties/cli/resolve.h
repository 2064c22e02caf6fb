// resolve: the lane and the subject that a command line names, and whether both can run here.
// Internal to cli/.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "properties/cli/arguments.h"

namespace lockstep::properties {

void add_lane_and_subject(CLI::App& command, Arguments& arguments, bool all_lanes);
void add_judged_by(CLI::App& command, Arguments& arguments);

// Fills in lane and subject. Returns an error text if one of them is not available.
std::string resolve(const Arguments& arguments, LaneKind& lane, Subject& subject);

// Returns 0 if this machine has what the lane needs; otherwise prints one line.
int refuse_machine(LaneKind lane, const Subject& subject, int jobs = 1);
// Returns 0 if the lane can run here; otherwise prints one line.
int refuse_lane(const Arguments& arguments, LaneKind lane, const Subject& subject);

}  // namespace lockstep::properties
