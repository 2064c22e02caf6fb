// Coordinator: where the ranks of a case meet, outside of the reducer under test: at the end, and
// after an error. It stands for whatever restarts a job in real life. Ranks are threads or fibers
// of one process.
//
// Threads: all calls from any rank's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/lane/meeting.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Coordinator {
 public:
  explicit Coordinator(std::uint32_t world) : meeting_(world) {}

  // Blocks until every live rank has come to the meeting.
  properties::Resume meet(std::uint32_t rank, bool finished, std::uint32_t next_step);
  // `rank` is gone for good; others do not wait for it any more.
  void leave(std::uint32_t rank);

  std::vector<reference::Recovery> recoveries() const;

 private:
  void decide();

  mutable platform::Mutex mutex_{"coordinator"};
  platform::CondVar decided_{"coordinator.decided"};
  properties::Meeting meeting_;
  std::uint32_t count_ = 0;  // of meetings that were decided
  properties::Resume resume_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
