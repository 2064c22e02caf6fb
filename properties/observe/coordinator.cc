#include "properties/observe/coordinator.h"

#include <utility>

namespace lockstep {
inline namespace LOCKSTEP_NS {

properties::Resume Coordinator::meet(std::uint32_t rank, bool finished, std::uint32_t next_step) {
  platform::MutexLock lock(mutex_);
  meeting_.arrive(rank, finished, next_step);
  const std::uint32_t mine = count_;
  decide();
  // A rank that never arrives is a hang of the subject. The lane detects it as a deadlock or by its
  // watchdog.
  decided_.wait(mutex_, platform::Deadline::never(),
                [&]() LOCKSTEP_REQUIRES(mutex_) { return count_ != mine; });
  return resume_;
}

void Coordinator::leave(std::uint32_t rank) {
  platform::MutexLock lock(mutex_);
  meeting_.leave(rank);
  decide();
}

void Coordinator::decide() {
  std::optional<properties::Resume> resume = meeting_.decide();
  if (!resume) return;
  resume_ = std::move(*resume);
  ++count_;
  decided_.notify_all();
}

std::vector<reference::Recovery> Coordinator::recoveries() const {
  platform::MutexLock lock(mutex_);
  return meeting_.recoveries();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
