// Coordinator: lets the ranks of a case meet outside of the reducer under test: at the end, and
// after an error. In a real job the launcher that restarts it has this role. Ranks are threads or
// fibers of one process.
//
// Threads: all calls come from any rank's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/observe/meeting.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Coordinator {
 public:
  explicit Coordinator(std::uint32_t world) : meeting_(world) {}

  // Blocks until every live rank has reached the meeting.
  properties::Resume meet(std::uint32_t rank, bool finished, std::uint32_t next_step);
  // `rank` has ended; others no longer wait for it.
  void leave(std::uint32_t rank);

  std::vector<reference::Recovery> recoveries() const;

 private:
  void decide();

  mutable platform::Mutex mutex_{"coordinator"};
  platform::CondVar decided_{"coordinator.decided"};
  properties::Meeting meeting_;
  std::uint32_t count_ = 0;  // the number of meetings that were decided
  properties::Resume resume_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
