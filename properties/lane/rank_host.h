// RankHost: what `lockstep rank` does. It connects to the controller of a run (hosts/controller.h)
// as one rank, starts the rank's process on this host, and carries the messages of rank_server.h
// between the two. It continues, kills and replaces the rank's process when the controller says so,
// and carries out the faults of the network and of the node. It ends with its controller.
//
// Threads: one caller. Failure: one line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "reducer/base/status.h"

namespace lockstep::properties {

// What the controller sends: a letter, and for the first two the text for the rank.
constexpr char kToRank = 'r';    // an answer to the rank
constexpr char kRequest = 'q';   // a request; starts the rank's process if there is none
constexpr char kContinue = 'c';  // continue the rank when it has stopped
constexpr char kKill = 'k';      // answered by kKilled
constexpr char kHeal = 'h';      // end the faults of this host; answered by kHealed
// What the host sends, besides the messages of the rank and kEnded (rank_server.h). Of the faults
// that begin (kFaults) it passes on those of the store.
constexpr char kKilled = 'K';  // and how the rank's process ended
constexpr char kHealed = 'H';  // and what became of each fault, as JSON: [kind, acted, why]

struct RankHostOptions {
  std::string store;  // tcp://HOST:PORT of the controller
  std::string secret_file;
  std::uint32_t rank = 0;
  double connect_seconds = 30;  // how long to look for the controller
  // For a controller that makes namespaces: a descriptor that gets a byte when this process has
  // left its network, and gives one when it is plugged into the next one. -1: this host has a
  // network.
  int network_fd = -1;
};

// Returns when the controller closes the line.
Status run_rank_host(const RankHostOptions& options);

// The rank that a launcher gives this process (srun, mpirun, or another with PMI), if it does.
std::optional<std::uint64_t> launched_rank();

}  // namespace lockstep::properties
