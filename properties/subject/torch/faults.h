// RankFaults: carries out the faults of a case on one rank of torch, and may stop or end its
// process. A collective begins late (the thread that starts it sleeps) or never (the process is
// stopped until all others have given up); a process is stopped for a while, or killed; a node
// throws or is slow.
//
// Threads: nodes run on any thread of the engine, and any thread may start collectives; only the
// training thread calls the rest.
#pragma once

#include <cstdint>
#include <mutex>

#include "faults/injector.h"
#include "properties/lane/rank_server.h"

namespace lockstep::torch_subject {

class RankFaults {
 public:
  explicit RankFaults(const properties::RankJob& job);

  // The group connects with which the rank goes on with this step.
  void at_connect(std::uint32_t step);
  void begin_step(std::uint32_t step);
  void end_step();  // nothing fires until the next step begins

  void at_collective();
  void at_node();  // may throw

  faults::Fired fired() const;

 private:
  const properties::RankJob& job_;
  mutable std::mutex mutex_;
  faults::Injector injector_;  // guarded by mutex_
};

}  // namespace lockstep::torch_subject
