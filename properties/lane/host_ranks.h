// HostRanks: ranks on hosts of their own, each with an address of its own: network namespaces of
// this machine (hosts/namespaces.h), or machines. This process is the controller
// (hosts/controller.h). On each host `lockstep rank` runs (rank_host.h), from one case to the next;
// it is started by the command of the hosts file, or by hand.
//
// Threads: one caller; the first run() with namespaces requires a process with one thread. Failure:
// what the machine, the network or a host lacks makes the run inconclusive, with one sentence.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "properties/case/case.h"
#include "properties/hosts/controller.h"
#include "properties/lane/rank_run.h"
#include "properties/observe/observation.h"
#include "properties/subject/subject.h"

namespace lockstep::properties {

struct HostsOptions {
  std::uint32_t namespaces = 0;  // this many on this machine; 0: those of the file
  std::string hosts_file;
  std::string secret_file;                   // may be empty with namespaces
  std::string listen = "tcp://127.0.0.1:0";  // of the controller, with a hosts file
};

struct Host {
  std::string address;               // where the other ranks reach it
  std::vector<std::string> command;  // starts a program there; empty: somebody starts it by hand
};
// Reads lines "ADDRESS [COMMAND...]"; empty ones, and those that begin with #, are left out.
Result<std::vector<Host>> read_hosts(const std::string& file);

// The hosts of this program's lane `hosts`. Returns an error if they cannot be used.
Status choose_hosts(const HostsOptions& options);
// How many ranks they can have; 0 before choose_hosts().
std::uint32_t host_count();
// Whether faults of the network can be carried out there: in namespaces, where there is nft.
bool can_disturb_network();

class HostRanks {
 public:
  explicit HostRanks(Subject subject);
  ~HostRanks();
  HostRanks(const HostRanks&) = delete;
  HostRanks& operator=(const HostRanks&) = delete;

  void run(const Case& c, Observation& observation);

 private:
  class Lines;
  const Subject subject_;
  std::unique_ptr<Lines> lines_;  // null before the first run
};

}  // namespace lockstep::properties
