// The options of the lane `hosts`, and the command `rank`, which is one rank of it.
#pragma once

#include <string>

#include "properties/lane/host_ranks.h"
#include "properties/lane/lane.h"
#include "properties/lane/rank_host.h"

namespace CLI {
class App;
}

namespace lockstep::properties {

// The lane that --lane names; the simulator if it names none.
LaneKind lane_named(const std::string& name);

void add_hosts_options(CLI::App& command, HostsOptions& options);
// Returns an error text if the options do not say which hosts.
std::string check_hosts(const HostsOptions& options);
// Returns 0 if the hosts can be used; otherwise prints one line.
int refuse_hosts(const HostsOptions& options);

// For a subject that brings its own process group: returns whether it has the lane hosts, and the
// error text for a lane that it lacks.
bool has_hosts(const Subject& subject);
std::string has_no_such_lane(const Subject& subject);

struct RankCommandOptions {
  RankHostOptions host;
  std::string rank = "auto";
};
CLI::App* add_rank(CLI::App& app, RankCommandOptions& options);
int run_rank_command(const RankCommandOptions& options);

}  // namespace lockstep::properties
