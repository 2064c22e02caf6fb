#include "properties/cli/hosts.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>
#include <optional>

#include "properties/cli/numbers.h"
#include "properties/cli/output.h"
#include "properties/hosts/namespaces.h"
#include "properties/oracle/verdict.h"

namespace lockstep::properties {

LaneKind lane_named(const std::string& name) {
  for (const LaneKind each : {LaneKind::kGloo, LaneKind::kNccl, LaneKind::kHosts})
    if (name == name_of(each)) return each;
  return LaneKind::kSim;
}

void add_hosts_options(CLI::App& command, HostsOptions& options) {
  CLI::Option* namespaces =
      command
          .add_option("--netns", options.namespaces,
                      "the hosts of the lane hosts are so many network namespaces of this machine")
          ->check(CLI::Range(1U, hosts::kMostHosts));
  CLI::Option* file = command.add_option(
      "--hosts", options.hosts_file,
      "a file with the hosts of the lane hosts: lines ADDRESS COMMAND, where the command, such as "
      "ssh NODE, starts a program there");
  file->excludes(namespaces);
  command.add_option("--secret-file", options.secret_file,
                     "what the ranks of the lane hosts show their controller; every host has it");
  command
      .add_option("--listen", options.listen,
                  "where the hosts of --hosts reach the controller: tcp://HOST:PORT")
      ->capture_default_str();
}

std::string check_hosts(const HostsOptions& options) {
  if (options.namespaces == 0 && options.hosts_file.empty())
    return "the lane hosts needs hosts: give --netns N, or --hosts FILE";
  if (!options.hosts_file.empty() && options.secret_file.empty())
    return "--hosts needs --secret-file; make a secret with: (umask 077; openssl rand -hex 32 > "
           "FILE)";
  return {};
}

int refuse_hosts(const HostsOptions& options) {
  const Status status = choose_hosts(options);
  if (status.ok()) return 0;
  return complain(status, options.namespaces > 0 ? kInconclusive : kUsage);
}

CLI::App* add_rank(CLI::App& app, RankCommandOptions& options) {
  CLI::App* command = app.add_subcommand(
      "rank", "be one rank of the lane hosts: run cases for a controller until that ends");
  command->add_option("--store", options.host.store, "the controller's address: tcp://HOST:PORT")
      ->required();
  command
      ->add_option("--secret-file", options.host.secret_file,
                   "the secret that the controller has, too")
      ->required();
  command
      ->add_option("--rank", options.rank,
                   "a number from 0 on, or auto, which is as srun, mpirun or PMI say")
      ->capture_default_str();
  // For the lane itself, which starts ranks in namespaces.
  command->add_option("--network-fd", options.host.network_fd)->group("");
  return command;
}

bool has_hosts(const Subject& subject) { return subject.kind == Subject::Kind::kTorch; }

std::string has_no_such_lane(const Subject& subject) {
  return fmt::format("the subject '{}' brings its own engine and process group: it has {}",
                     subject.name(),
                     has_hosts(subject) ? "the lanes gloo and hosts alone" : "the lane gloo alone");
}

int run_rank_command(const RankCommandOptions& options) {
  RankHostOptions host = options.host;
  const bool is_auto = options.rank == "auto";
  const std::optional<std::uint64_t> given = is_auto ? launched_rank() : whole_number(options.rank);
  if (!given || *given >= std::numeric_limits<std::uint32_t>::max())
    return complain(
        is_auto ? "--rank: neither srun nor mpirun nor PMI says which rank this is: give a number"
                : fmt::format("--rank: '{}' is not a number of a rank", options.rank),
        kUsage);
  host.rank = static_cast<std::uint32_t>(*given);
  const Status status = run_rank_host(host);
  return status.ok() ? 0 : complain(status);
}

}  // namespace lockstep::properties
