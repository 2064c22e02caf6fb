// MeetingPoint: a barrier of processes, in memory that a process makes before it forks them.
//
// Threads: one of each process. Failure: meet() returns false when the others have not come by the
// deadline; the meeting point is of no use after that.
#pragma once

#include "reducer/platform/platform.h"

namespace lockstep::properties {

class MeetingPoint {
 public:
  explicit MeetingPoint(int ranks);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  // Returns at about the same time in all processes: they wait awake.
  bool meet(platform::Deadline deadline) const;

 private:
  struct State;
  const int ranks_;
  State* state_ = nullptr;
};

}  // namespace lockstep::properties
