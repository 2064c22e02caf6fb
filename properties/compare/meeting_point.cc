#include "properties/compare/meeting_point.h"

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <new>

#include "reducer/base/check.h"

namespace lockstep::properties {

struct MeetingPoint::State {
  std::atomic<int> arrived{0};
  std::atomic<int> meetings{0};
};

MeetingPoint::MeetingPoint(int ranks) : ranks_(ranks) {
  void* const memory =
      ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  LOCKSTEP_CHECK(memory != MAP_FAILED);
  state_ = new (memory) State;
}

MeetingPoint::~MeetingPoint() { ::munmap(state_, sizeof(State)); }

bool MeetingPoint::meet(platform::Deadline deadline) const {
  const int before = state_->meetings.load();
  if (state_->arrived.fetch_add(1) + 1 == ranks_) {
    state_->arrived = 0;
    state_->meetings = before + 1;
    return true;
  }
  while (state_->meetings.load() == before) {
    if (deadline.passed()) return false;
    ::sched_yield();
  }
  return true;
}

}  // namespace lockstep::properties
