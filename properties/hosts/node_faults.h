// NodeFaults: carries out faults of a node (faults/plan.h) on one process of this host: limits of
// its memory and of its descriptors, which the system enforces, and jumps of its wall clock. A
// library that the process loads before all others (faults/node) shifts the clock, and counts how
// often the system refused something.
//
// A fault that met nothing, or that the system refused, is named with the reason.
//
// Threads: one caller.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "faults/node/node_switches.h"
#include "faults/plan.h"
#include "properties/hosts/line.h"
#include "properties/hosts/timed_faults.h"
#include "reducer/base/status.h"

namespace lockstep::properties::hosts {

// Whether NodeFaults carries the fault out.
constexpr bool is_of_process(faults::Kind kind) {
  return kind == faults::Kind::kNodeMemory || kind == faults::Kind::kNodeDescriptors ||
         kind == faults::Kind::kNodeClock;
}

class NodeFaults {
 public:
  NodeFaults() = default;
  ~NodeFaults();
  NodeFaults(const NodeFaults&) = delete;
  NodeFaults& operator=(const NodeFaults&) = delete;

  // Call it before the rank's process starts if it may have such faults: what the process loads is
  // named in the environment of this one until end_preparation().
  void prepare();
  static void end_preparation();

  void begin(const faults::Fault& fault, pid_t process);
  // Ends those whose time is over, and says when to call it again; Clock::time_point::max(): never.
  Clock::time_point end_those_due();
  // Ends all, and returns the reports since the last call; `acted` counts calls.
  std::vector<FaultReport> end_all();

 private:
  struct Active {
    faults::Fault fault;
    pid_t process = -1;
    rlimit before{};            // of a limit
    std::uint64_t counted = 0;  // when it began
    Clock::time_point end;
  };
  Status open_switches();
  Status start(Active& active);
  std::uint64_t count(faults::Kind kind) const;
  FaultReport end(const Active& active);

  int fd_ = -1;  // of the file with the switches
  faults::NodeSwitches* switches_ = nullptr;
  std::string lacking_;  // why the process has no such library
  TimedFaults<Active> faults_;
};

}  // namespace lockstep::properties::hosts
